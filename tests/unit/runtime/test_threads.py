"""Sync jobs on threads: all of them run, none is begun twice, and long ones do not hold up the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from holdfast.clock import SystemClock
from holdfast.runtime.threads import Threads
from holdfast.testing import ManualClock

NUMBER: ContextVar[int] = ContextVar("number", default=0)


class Pool:
    """Threads that keep what is done."""

    def __init__(self, size: int, run: Callable[[int], None]) -> None:
        self.done: list[int] = []
        self.batches = 0
        self.threads: Threads[int] = Threads(size, run, self._on_done, SystemClock())

    def _on_done(self, done: list[int]) -> None:
        self.batches += 1
        self.done += done


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():
            await SystemClock().asleep(0.001)


async def test_everything_submitted_is_run_once_and_handed_back_in_batches() -> None:
    ran: list[int] = []
    pool = Pool(4, ran.append)
    for start in range(0, 1000, 100):
        pool.threads.submit(list(range(start, start + 100)))
    await until(lambda: len(pool.done) == 1000)
    assert sorted(ran) == sorted(pool.done) == list(range(1000))
    assert pool.batches < 1000
    pool.threads.close()


async def test_work_waits_while_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = 0

    def refuse(_: threading.Thread) -> None:
        nonlocal refused
        refused += 1
        raise RuntimeError("can't start new thread")

    pool = Pool(2, lambda _: None)
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", refuse)
        pool.threads.submit([1, 2, 3])
        await until(lambda: refused > 3)
    await until(lambda: sorted(pool.done) == [1, 2, 3])
    assert [record.getMessage() for record in caplog.records] == [
        "no thread can be started for jobs, which wait: can't start new thread"
    ]
    pool.threads.close()


async def test_what_is_done_is_handed_back_outside_of_the_context_it_ran_in() -> None:
    seen: list[int] = []

    class Looking(Pool):
        def _on_done(self, done: list[int]) -> None:
            seen.append(NUMBER.get())
            super()._on_done(done)

    pool = Looking(1, NUMBER.set)  # type: ignore[arg-type]
    pool.threads.submit([1, 2])
    await until(lambda: len(pool.done) == 2)
    assert set(seen) == {0}
    pool.threads.close()


async def test_a_job_that_blocks_does_not_hold_up_the_rest_of_its_batch() -> None:
    go = threading.Event()
    pool = Pool(2, lambda n: None if n else (go.wait(5), None)[1])
    pool.threads.submit([0, 1, 2, 3])
    await until(lambda: len(pool.done) == 3)
    assert (sorted(pool.done), pool.threads.running) == ([1, 2, 3], {0})
    go.set()
    await until(lambda: len(pool.done) == 4)
    pool.threads.close()


async def test_blocking_jobs_run_on_every_thread_and_on_no_more() -> None:
    go, lock = threading.Event(), threading.Lock()
    running, most = 0, 0

    def block(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        go.wait(5)
        with lock:
            running -= 1

    pool = Pool(3, block)
    pool.threads.submit(list(range(9)))
    await until(lambda: running == 3)
    assert pool.threads.waiting == 6
    go.set()
    await until(lambda: len(pool.done) == 9)
    assert most == 3
    pool.threads.close()


async def test_threads_that_rest_are_woken_again() -> None:
    pool = Pool(2, lambda _: None)
    for n in range(50):
        pool.threads.submit([n])
        await until(lambda n=n: len(pool.done) == n + 1)  # type: ignore[misc]
    assert pool.done == list(range(50))
    pool.threads.close()


async def test_what_was_not_begun_can_be_taken_back() -> None:
    go = threading.Event()
    pool = Pool(1, lambda _: (go.wait(5), None)[1])
    pool.threads.submit([1, 2, 3])
    await until(lambda: pool.threads.running == {1})
    assert pool.threads.take_back() == [2, 3]
    assert (pool.threads.take_back(), pool.threads.waiting) == ([], 0)
    go.set()
    await until(lambda: pool.done == [1])
    pool.threads.close()


async def test_a_closed_pool_lets_its_threads_go_and_begins_nothing_more() -> None:
    before = threading.active_count()
    go = threading.Event()
    ran: list[int] = []

    def work(n: int) -> None:
        ran.append(n)
        go.wait(5)

    pool = Pool(2, work)
    pool.threads.submit([1, 2, 3])
    await until(lambda: len(ran) == 2)
    pool.threads.close()
    go.set()
    await until(lambda: threading.active_count() == before)
    assert sorted(ran) == [1, 2]


async def test_it_learns_how_long_jobs_take() -> None:
    pause = threading.Event()
    pool = Pool(1, lambda _: (pause.wait(0.005), None)[1])
    before = pool.threads.busy_s
    pool.threads.submit(list(range(10)))
    await until(lambda: len(pool.done) == 10)
    assert before < pool.threads.busy_s < 0.05
    pool.threads.close()


async def test_while_all_threads_are_busy_none_is_expected_to_be_free_before_long() -> None:
    go, clock = threading.Event(), ManualClock()
    threads: Threads[int] = Threads(2, lambda _: (go.wait(5), None)[1], lambda _: None, clock)
    threads.submit([1])
    await until(lambda: len(threads.running) == 1)
    clock.advance(40)
    assert threads.expected_s == threads.busy_s, "there is a free one"
    threads.submit([2])
    await until(lambda: len(threads.running) == 2)
    clock.advance(3)
    assert threads.expected_s == 3.0
    go.set()
    await until(lambda: not threads.running)
    threads.close()
