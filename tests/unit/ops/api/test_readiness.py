"""Whether a server is ready: quickly answered, one call for all who ask, and with the worker of the same process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.errors import StoreAway
from holdfast.ops.api.live import REACH_S
from holdfast.ops.api.serving import ApiServer
from holdfast.ops.api.sharing import Shared
from holdfast.ops.commands import dev
from holdfast.testing import ManualClock
from holdfast.testing.faulty import FaultyStore
from tests.unit.ops.api.shopfront import Shopfront, new_app, turns


@pytest.fixture
def still() -> ManualClock:
    return ManualClock(auto=False)


@pytest.fixture
async def front(still: ManualClock) -> AsyncIterator[Shopfront]:
    app = new_app(clock=still)
    yield Shopfront(app)
    await app.aclose()


async def until_waiting(store: FaultyStore, verb: str) -> None:
    while not store.waiting[verb]:
        await asyncio.sleep(0)  # noqa: TID251 - only lets others run


async def test_all_who_ask_while_the_store_hangs_are_answered_after_two_seconds(
    front: Shopfront, still: ManualClock
) -> None:
    store = front.faulty()
    store.fail(fault="hang")
    asking = [asyncio.create_task(front.client.get("/health/ready")) for _ in range(5)]
    await until_waiting(store, "exchange")
    await turns(200)
    still.advance(REACH_S - 0.1)
    await turns()
    assert not any(one.done() for one in asking)
    still.advance(0.1)
    answers = await asyncio.gather(*asking)
    assert [answer.status_code for answer in answers] == [503] * 5
    assert answers[0].json() == {"status": "failed", "reason": "the store is away"}
    assert store.calls["exchange"] == 1
    store.mend()
    assert (await front.client.get("/health/ready")).status_code == 200


async def test_a_health_check_that_hangs_does_not_matter(front: Shopfront) -> None:
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    front.app.health_check("slow", hang, timeout=600.0)
    assert (await front.get("/health/ready"))["status"] == "ok"


async def test_what_was_seen_half_a_second_ago_still_counts(front: Shopfront, still: ManualClock) -> None:
    store = front.faulty()
    for _ in range(3):
        await front.get("/health/ready")
    assert store.calls["exchange"] == 1
    store.fail()
    still.advance(0.5)
    assert (await front.client.get("/health/ready")).status_code == 503


async def test_in_dev_a_server_is_ready_when_the_worker_beside_it_can_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    app = new_app()
    worker = app.worker()
    monkeypatch.setattr("sys.argv", ["dev", "shop:app", "{}", "0"])
    server = dev._beside(app, worker)
    assert isinstance(server, ApiServer)
    with server._socket:
        front = Shopfront(app)
        front.server.worker = server._server.worker
        answer = await front.client.get("/health/ready")
        assert (answer.status_code, answer.json()["reason"]) == (503, "the worker: it has not begun")
        running = asyncio.create_task(worker.run())
        while not worker.is_ready():
            await asyncio.sleep(0)  # noqa: TID251 - only lets others run
        assert (await front.get("/health/ready"))["status"] == "ok"
        worker.stop()
        answer = await front.client.get("/health/ready")
        assert (answer.status_code, answer.json()["reason"]) == (503, "the worker: it is draining")
        await running
    await app.aclose()


async def test_all_who_ask_for_the_overview_share_one_look_and_its_failure(front: Shopfront) -> None:
    store = front.faulty()
    store.fail("exchange", fault="hang")
    asking = [asyncio.create_task(front.client.get("/overview")) for _ in range(5)]
    await until_waiting(store, "exchange")
    await turns(200)
    before = store.calls["exchange"]
    store.mend()
    assert [answer.status_code for answer in await asyncio.gather(*asking)] == [503] * 5
    assert store.calls["exchange"] == before
    assert (await front.client.get("/overview")).status_code == 200


# ---------------------------------------------------------------- one call for all


class Calls:
    """A call that ends when it is told to, with what it is told."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[str]] = []
        self.shared = Shared(self._call)

    async def _call(self) -> str:
        self.begun.append(asyncio.get_running_loop().create_future())
        return await self.begun[-1]

    def ask(self, **how: Any) -> asyncio.Task[str]:
        return asyncio.ensure_future(self.shared.ask(**how))


async def test_who_wants_it_fresh_waits_for_a_call_that_begins_later() -> None:
    calls = Calls()
    first = calls.ask()
    await turns()
    fresh = [calls.ask(is_fresh=True) for _ in range(3)]
    await turns()
    assert len(calls.begun) == 1
    calls.begun[0].set_result("old")
    await turns()
    assert len(calls.begun) == 2, "one for all of them"
    calls.begun[1].set_result("new")
    assert [await first, *[await one for one in fresh]] == ["old", "new", "new", "new"]


async def test_a_failure_is_that_of_all_who_wait_also_for_a_later_call() -> None:
    calls = Calls()
    asking = [calls.ask(), calls.ask()]
    await turns()
    asking.append(calls.ask(is_fresh=True))
    await turns()
    calls.begun[0].set_exception(StoreAway("gone"))
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(one) for one in found] == [StoreAway] * 3
    assert len(calls.begun) == 1


async def test_who_goes_away_leaves_the_call_to_the_others() -> None:
    calls = Calls()
    one, other = calls.ask(), calls.ask()
    await turns()
    one.cancel()
    await turns()
    calls.begun[0].set_result("here")
    assert await other == "here"
