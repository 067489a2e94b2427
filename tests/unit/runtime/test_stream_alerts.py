"""The rules of streams, from what workers report to what is told."""

from __future__ import annotations

from typing import Any

from holdfast import App
from holdfast.alerts import LagGrowth, StreamLag, StreamStuck
from holdfast.app.alerts import AlertDesk
from holdfast.policy.rules import Reading, Rule
from holdfast.runtime.alerts import metrics_of, read
from holdfast.types import Outgoing
from tests.unit.reported import part, reported, stream_report


async def reading(app: App, rule: Rule) -> Reading:
    """What a rule finds."""
    app.alerts = AlertDesk(app)
    app.alert("one", when=rule)
    return read(rule, await app.alerts.look(), None, {})


async def app_with_two() -> App:
    app = App("memory://")
    await reported(
        app,
        stream_report(
            "bill", part(0, lag=30), part(1, lag=12, in_flight=1, stuck_id="o/1/7", stuck_key="A", stuck_s=9.0)
        ),
        stream_report("ship", part(0, lag=40, in_flight=1, stuck_id="s/0/2", stuck_key="B", stuck_s=70.0)),
    )
    return app


async def test_the_lag_is_that_of_the_stream_which_is_furthest_behind() -> None:
    app = await app_with_two()
    found = await reading(app, StreamLag())
    assert (found.value, found.what) == (42, "stream bill")
    found = await reading(app, StreamLag(stream="ship"))
    assert (found.value, found.what) == (40, "stream ship")


async def test_a_growth_is_looked_for_in_each_stream() -> None:
    app = await app_with_two()
    assert (await reading(app, LagGrowth())).lags == {"bill": 42, "ship": 40}
    assert (await reading(app, LagGrowth(stream="ship"))).lags == {"ship": 40}


async def test_the_partition_that_is_stuck_for_longest_is_told_with_its_key() -> None:
    app = await app_with_two()
    found = await reading(app, StreamStuck())
    assert (found.value, found.what) == (70.0, "stream ship at s/0/2, key 'B',")
    found = await reading(app, StreamStuck(stream="bill"))
    assert (found.value, found.what) == (9.0, "stream bill at o/1/7, key 'A',")


async def test_a_key_is_told_without_secrets() -> None:
    app = App("memory://")
    key = "postgres://u:canary-53@db/x"
    await reported(app, stream_report("bill", part(0, in_flight=1, stuck_id="o/0/1", stuck_key=key, stuck_s=9.0)))
    assert "canary" not in (await reading(app, StreamStuck())).what


async def test_a_stream_that_nobody_reports_is_unknown_and_not_well() -> None:
    app = App("memory://")
    for rule in (StreamLag(), LagGrowth(), StreamStuck()):
        assert not (await reading(app, rule)).is_known
    app = await app_with_two()
    for rule in (StreamLag(stream="none"), LagGrowth(stream="none"), StreamStuck(stream="none")):
        assert not (await reading(app, rule)).is_known


async def test_where_all_partitions_move_nothing_is_stuck() -> None:
    app = App("memory://")
    await reported(app, stream_report("bill", part(0, lag=3)))
    found = await reading(app, StreamStuck())
    assert (found.is_known, found.value) == (True, 0.0)


async def test_a_servers_own_word_is_taken_where_no_worker_reports_a_stream() -> None:
    app = App("memory://")

    @app.stream("memory://orders", group="billing", name="bill")
    async def bill(order: dict[str, Any]) -> None:
        del order

    async with app.streams.source_of(app.stream_specs["bill"]) as source:
        await source.send([Outgoing("orders", b"{}")] * 3)
    assert (await reading(app, StreamLag())).value == 3
    await reported(app, stream_report("bill", part(0, lag=1)))
    assert (await reading(app, StreamLag())).value == 1, "a worker knows better"


async def test_a_notice_says_the_lag_of_all_streams() -> None:
    app = await app_with_two()
    assert metrics_of(await app.alerts.look(), None)["stream_lag"] == 82
    assert "stream_lag" not in metrics_of(await App("memory://").alerts.look(), None)
