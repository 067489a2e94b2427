"""A store that was set back under its workers, by a failover that lost writes or by a backup that was restored."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import Permanent
from holdfast.ports import Enqueued, Exchange, Exchanged, Operation, Query, ValueChange
from holdfast.runtime.replay import ReplayState
from holdfast.runtime.replays import Replays
from holdfast.runtime.schedules import Schedule, Schedules, tick_id
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.values import ValueTable
from holdfast.testing import ManualClock
from holdfast.testing.faulty import FaultyStore
from holdfast.types import Change, JobState, NewJob
from tests.unit.runtime.test_outages import Scene

NOON = 1_704_888_000.0


class Replicated(MemoryStore):
    """Its values may be those of a standby, which lacks the last moments."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.era = 1
        self.exchanges = 0
        self.enqueues = 0

    def standby(self) -> ValueTable:
        return copy.deepcopy(self._values)

    def fail_over(self, standby: ValueTable, *, is_told: bool = True) -> None:
        self._values = standby
        self.era += is_told

    async def write(self, n: int) -> None:
        """So many changes of a value that nobody cares for."""
        for _ in range(n):
            known = {one.key: one.version for one in (await super().exchange(Exchange())).values}
            await super().exchange(Exchange(changes=[ValueChange("filler", known.get("filler", 0), b"1")]))

    async def enqueue(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        self.enqueues += 1
        return await super().enqueue(jobs, connection)

    async def exchange(self, exchange: Exchange) -> Exchanged:
        self.exchanges += 1
        return replace(await super().exchange(exchange), era=self.era)


# ---------------------------------------------------------------- workers


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def server(scene: Scene) -> Replicated:
    server = Replicated(scene.clock)
    scene.store = FaultyStore(server, scene.clock)
    scene.app._store = scene.store
    return server


async def test_a_queue_that_was_paused_after_a_failover_is_not_claimed_from(scene: Scene, server: Replicated) -> None:
    @scene.app.task(breaker=None)
    async def work() -> None: ...

    await server.write(1)
    standby = server.standby()
    await server.write(1)
    async with scene.worker() as (worker, _):
        await scene.let_pass(1.0)
        server.fail_over(standby)
        await scene.app.queues.apause("default")
        await scene.let_pass(3.0)
        job = await work.aenqueue()
        await scene.let_pass(3.0)
        assert (await scene.record(job)).state is JobState.QUEUED
        assert worker.guards.seen == 2


async def dead_letters(scene: Scene, n: int) -> None:
    """A worker's task that fails for good, and letters of it; what is replayed completes."""
    is_mended = False

    @scene.app.task(breaker=None, name="pay")
    async def pay() -> None:
        if not is_mended:
            raise Permanent("no")

    await scene.app.aenqueue_many([pay.bind() for _ in range(n)])
    async with scene.worker():
        await scene.let_pass(3.0)
    assert len((await letters(scene)).items) == n
    is_mended = True


async def letters(scene: Scene) -> Any:
    return await scene.store.inner.find(Query(states=(JobState.DEAD_LETTER,)))


async def test_a_replay_that_began_after_a_failover_is_driven(scene: Scene, server: Replicated) -> None:
    await dead_letters(scene, 2)
    await server.write(1)
    standby = server.standby()
    await server.write(3)
    async with scene.worker():
        await scene.let_pass(1.0)
        server.fail_over(standby)
        replay = await Replays(scene.store).start(Query())
        await scene.let_pass(5.0)
        assert (await Replays(scene.store).show(replay.id)).state is ReplayState.DONE
        assert not (await letters(scene)).items


async def test_a_replay_that_the_store_has_lost_is_forgotten(scene: Scene, server: Replicated) -> None:
    await dead_letters(scene, 2)
    standby = server.standby()
    async with scene.worker() as (worker, _):
        await Replays(scene.store).start(Query(), rate=1e-6)
        await scene.let_pass(3.0)
        assert worker.is_replaying("pay")
        server.fail_over(standby)
        await scene.let_pass(3.0)
        assert not worker.is_replaying("pay")


async def test_a_replay_whose_progress_was_lost_goes_on_though_nothing_told_of_the_failover(
    scene: Scene, server: Replicated
) -> None:
    await dead_letters(scene, 3)
    async with scene.worker():
        replay = await Replays(scene.store).start(Query(), rate="1/second")
        standby = server.standby()
        await scene.let_pass(1.5)
        assert 0 < (await Replays(scene.store).show(replay.id)).sent < 3
        server.fail_over(standby, is_told=False)
        await server.write(20)
        await scene.let_pass(10.0)
        assert (await Replays(scene.store).show(replay.id)).state is ReplayState.DONE
        assert not (await letters(scene)).items


# ---------------------------------------------------------------- schedules


@pytest.fixture
def store(clock: ManualClock) -> Replicated:
    return Replicated(clock)


def hourly(store: Replicated) -> Schedules:
    return Schedules(store, [Schedule(name="report", task="send_report", timing=3600)])


@pytest.mark.parametrize("is_told", [False, True])
async def test_a_tick_is_enqueued_once_after_the_store_was_set_back(store: Replicated, is_told: bool) -> None:
    schedules = hourly(store)
    await schedules.fire(NOON + 10)
    standby = store.standby()
    assert await schedules.fire(NOON + 3600)
    store.fail_over(standby, is_told=is_told)
    await store.write(5)
    assert await schedules.fire(NOON + 7200) == [tick_id("report", NOON + 7200)]
    store.enqueues = 0
    for second in range(1, 10):
        assert await schedules.fire(NOON + 7200 + second) == []
    assert store.enqueues <= (0 if is_told else 1)
    exchanges = store.exchanges
    assert await schedules.fire(NOON + 7300) == []
    assert store.exchanges == exchanges, "what was fired is known"


async def test_a_tick_whose_job_was_pruned_is_not_run_again(store: Replicated) -> None:
    schedules = hourly(store)
    await schedules.fire(NOON + 10)
    standby = store.standby()
    await schedules.fire(NOON + 3600)
    store.fail_over(standby, is_told=False)
    await store.write(5)
    ran = [*await schedules.fire(NOON + 7200), *await schedules.fire(NOON + 7201)]
    for change in (Change.CANCEL, Change.REMOVE):
        await store.change(Operation(change=change, ids=ran))
    ran += await schedules.fire(NOON + 7202)
    assert ran == [tick_id("report", NOON + 7200)]


async def test_a_pause_that_was_made_after_a_failover_is_heard_before_anything_is_fired(store: Replicated) -> None:
    schedules = hourly(store)
    await schedules.fire(NOON + 10)
    standby = store.standby()
    await store.write(1)
    await schedules.fire(NOON + 3600)
    store.fail_over(standby)
    await hourly(store).pause("report", NOON + 3700)
    assert await schedules.fire(NOON + 7200) == []


async def test_a_schedule_can_be_steered_after_the_store_was_set_back(store: Replicated) -> None:
    schedules = hourly(store)
    await schedules.fire(NOON + 10)
    standby = store.standby()
    await schedules.fire(NOON + 3600)
    store.fail_over(standby, is_told=False)
    await store.write(5)
    await schedules.pause("report", NOON + 3700)
    (status,) = await hourly(store).list(NOON + 3700)
    assert status.is_paused
