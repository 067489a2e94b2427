"""`app.streams`, and the health check of streams."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import App
from holdfast.errors import ConfigError, NotFound, SourceAway, SourceError
from holdfast.health import making_progress
from holdfast.ports import Lag, Source
from holdfast.runtime.streams.spec import StreamSpec
from holdfast.testing import ManualClock
from holdfast.types import Outgoing
from tests.unit.reported import part, reported, stream_report, stream_spec


def shop(clock: ManualClock | None = None, **options: Any) -> App:
    """An app with one stream, whose messages nobody has handled."""
    app = App("memory://", clock=clock)

    @app.stream("memory://orders", group="billing", name="bill", **options)
    async def bill(order: dict[str, Any]) -> None:
        del order

    return app


async def sent(app: App, n: int, topic: str = "orders") -> None:
    """So many messages in its topic."""
    async with app.streams.source_of(app.stream_specs["bill"]) as source:
        await source.send([Outgoing(topic, b"{}", b"A") for _ in range(n)])


class Silent:
    """A source whose server says nothing, and that cannot be closed either; or one that fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.is_closed = False

    async def lags(self, topics: Sequence[str]) -> list[Lag]:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()
        return []

    async def close(self) -> None:
        self.is_closed = True
        if self.error is None:
            await asyncio.Event().wait()


def with_source(app: App, source: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_source(_: StreamSpec) -> Source:
        found: Any = source
        checked: Source = found
        return checked

    monkeypatch.setattr(app, "open_source", open_source)


# ---------------------------------------------------------------- lag


async def test_the_lag_is_asked_of_the_server_while_no_worker_runs() -> None:
    app = shop(blocking=False)
    await sent(app, 3)
    (found,) = await app.streams.alag()
    assert (found.name, found.group, found.topic, found.error, found.lag) == ("bill", "billing", "orders", "", 3)
    assert {one.topic: one.lag for one in found.partitions}["orders"] == 3
    assert await app.streams.alag("bill") == [found]
    await app.arun_until_idle()
    assert (await app.streams.alag())[0].lag == 0


async def test_the_lag_of_retry_topics_counts_too() -> None:
    app = shop()
    await sent(app, 2, "orders.billing.retry.0")
    assert (await app.streams.alag())[0].lag == 2


def test_the_lag_of_a_stream_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match="no stream of this app is named 'none'"):
        shop().streams.lag("none")
    with pytest.raises(ConfigError, match="timeout=0"):
        shop().streams.lag(timeout=0)


async def test_a_server_that_is_silent_is_told_in_one_line_and_never_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(auto=False)
    app, source = shop(clock), Silent()
    with_source(app, source, monkeypatch)
    asked = asyncio.ensure_future(app.streams.alag(timeout=7))
    for _ in range(50):
        await asyncio.sleep(0)  # noqa: TID251 - lets others run
        clock.advance(1)
    (found,) = await asyncio.wait_for(asked, 5)
    assert (found.error, found.lag, found.partitions) == ("memory://orders has not answered within 7 s", None, [])
    assert source.is_closed


async def test_an_error_of_the_server_is_told_without_secrets_and_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    app = shop(ManualClock())
    with_source(app, Silent(SourceAway("cannot reach\nkafka://u:canary-53@h:9092")), monkeypatch)
    (found,) = await app.streams.alag()
    assert found.error == "cannot reach kafka://u:[redacted]@h:9092"


# ---------------------------------------------------------------- list


async def test_streams_are_listed_with_and_without_a_worker() -> None:
    app = shop()
    await reported(app, stream_report("ship", part(0, lag=4)))
    bill, ship = await app.streams.alist()
    assert (bill.name, bill.workers, bill.lag) == ("bill", 0, None)
    assert (ship.name, ship.workers, ship.lag) == ("ship", 1, 4)


# ---------------------------------------------------------------- progress


async def test_an_app_without_streams_has_no_check_of_them() -> None:
    app = App("memory://")
    assert "streams" not in (await app.ahealth()).checks
    with pytest.raises(ConfigError, match="streams"):
        app.health_check("streams", lambda: None)


