"""What a slow reply grants: a limit is kept by the time at which runs begin, and nothing begins after a stop."""

from __future__ import annotations

import asyncio
from contextlib import closing
from itertools import pairwise

from holdfast import App
from holdfast.ports import Exchange, Exchanged
from holdfast.runtime.shared.names import LIMIT
from holdfast.runtime.worker import Worker
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.faulty import FaultyStore
from holdfast.types import JobRecord, JobState
from tests.simulation.loop import SimLoop
from tests.simulation.parts import SimClock, simulated

WINDOW_S = 2.0
SLOW_S = 1.5


class SlowOnce(FaultyStore):
    """The first reply about a limit takes a while."""

    is_slow = True

    async def exchange(self, exchange: Exchange) -> Exchanged:
        answer = await super().exchange(exchange)
        if self.is_slow and any(change.key.startswith(LIMIT) for change in exchange.changes):
            self.is_slow = False
            await asyncio.sleep(SLOW_S)
        return answer


def test_a_permit_whose_reply_is_slow_is_dated_anew() -> None:
    app, starts = App("memory://"), list[float]()

    @app.task(name="paced", breaker=None, rate=f"1/{WINDOW_S:g}s")
    async def paced() -> None:
        starts.append(asyncio.get_running_loop().time())

    async def story(loop: SimLoop) -> None:
        clock = SimClock(loop)
        store = MemoryStore(clock)
        await store.enqueue([paced.bind().job for _ in range(3)])
        worker = Worker(SlowOnce(store, clock), app.specs, clock=clock)
        running = loop.start(worker.run(), None)
        while len(starts) < 3:
            await asyncio.sleep(0.1)
        worker.stop()
        await running

    with closing(SimLoop()) as loop, simulated(0, loop):
        loop.run_until_complete(story(loop))
    gaps = [later - sooner for sooner, later in pairwise(starts)]
    assert starts[0] >= SLOW_S
    assert min(gaps) >= 0.9 * WINDOW_S, gaps


def test_a_worker_that_is_told_to_stop_while_it_asks_begins_nothing() -> None:
    app, starts = App("memory://"), list[float]()

    @app.task(name="paced", breaker=None, rate=f"1/{WINDOW_S:g}s")
    async def paced() -> None:
        starts.append(asyncio.get_running_loop().time())

    async def story(loop: SimLoop) -> JobRecord | None:
        clock = SimClock(loop)
        store = MemoryStore(clock)
        (job,) = await store.enqueue([paced.bind().job])
        worker = Worker(SlowOnce(store, clock), app.specs, clock=clock)
        running = loop.start(worker.run(), None)
        await asyncio.sleep(SLOW_S / 2)
        worker.stop()
        await running
        return (await store.get([job.id]))[0]

    with closing(SimLoop()) as loop, simulated(0, loop):
        record = loop.run_until_complete(story(loop))
    assert starts == []
    assert record is not None
    assert (record.state, record.attempt) == (JobState.QUEUED, 0)
