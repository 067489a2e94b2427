"""A worker that always has something else to run comes to what is limited all the same."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App
from holdfast.clock import SystemClock
from holdfast.runtime.runner import Room
from holdfast.runtime.worker import Worker, WorkerSettings

DEPTH = 3_000
JOBS = 20
CLOCK = SystemClock()
WINDOW_S = 1.0


@pytest.mark.parametrize("is_async", [True, False])
async def test_limited_jobs_are_run_by_a_worker_that_is_never_idle(is_async: bool) -> None:
    app, limited, others = App("memory://"), list[int](), list[int]()
    if is_async:

        @app.task(name="limited", breaker=None, rate="5/1s")
        async def limited_async(number: int) -> None:
            limited.append(number)

        @app.task(name="other", breaker=None)
        async def other_async() -> None:
            others.append(0)
            await CLOCK.asleep(0)

    else:

        @app.task(name="limited", breaker=None, rate="5/1s")
        def limited_sync(number: int) -> None:
            limited.append(number)

        @app.task(name="other", breaker=None)
        def other_sync() -> None:
            others.append(0)
            CLOCK.sleep(0.001)

    tasks, store, sent = app.tasks, app.store, DEPTH
    await store.enqueue([tasks["other"].bind().job for _ in range(DEPTH)])
    await store.enqueue([tasks["limited"].bind(number).job for number in range(JOBS)])
    worker = Worker(store, app.specs)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        while len(limited) < 10:
            more = len(others) + DEPTH - sent
            if more > DEPTH // 4:
                await store.enqueue([tasks["other"].bind().job for _ in range(more)])
                sent += more
            assert sent < 40 * DEPTH, "it is passed over by what came after it"
            await CLOCK.asleep(0.01)
    worker.stop()
    await running
    assert limited[:10] == list(range(10))


async def test_a_thread_that_is_free_late_lets_no_limit_be_passed() -> None:
    app, starts, done = App("memory://"), list[float](), list[float]()

    @app.task(name="limited", breaker=None, rate=f"1/{WINDOW_S:g}s")
    def limited() -> None:
        starts.append(CLOCK.monotonic())

    @app.task(name="other", breaker=None)
    def other(seconds: float) -> None:
        CLOCK.sleep(seconds)
        done.append(seconds)

    store, room = app.store, Room(concurrency=2, threads=1)
    worker = Worker(store, app.specs, settings=WorkerSettings(room=room))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        await store.enqueue([other.bind(0.001).job for _ in range(300)])
        while len(done) < 300:  # a worker that is quick claims more than it has places
            await CLOCK.asleep(0.001)
        await store.enqueue([limited.bind().job, *(other.bind(0.3).job for _ in range(3)), limited.bind().job])
        while len(starts) < 2:
            await CLOCK.asleep(0.01)
    worker.stop()
    await running
    assert starts[1] - starts[0] >= 0.9 * WINDOW_S
