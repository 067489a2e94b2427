"""What a worker does for the store on a timer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.app import App
from holdfast.clock import SystemClock, new_token
from holdfast.errors import StoreError
from holdfast.ports import Claim, Delivery, Exchange, Query, Value, WorkerRecord
from holdfast.runtime.counts import Counts
from holdfast.runtime.maintenance import Maintenance
from holdfast.runtime.outage import Outage
from holdfast.runtime.replay import PREFIX, ReplayState
from holdfast.runtime.replays import Replays
from holdfast.runtime.runner import Room, Runner
from holdfast.runtime.schedules import Schedules
from holdfast.runtime.worker import shared_guards
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.types import Change, JobState


class LameStore(MemoryStore):
    """Fails to reclaim, or loses the answer, as long as it is told to, and counts."""

    fails = 0
    losses = 0
    reclaims = 0
    prunes = 0
    prune_s = 0.0
    """How long it takes to prune; then there is always more."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.tokens: list[bytes] = []

    async def reclaim(self, worker: str, token: bytes, limit: int) -> list[Delivery]:
        self.reclaims += 1
        self.tokens.append(token)
        if self.fails:
            self.fails -= 1
            raise StoreError("not now")
        answer = await super().reclaim(worker, token, limit)
        if self.losses:
            self.losses -= 1
            raise StoreError("the answer was lost")
        return answer

    async def prune(self, limit: int) -> int:
        self.prunes += 1
        if self.prune_s:
            self.clock.advance(self.prune_s)
            return limit
        return await super().prune(limit)


