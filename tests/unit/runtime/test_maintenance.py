"""What a worker does for the store on a timer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.app import App
from holdfast.clock import SystemClock, new_token
from holdfast.errors import StoreError
from holdfast.ports import Claim, Delivery, Exchange, WorkerRecord
from holdfast.runtime.maintenance import Maintenance
from holdfast.runtime.runner import Room, Runner
from holdfast.runtime.schedules import Schedules
from holdfast.runtime.worker import shared_guards
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.types import Change


class LameStore(MemoryStore):
    """Fails to reclaim as long as it is told to, and counts."""

    fails = 0
    reclaims = 0
    prunes = 0

    async def reclaim(self, worker: str, token: bytes, limit: int) -> list[Delivery]:
        self.reclaims += 1
        if self.fails:
            self.fails -= 1
            raise StoreError("not now")
        return await super().reclaim(worker, token, limit)

    async def prune(self, limit: int) -> int:
        self.prunes += 1
        return await super().prune(limit)


class Upkeep:
    """A maintenance with all that it needs."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.app = App("memory://", clock=clock)
        self.store = LameStore(clock)
        self.app._store = self.store
        self.woken = 0

        @self.app.task(name="t")
        async def task() -> None: ...

        self.task = task

    def open(self) -> None:
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
            is_replaceable=False,
        )
        self.maintenance = Maintenance(
            self.store,
            self.runner,
            Schedules(self.store, self.app.scheduled.values()),
            worker="me",
            values={},
            every_s=1.0,
            clock=self.clock,
            on_work=self._wake,
        )

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
