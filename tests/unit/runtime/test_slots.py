"""One task runs async jobs in turn while none of them waits: nobody may notice it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from holdfast import App, JobState, RetryPolicy
from holdfast.clock import SystemClock

SEEN: ContextVar[str] = ContextVar("SEEN", default="nothing")


def test_what_a_job_leaves_in_its_context_reaches_no_other() -> None:
    app = App("memory://")
    seen: list[str] = []

    @app.task(name="mark")
    async def mark(n: int) -> None:
        seen.append(SEEN.get())
        if n % 2:
            SEEN.set(f"job {n}")

    mark.enqueue_many([mark.bind(n) for n in range(50)])
    app.run_until_idle()
    assert seen == ["nothing"] * 50


def test_jobs_that_do_not_wait_share_a_task_and_those_that_wait_do_not() -> None:
    app = App("memory://")
    quick: set[int] = set()
    slow: set[int] = set()
    free = asyncio.Event()

    @app.task(name="run")
    async def run(is_slow: bool) -> None:
        (slow if is_slow else quick).add(id(asyncio.current_task()))
        if is_slow and len(slow) == 10:
            free.set()
        if is_slow:
            await free.wait()  # ends only when all ten have begun

    run.enqueue_many([run.bind(True) for _ in range(10)])
    app.run_until_idle()
    assert len(slow) == 10
    run.enqueue_many([run.bind(False) for _ in range(20)])
    app.run_until_idle()
    assert len(quick) < 20


def test_a_job_that_is_cancelled_by_its_time_limit_takes_no_other_along() -> None:
    app = App("memory://")
    done: list[int] = []

    @app.task(name="hang", timeout=0.05)
    async def hang(n: int) -> None:
        if n == 0:
            await asyncio.Event().wait()
        done.append(n)

    hang.enqueue_many([hang.bind(n) for n in range(20)])
    app.run_until_idle()
    assert sorted(done) == list(range(1, 20))


def test_a_job_that_cancels_its_own_task_takes_no_other_along() -> None:
    app = App("memory://")
    done: list[int] = []

    @app.task(name="end", retry=RetryPolicy(max_retries=0))
    async def end(n: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        if n == 0:
            task.cancel()  # and it ends before it could hear of it
        else:
            await SystemClock().asleep(0)
        done.append(n)

    jobs = end.enqueue_many([end.bind(n) for n in range(20)])
    app.run_until_idle()
    assert sorted(done) == list(range(20))
    assert {job.refresh().record.state for job in jobs} == {JobState.COMPLETED}