class Upkeep:
    """A maintenance with all that it needs."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.app = App("memory://", clock=clock)
        self.store = LameStore(clock)
        self.app._store = self.store
        self.values: dict[str, Value] = {}
        self.woken = 0
        self.doubts = 0

        @self.app.task(name="t")
        async def task() -> None: ...

        self.task = task

    def open(self, draw: float = 0.0) -> None:
        self.runner = Runner(
            store=self.store,
            specs=self.app.specs,
            guards=shared_guards(self.app.specs),
            worker="me",
            room=Room(),
            clock=self.clock,
            rng=lambda: 0.5,
            target="",
            lease_s=30.0,
            on_settled=lambda: None,
            on_values=lambda reply: None,
            is_replaceable=False,
            counts=Counts(),
            asking=asyncio.Lock(),
        )
        self.maintenance = Maintenance(
            self.store,
            self.runner,
            Schedules(self.store, self.app.scheduled.values()),
            worker="me",
            values=self.values,
            every_s=1.0,
            clock=self.clock,
            outage=Outage(self.clock, lambda: 1.0),
            on_work=self._wake,
            on_doubt=self._doubt,
            rng=lambda: draw,
        )

    async def _doubt(self) -> None:
        self.doubts += 1

    def _wake(self) -> None:
        self.woken += 1

    async def claim(self, worker: str) -> Any:
        await self.store.heartbeat(WorkerRecord(id=worker, lease_s=30.0))
        reply = await self.store.exchange(Exchange(claim=Claim(worker=worker, token=new_token(), limit=100)))
        self.runner.set_now(reply.now)
        return reply.deliveries


@pytest.fixture
async def upkeep(clock: ManualClock) -> AsyncIterator[Upkeep]:
    upkeep = Upkeep(clock)
    upkeep.open()
    yield upkeep
    await upkeep.runner.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():
            await SystemClock().asleep(0.001)


async def test_the_jobs_of_dead_workers_are_taken_back_and_told_of(upkeep: Upkeep) -> None:
    await upkeep.task.aenqueue()
    await upkeep.claim("dead")
    await upkeep.store.heartbeat(WorkerRecord(id="me", lease_s=1000.0))
    await upkeep.maintenance.once()
    assert (upkeep.runner.settlements, upkeep.woken) == ([], 0)
    upkeep.clock.advance(31.0)
    await upkeep.maintenance.once()
    assert [one.change for one in upkeep.runner.settlements] == [Change.RELEASE]
    assert upkeep.woken == 1


async def test_schedules_are_fired_by_wall_time(clock: ManualClock) -> None:
    upkeep = Upkeep(clock)
    upkeep.app.schedule(upkeep.task.bind(), every=60)
    upkeep.open()
    await upkeep.maintenance.once()
    clock.advance(61.0)
    await upkeep.maintenance.once()
    await upkeep.maintenance.once()
    assert len(await upkeep.claim("me")) == 1
    await upkeep.runner.close()


async def test_records_are_pruned_once_a_minute(upkeep: Upkeep) -> None:
    for _ in range(10):
        await upkeep.maintenance.once()
        upkeep.clock.advance(13.0)
    assert upkeep.store.prunes == 1
    upkeep.clock.advance(60.0)
    await upkeep.maintenance.once()
    assert upkeep.store.prunes == 2


async def test_a_fleet_whose_workers_all_die_young_prunes_too(clock: ManualClock) -> None:
    upkeep = Upkeep(clock)
    for draw in (0.1, 0.5, 0.9):  # where in the minute each life begins
        upkeep.open(draw)
        await upkeep.maintenance.once()
        clock.advance(10.0)
        await upkeep.maintenance.once()
        await upkeep.runner.close()
    assert upkeep.store.prunes == 1


async def test_pruning_goes_on_with_every_round_while_there_is_more_and_keeps_no_other_part_waiting(
    upkeep: Upkeep,
) -> None:
    upkeep.store.prune_s = 0.3
    upkeep.clock.advance(60.0)
    async with asyncio.timeout(5):
        await upkeep.maintenance.once()
        assert (upkeep.store.prunes, upkeep.store.reclaims) == (4, 1), "as long as a round lasts"
        await upkeep.maintenance.once()
    assert (upkeep.store.prunes, upkeep.store.reclaims) == (8, 2)
    upkeep.store.prune_s = 0.0
    for _ in range(3):
        await upkeep.maintenance.once()
    assert upkeep.store.prunes == 9, "once there is no more, again in a minute"


async def test_a_store_error_is_borne_and_everything_is_tried_again(upkeep: Upkeep) -> None:
    upkeep.store.fails = 3
    running = asyncio.create_task(upkeep.maintenance.run())
    await until(lambda: upkeep.store.reclaims >= 5)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_error_nobody_thought_of_does_not_end_the_upkeep(upkeep: Upkeep) -> None:
    broken = [ZeroDivisionError(), ZeroDivisionError()]

    async def fire(wall_now: float) -> list[str]:
        if broken:
            raise broken.pop()
        return []

    upkeep.maintenance._schedules.fire = fire  # type: ignore[method-assign]
    running = asyncio.create_task(upkeep.maintenance.run())
    await until(lambda: running.done() or upkeep.store.reclaims >= 5)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_a_lost_answer_to_a_reclaim_brought_is_asked_for_again(upkeep: Upkeep) -> None:
    job = await upkeep.task.aenqueue()
    await upkeep.claim("dead")
    await upkeep.store.heartbeat(WorkerRecord(id="me", lease_s=1000.0))
    upkeep.clock.advance(31.0)
    upkeep.store.losses = 2
    for _ in range(2):
        with pytest.raises(StoreError, match="was lost"):
            await upkeep.maintenance.once()
    await upkeep.maintenance.once()
    await upkeep.maintenance.once()
    first, second, third, fourth = upkeep.store.tokens
    assert first == second == third != fourth
    assert [(one.id, one.change) for one in upkeep.runner.settlements] == [(job.id, Change.RELEASE)]
    await upkeep.store.exchange(Exchange(settlements=upkeep.runner.settlements))
    assert (await job.arefresh()).state is JobState.QUEUED


async def test_a_part_that_fails_does_not_keep_the_others_from_their_work(upkeep: Upkeep) -> None:
    async def fire(wall_now: float) -> list[str]:
        raise ZeroDivisionError

    upkeep.maintenance._schedules.fire = fire  # type: ignore[method-assign]
    upkeep.clock.advance(61.0)
    await upkeep.maintenance.once()
    assert upkeep.store.prunes == 1


async def test_a_replay_that_cannot_be_read_stops_neither_the_others_nor_the_pruning(upkeep: Upkeep) -> None:
    replay = await Replays(upkeep.store).start(Query())
    upkeep.values |= {
        f"{PREFIX}newer": Value(f"{PREFIX}newer", 1, b'{"id":"newer","query":{},"created_at":1,"state":"draining"}'),
        f"{PREFIX}torn": Value(f"{PREFIX}torn", 2, b'{"id":'),
    }
    upkeep.values |= {one.key: one for one in (await upkeep.store.exchange(Exchange())).values}
    upkeep.clock.advance(61.0)
    await upkeep.maintenance.once()
    assert (await Replays(upkeep.store).show(replay.id)).state is ReplayState.DONE
    assert upkeep.store.prunes == 1
