"""Holdfast as a user has it: tasks, `enqueue` in all its forms, and `holdfast worker` in processes of their own."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import repeat
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jobs_timing import BATCH, Worker, cpu_s, drain_rate, pauses, peak_mb, rate_of, run, serve, started

from holdfast.ports import Query
from holdfast.stores.sqlite import SqliteStore
from holdfast.types import JobState

COROUTINES = 100
THREADS = 16
FLEET = 4
FLEET_DELAY_S = 6.0
"""The jobs of the fleet are due when all its workers are up, so that none has a start over the others."""


def url_of(folder: str | Path) -> str:
    return f"sqlite:///{Path(folder).resolve() / 'holdfast.db'}"


# ---- enqueueing, each in a process of its own


def _tasks(folder: str) -> Any:
    os.environ["HOLDFAST_URL"] = url_of(folder)
    import jobs_tasks

    jobs_tasks.app.stats()  # makes the file
    return jobs_tasks


def enqueue(folder: str, count: int) -> float:
    """Jobs a second, one by one, from one sync caller."""
    noop = _tasks(folder).noop

    def work() -> None:
        for _ in repeat(None, count):
            noop.enqueue()

    return rate_of(count, work)


def enqueue_from_threads(folder: str, count: int) -> float:
    """Jobs a second, one by one, from 16 threads at once."""
    noop = _tasks(folder).noop

    def caller(_: int) -> None:
        for _turn in repeat(None, count // THREADS):
            noop.enqueue()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(time.sleep, repeat(0.01, THREADS)))  # all of them are started
        return rate_of(count // THREADS * THREADS, lambda: list(pool.map(caller, range(THREADS))))


def enqueue_from_coroutines(folder: str, count: int, callers: int) -> float:
    """Jobs a second, one by one, from so many coroutines at once."""
    noop = _tasks(folder).noop

    async def caller() -> None:
        for _ in repeat(None, count // callers):
            await noop.aenqueue()

    async def work() -> float:
        await noop.aenqueue()
        began = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        return count // callers * callers / (time.perf_counter() - began)

    return asyncio.run(work())


def enqueue_many(folder: str, count: int, task: str) -> float:
    """Jobs a second, 1,000 at a time."""
    chosen = getattr(_tasks(folder), task)

    def work() -> None:
        for _ in range(count // BATCH):
            chosen.enqueue_many([chosen.bind() for _ in repeat(None, BATCH)])

    return rate_of(count, work)


def enqueue_for_later(folder: str, count: int, delay_s: float) -> None:
    """Enqueue jobs that are all due at one instant."""
    noop = _tasks(folder).noop
    due_at = time.monotonic() + delay_s
    for _ in range(count // BATCH):
        later = noop.options(delay=due_at - time.monotonic())
        noop.enqueue_many([later.bind() for _ in repeat(None, BATCH)])


def send(folder: str, count: int) -> list[float]:
    """Send jobs with pauses between them to an idle worker; seconds from before the enqueueing to each start."""
    stamp = _tasks(folder).stamp
    times = []
    for sent_at in pauses(count):
        job = stamp.enqueue(sent_at)
        job.wait(timeout=10)
        times.append(float(job.result))
    return times


# ---- workers


class Watch:
    """What is in the file, seen from outside."""

    def __init__(self, folder: Path) -> None:
        self._runner = asyncio.Runner()
        self._store = SqliteStore(folder / "holdfast.db")

    def done(self) -> int:
        stats = self._runner.run(self._store.stats())
        return sum(tally.n for tally in stats.tallies if tally.state is JobState.COMPLETED)

    def workers(self) -> int:
        return len(self._runner.run(self._store.stats()).workers)

    def shares(self) -> tuple[Counter[str], int]:
        """How many jobs each worker completed, and how many jobs took more than one attempt."""
        shares: Counter[str] = Counter()
        repeated, cursor = 0, ""
        while True:
            query = Query(states=(JobState.COMPLETED,), limit=1_000, cursor=cursor)
            page = self._runner.run(self._store.find(query))
            shares.update(record.worker for record in page.items)
            repeated += sum(record.attempt > 1 for record in page.items)
            cursor = page.cursor
            if not cursor:
                return shares, repeated

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._store.close())
        self._runner.close()


@contextmanager
def worker(folder: Path) -> Iterator[Worker]:
    command = [str(Path(sys.executable).parent / "holdfast"), "worker", "jobs_tasks:app"]
    with started(command, {"HOLDFAST_URL": url_of(folder)}, folder / "worker.log") as process:
        yield process


def drain(folder: Path, count: int) -> float:
    """Jobs a second by one worker, to the last durable completion."""
    with Watch(folder) as watch, worker(folder) as process:
        return drain_rate(watch.done, count, [process], folder / "worker.log")


def idle_and_latencies(folder: Path, count: int, idle_s: float) -> tuple[float, list[float]]:
    """The part of a core that an idle worker takes, and seconds from enqueueing to the start on it."""
    run("jobs_holdfast", "enqueue", folder=folder, count=1)
    with Watch(folder) as watch, worker(folder) as process:
        while not watch.done():
            time.sleep(0.1)
        time.sleep(2.0)
        used, began = cpu_s(process.pid), time.monotonic()
        time.sleep(idle_s)
        share = (cpu_s(process.pid) - used) / (time.monotonic() - began)
        return share, run("jobs_holdfast", "send", folder=folder, count=count)


def fleet(folder: Path, count: int) -> tuple[float, list[int], int]:
    """Four workers on one file: jobs a second, what each of them completed, and jobs that took a second attempt."""
    with ExitStack() as stack:
        watch = stack.enter_context(Watch(folder))
        run("jobs_holdfast", "enqueue_for_later", folder=folder, count=count, delay_s=FLEET_DELAY_S)
        processes = [stack.enter_context(worker(folder)) for _ in range(FLEET)]
        while watch.workers() < FLEET:
            time.sleep(0.05)
        if watch.done():
            sys.exit(f"four workers took more than {FLEET_DELAY_S:.0f} s to start")
        rate = drain_rate(watch.done, count, processes, folder / "worker.log")
        shares, repeated = watch.shares()
        return rate, sorted(shares.values()), repeated


def memory_mb(folder: Path, seconds: float) -> float:
    """The most memory that a worker takes in its first seconds on this file."""
    with worker(folder) as process:
        time.sleep(seconds)
        return peak_mb(process.pid)


if __name__ == "__main__":
    serve(enqueue, enqueue_from_threads, enqueue_from_coroutines, enqueue_many, enqueue_for_later, send)
