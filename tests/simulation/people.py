"""Producers who insist, and operators who cancel and replay; they fail as workers do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from holdfast.errors import StoreAway
from holdfast.ports import Operation, Query
from holdfast.runtime.replays import Replays
from holdfast.types import Change, JobState, NewJob
from tests.simulation.shop import APP
from tests.simulation.wire import Wire

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")


class _Person:
    """Somebody with a machine and a way to the store."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.machine = world.new_machine()
        self._wire = Wire(world, self.machine)
        self._is_done = False

    @property
    def is_alive(self) -> bool:
        """Whether it has not come to its end."""
        return not self._is_done and not self.machine.is_dead

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer."""
        while True:
            try:
                return await call()
            except StoreAway:
                await asyncio.sleep(0.1 + 0.4 * self._world.dice.random())

    def _leave(self) -> None:
        self._is_done = True
        self._world.leave(self.machine)


class Producer(_Person):
    """Enqueues jobs, a few at a time; what is refused it sends again under the same ids."""

    def __init__(self, world: World, plan: random.Random, favourite: str) -> None:
        super().__init__(world)
        self._plan = random.Random(plan.random())
        self._count = plan.randint(4, 14)
        self._favourite = favourite
        """The task that most of its jobs are of; empty where there is none."""

    async def run(self) -> None:
        """Until all are acked."""
        world, plan = self._world, self._plan
        jobs = [self._job(n) for n in range(self._count)]
        while jobs:
            size = plan.choice([1, 1, 2, 4])
            some, jobs = jobs[:size], jobs[size:]
            world.attempted.extend(job.id for job in some)
            answers = await self._insist(lambda some=some: self._wire.enqueue(some))  # type: ignore[misc]
            world.acked.extend(answer.id for answer in answers)
            await asyncio.sleep(plan.expovariate(2.0))
        self._leave()

    def _job(self, n: int) -> NewJob:
        plan, tasks = self._plan, APP.tasks
        seconds = round(plan.choice([0.01, 0.1, 0.5, 3.0]) * plan.random(), 4)
        kind = plan.choices(["work", "doomed", "poison", "steps", "call", "paced"], [10, 3, 0.4, 3, 4, 3])[0]
        kind = plan.choice([kind, self._favourite, self._favourite]) or kind
        arguments: dict[str, Any] = {"number": n, "seconds": seconds}
        if kind in {"work", "steps", "paced"}:
            arguments["failures"] = plan.choice([0, 0, 0, 1, 2, 9])
        if kind == "doomed":
            arguments["is_hopeless"] = plan.random() < 0.3
        job = tasks[kind].bind(**arguments).job
        delay_s = plan.choice([0.0, 0.0, 0.0, 2.0 * plan.random()])
        key = None
        if plan.random() < 0.2:  # which another producer may have as well, with the same arguments
            key = f"key-{plan.randint(0, 3)}"
            job = replace(tasks["work"].bind(number=0, seconds=0.05, failures=0).job, id=job.id)
        return replace(job, delay_s=delay_s, idempotency_key=key)


class Operator(_Person):
    """Cancels what comes along, mends what is doomed, and replays it, sometimes twice."""

    def __init__(self, world: World, plan: random.Random) -> None:
        super().__init__(world)
        self._plan = random.Random(plan.random())

    async def run(self) -> None:
        """A few things, and the replay at last."""
        world, plan = self._world, self._plan
        for _ in range(plan.randint(0, 4)):
            await asyncio.sleep(plan.expovariate(0.5))
            if world.attempted:
                await self._cancel(plan.choice(world.attempted))
        await asyncio.sleep(plan.uniform(0.0, 6.0))
        world.is_fixed = True
        await self._replay()
        self._leave()

    async def _cancel(self, job: str) -> None:
        operation = Operation(change=Change.CANCEL, ids=[job], reason="by hand")
        try:
            (changed,) = await self._wire.change(operation)
        except StoreAway:
            return  # it may be so, or not
        if changed.is_done:
            self._world.cancelled.add(job)

    async def _replay(self) -> None:
        plan = self._plan
        number = plan.choice(["monday", "tuesday", "by hand"])
        if number == "by hand":
            await self._replay_by_hand(number)
            return
        options: dict[str, Any] = {"canary": plan.choice([0, 0, 1]), "rate": plan.choice([None, None, 5.0])}
        for _ in range(plan.choice([1, 2])):  # a double click
            self._world.replays.append(number)
            await self._insist(lambda: Replays(self._wire).start(Query(task="doomed"), replay_id=number, **options))
            await asyncio.sleep(plan.uniform(0.0, 1.0))

    async def _replay_by_hand(self, number: str) -> None:
        """Letters that somebody has picked, in one request, and perhaps in the same one again."""
        plan = self._plan
        query = Query(task="doomed", states=(JobState.DEAD_LETTER,))
        letters = (await self._insist(lambda: self._wire.find(query))).items
        operation = Operation(change=Change.REPLAY, ids=[one.id for one in letters], replay=number)
        for _ in range(plan.choice([1, 2])):  # a double click, or one who has had no answer
            self._world.replays.append(number)
            await self._insist(lambda: self._wire.change(operation))
            await asyncio.sleep(plan.uniform(0.0, 4.0))
