"""A run that has its permit and waits for a place begins under another one: limits go by when runs begin."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from holdfast import App
from holdfast.errors import StoreAway
from holdfast.ports import Exchange, Exchanged
from holdfast.runtime.runner import Room
from holdfast.runtime.shared.names import LIMIT
from holdfast.runtime.worker import Worker, WorkerSettings
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.faulty import FaultyStore
from tests.simulation.loop import SimLoop
from tests.simulation.parts import SimClock, simulated

WINDOW_S = 2.0
LONG_S = 0.7


class AwayOnce(FaultyStore):
    """Takes a moment for requests about a limit; may be away for the second one, which asks for another permit."""

    asked = 0
    is_away = False

    async def exchange(self, exchange: Exchange) -> Exchanged:
        is_asking = exchange.claim is None and not exchange.settlements
        if is_asking and any(change.key.startswith(LIMIT) for change in exchange.changes):
            self.asked += 1
            await asyncio.sleep(0.05)  # meanwhile others have taken the places
            if self.is_away and self.asked == 2:
                raise StoreAway("it is away for a moment")
        return await super().exchange(exchange)


@pytest.mark.parametrize("is_away", [False, True])
def test_a_place_that_comes_late_lets_no_limit_be_passed(is_away: bool, caplog: pytest.LogCaptureFixture) -> None:
    app, starts, done = App("memory://"), list[float](), list[float]()

    @app.task(name="paced", breaker=None, rate=f"1/{WINDOW_S:g}s")
    async def paced() -> None:
        starts.append(asyncio.get_running_loop().time())

    @app.task(name="other", breaker=None)
    async def other(seconds: float) -> None:
        await asyncio.sleep(seconds)
        done.append(seconds)

    async def story(loop: SimLoop) -> None:
        clock = SimClock(loop)
        store = MemoryStore(clock)
        asked = AwayOnce(store, clock)
        asked.is_away = is_away
        worker = Worker(asked, app.specs, clock=clock, settings=WorkerSettings(room=Room(concurrency=2)))
        running = loop.start(worker.run(), None)
        await store.enqueue([other.bind(0.001).job for _ in range(300)])
        while len(done) < 300:  # a worker that is quick claims more than it has places
            await asyncio.sleep(0.001)
        await store.enqueue([paced.bind().job, *(other.bind(LONG_S).job for _ in range(3)), paced.bind().job])
        while len(starts) < 2:
            await asyncio.sleep(0.1)
        worker.stop()
        await running

    with closing(SimLoop()) as loop, simulated(0, loop):
        loop.run_until_complete(story(loop))
    assert starts[0] >= LONG_S, "its place did not come late: this shows nothing"
    assert starts[1] - starts[0] >= 0.9 * WINDOW_S
    assert ("no permits to be had: it is away" in caplog.text) is is_away