async def test_a_stream_that_moves_is_well() -> None:
    app = shop()
    await reported(app, stream_report("bill", part(0, lag=9, in_flight=1, stuck_id="orders/0/1", stuck_s=59.0)))
    check = (await app.ahealth()).checks["streams"]
    assert (check.status, check.error) == ("ok", None)


async def test_a_stuck_key_makes_the_app_less_well_and_is_named() -> None:
    app = shop()
    stuck = part(3, in_flight=1, stuck_id="orders/3/12", stuck_key="A", stuck_s=61.0)
    await reported(app, stream_report("bill", stuck))
    health = await app.ahealth()
    assert health.checks["streams"].error == (
        "holdfast.errors.SourceError: stream bill: partition 3 of orders has waited 61 s "
        "for message orders/3/12, key 'A'"
    )
    assert (health.status, health.healthy) == ("degraded", True)
    assert health.reasons == ("check streams failed",)


async def test_messages_that_wait_while_no_worker_reads_are_a_trouble() -> None:
    app = shop()
    assert (await app.ahealth()).checks["streams"].status == "ok"
    await sent(app, 2)
    assert (await app.ahealth()).checks["streams"].error == (
        "holdfast.errors.SourceError: stream bill: no worker reads it, and 2 messages wait"
    )
    await reported(app, stream_report("bill", part(0, lag=2)))
    assert (await app.ahealth()).checks["streams"].status == "ok"


async def test_a_server_that_is_away_is_a_trouble_and_no_reason_to_be_unhealthy() -> None:
    app = shop()
    await reported(app, stream_report("bill", away="no route to kafka"))
    health = await app.ahealth()
    assert (
        health.checks["streams"].error
        == "holdfast.errors.SourceError: stream bill: its server is away: no route to kafka"
    )
    assert health.healthy


async def test_a_check_of_ones_own_has_its_own_limit_and_streams() -> None:
    app = shop()
    app.health_check("billing", making_progress(app, "bill", within=120))
    app.health_check("shipping", making_progress(app, "ship"))
    stuck = part(0, in_flight=1, stuck_id="orders/0/1", stuck_key="A", stuck_s=119.0)
    await reported(app, stream_report("bill", stuck))
    checks = (await app.ahealth()).checks
    assert (checks["streams"].status, checks["billing"].status) == ("failed", "ok")
    assert checks["shipping"].error == "holdfast.errors.NotFound: no stream is named 'ship', and no worker reports one"
    await reported(app, stream_report("bill", replace(stuck, partition=1, stuck_s=120.0)))
    assert (await app.ahealth()).checks["billing"].status == "failed"


def test_a_check_of_ones_own_is_refused_with_nonsense() -> None:
    with pytest.raises(ConfigError, match="within=0"):
        making_progress(shop(), within=0)
    with pytest.raises(ConfigError, match="name=''"):
        making_progress(shop(), "")


async def test_a_breaker_of_a_stream_is_listed_before_it_has_failed() -> None:
    assert [view.key for view in await shop().breakers.alist()] == ["bill"]


def test_a_spec_made_by_hand_is_as_one_of_an_app() -> None:
    by_hand, own = stream_spec(), shop().stream_specs["bill"]
    assert (by_hand.name, by_hand.topic, by_hand.group) == (own.name, own.topic, own.group)


def test_a_trouble_is_an_error_of_the_source() -> None:
    app = shop()
    app.bridge.run(sent(app, 1))
    with pytest.raises(SourceError, match="1 message waits"):
        app.bridge.run(app.streams.acheck())


# ---------------------------------------------------------------- packages


def test_a_missing_package_is_refused_before_anything_begins_for_the_streams_that_are_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith(("holdfast.streams.kafka", "confluent_kafka"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    app = shop()

    @app.stream("kafka://:secret@host/parcels", group="shipping", name="ship")
    async def ship(parcel: dict[str, Any]) -> None:
        del parcel

    app.streams.check_sources(())
    app.streams.check_sources(("bill",))
    for names in (None, ("ship",)):
        with pytest.raises(
            ConfigError, match=r"\(confluent_kafka\): pip install 'holdfast\[kafka\]', or in a"
        ) as caught:
            app.streams.check_sources(names)
        assert "secret" not in str(caught.value)
