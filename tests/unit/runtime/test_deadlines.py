"""Every time limit under one timer: each is told of in its time, and what is over is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.app import App
from holdfast.runtime.deadlines import Deadlines
from holdfast.runtime.worker import WorkerSettings
from holdfast.testing import ManualClock

HOUR_S = 3600.0


async def turns(n: int = 5) -> None:
    """Let the timer run."""
    for _ in range(n):
        await asyncio.sleep(0)  # noqa: TID251 - gives way, and waits for nothing


async def test_each_thing_is_told_of_at_its_deadline_earliest_first(clock: ManualClock) -> None:
    told: list[str] = []
    deadlines = Deadlines[str](clock, told.append, lambda _: False)
    deadlines.add("late", HOUR_S)
    deadlines.add("later", 2 * HOUR_S)
    await turns()
    assert told == []
    clock.advance(3 * HOUR_S)
    deadlines.add("latest", 3 * HOUR_S)
    deadlines.add("early", 0.0)  # the timer is set anew: everything is due by now
    await turns()
    assert told == ["early", "late", "later", "latest"]
    deadlines.close()


async def test_what_is_over_is_forgotten_long_before_its_deadline(clock: ManualClock) -> None:
    over: set[int] = set()
    deadlines = Deadlines[int](clock, lambda _: None, over.__contains__)
    longest = 0
    for n in range(10_000):
        deadlines.add(n, HOUR_S)
        over.add(n)
        longest = max(longest, len(deadlines._heap))
    assert longest <= 1_000
    deadlines.close()


async def test_what_still_runs_is_kept_however_much_is_over(clock: ManualClock) -> None:
    told: list[int] = []
    deadlines = Deadlines[int](clock, told.append, lambda n: n % 4 != 0)
    for n in range(10_000):
        deadlines.add(n, HOUR_S + n)
    assert len(deadlines._heap) <= 2 * 2_500 + 1_000
    clock.advance(HOUR_S + 10_000)
    deadlines.add(-4, 0.0)
    await turns()
    assert [n for n in told if n % 4 == 0] == [-4, *range(0, 10_000, 4)]
    deadlines.close()


@pytest.mark.parametrize("is_async", [False, True])
async def test_short_runs_with_a_long_limit_leave_nothing_behind(is_async: bool) -> None:
    app = App("memory://")

    def work() -> None: ...

    async def awork() -> None: ...

    task = app.task(name="t", timeout=HOUR_S, breaker=None)(awork if is_async else work)
    await app.aenqueue_many([task.bind() for _ in range(4_000)])
    worker = app.worker(WorkerSettings())
    await worker._open()
    async with asyncio.timeout(30):
        while (await app.astats()).jobs != {"completed": 4_000}:
            await worker._turn()
            await turns()
    assert len(worker.runner._deadlines._heap) <= 2_000
    await worker._close()
