"""Holdfast as a user has it: tasks, `enqueue` in all its forms, and `holdfast worker` in processes of their own."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import repeat
from types import TracebackType
from typing import Any, Self

from jobs_peers.starts import send_each
from jobs_subject import Place, starts_s
from jobs_timing import (
    BATCH,
    PYTHON,
    Failed,
    Worker,
    children_of,
    cpu_s,
    drain_rate,
    kill_tree,
    peak_mb,
    rate_of,
    run,
    started,
)

from holdfast.ports import Query
from holdfast.types import JobState
from holdfast.wiring import open_store

ME = "jobs_holdfast"
COROUTINES = 100
THREADS = 16
FLEET = 4
UP_DELAYS_S = {1: 5.0, FLEET: 11.0}
"""The jobs of a fleet are due when all its workers are up, so that none has a start over the others."""
RESCUED_WITHIN_S = 120.0


# ---- enqueueing, each in a process of its own


def _tasks() -> Any:
    import jobs_tasks

    jobs_tasks.app.stats()  # makes the store
    return jobs_tasks


def enqueue(count: int) -> float:
    """Jobs a second, one by one, from one sync caller."""
    noop = _tasks().noop

    def work() -> None:
        for _ in repeat(None, count):
            noop.enqueue()

    return rate_of(count, work)


def enqueue_from_threads(count: int) -> float:
    """Jobs a second, one by one, from 16 threads at once."""
    noop = _tasks().noop

    def caller(_: int) -> None:
        for _turn in repeat(None, count // THREADS):
            noop.enqueue()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(time.sleep, repeat(0.01, THREADS)))  # all of them are started
        return rate_of(count // THREADS * THREADS, lambda: list(pool.map(caller, range(THREADS))))


def enqueue_from_coroutines(count: int, callers: int) -> float:
    """Jobs a second, one by one, from so many coroutines at once."""
    noop = _tasks().noop

    async def caller() -> None:
        for _ in repeat(None, count // callers):
            await noop.aenqueue()

    async def work() -> float:
        await noop.aenqueue()
        began = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        return count // callers * callers / (time.perf_counter() - began)

    return asyncio.run(work())


def enqueue_many(count: int, task: str) -> float:
    """Jobs a second, 1,000 at a time."""
    chosen = getattr(_tasks(), task)

    def work() -> None:
        for _ in range(count // BATCH):
            chosen.enqueue_many([chosen.bind() for _ in repeat(None, BATCH)])

    return rate_of(count, work)


def enqueue_for_later(count: int, delay_s: float, task: str) -> None:
    """Enqueue jobs that are all due at one instant."""
    chosen = getattr(_tasks(), task)
    due_at = time.monotonic() + delay_s
    for _ in range(count // BATCH):
        later = chosen.options(delay=due_at - time.monotonic())
        chosen.enqueue_many([later.bind() for _ in repeat(None, BATCH)])


def enqueue_lingering(path: str) -> None:
    """Enqueue one job that runs until its worker is killed."""
    _tasks().linger.enqueue(path)


def send(count: int) -> None:
    """Send jobs with pauses between them to an idle worker."""
    send_each(_tasks().stamp.enqueue, count)


# ---- workers


class Watch:
    """What is in the store, seen from outside."""

    def __init__(self, place: Place) -> None:
        self._runner = asyncio.Runner()
        self._store = open_store(place.url)

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
def worker(place: Place) -> Iterator[Worker]:
    command = [str(PYTHON.parent / "holdfast"), "worker", "jobs_tasks:app"]
    with started(command, place.environment, place.log) as process:
        yield process


@dataclass(frozen=True, slots=True)
class Holdfast:
    """The subject: all of it is on, late acknowledgement, attempts, breakers and counters."""

    name: str
    task: str
    has_bulk: bool = True
    is_variant: bool = False

    def enqueue(self, place: Place, count: int) -> float:
        return self._rate(place, "enqueue", count=count)

    def bulk(self, place: Place, count: int) -> float:
        return self._rate(place, "enqueue_many", count=count, task=self.task)

    def drain(self, place: Place, count: int) -> float:
        """To the last durable completion."""
        with Watch(place) as watch, worker(place) as process:
            return drain_rate(watch.done, count, [process], place.log)

    def starts_s(self, place: Place, count: int) -> list[float] | None:
        if self.is_variant:
            return None
        with worker(place):
            run(ME, "send", place.environment, count=count)
        return starts_s(place, count)

    def _rate(self, place: Place, function: str, **arguments: Any) -> float:
        rate: float = run(ME, function, place.environment, **arguments)
        return rate


def idle_share(place: Place, idle_s: float) -> float:
    """The part of a core that an idle worker takes."""
    run(ME, "enqueue", place.environment, count=1)
    with Watch(place) as watch, worker(place) as process:
        while not watch.done():
            time.sleep(0.1)
        time.sleep(2.0)
        used, began = cpu_s(process.pid), time.monotonic()
        time.sleep(idle_s)
        return (cpu_s(process.pid) - used) / (time.monotonic() - began)


def fleet(place: Place, count: int, workers: int = FLEET, task: str = "noop") -> tuple[float, list[int], int]:
    """So many workers on one store: jobs a second, what each of them completed, jobs that took a second attempt."""
    with ExitStack() as stack:
        watch = stack.enter_context(Watch(place))
        run(ME, "enqueue_for_later", place.environment, count=count, delay_s=UP_DELAYS_S[workers], task=task)
        processes = [stack.enter_context(worker(place)) for _ in range(workers)]
        while watch.workers() < workers:
            time.sleep(0.05)
        if watch.done():
            raise Failed(f"{workers} workers took more than {UP_DELAYS_S[workers]:.0f} s to start")
        rate = drain_rate(watch.done, count, processes, place.log)
        shares, repeated = watch.shares()
        return rate, sorted(shares.values()), repeated


def rescue_s(place: Place) -> float:
    """Seconds from the SIGKILL of a worker to the next start of its job, while another worker is idle."""
    path = place.folder / "lingering"
    run(ME, "enqueue_lingering", place.environment, path=str(path))
    with worker(place) as one, worker(place) as other:
        (pid, _), *_ = _wait_for_lines(path, 1)
        time.sleep(2.0)  # both are up, and at rest
        victim = next(each for each in (one, other) if int(pid) in (each.pid, *children_of(each.pid)))
        killed_at = time.monotonic()
        kill_tree(victim)
        _, (_, again_at), *_ = _wait_for_lines(path, 2)
        return float(again_at) - killed_at


def _wait_for_lines(path: Any, least: int) -> list[list[str]]:
    began = time.monotonic()
    while True:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= least:
            return [line.split() for line in lines]
        if time.monotonic() - began > RESCUED_WITHIN_S:
            raise Failed(f"the job was started {len(lines)} times in {RESCUED_WITHIN_S:.0f} s")
        time.sleep(0.01)


def flat_ms(place: Place, urls: Sequence[str], held: Sequence[int], rounds: int) -> list[Mapping[str, float]]:
    """Milliseconds of a claim in each store, the second of which has that many more jobs in it."""
    for url, count in zip(urls, held, strict=True):
        run("jobs_flat", "fill", place.environment, url=url, held=count)
    found: list[Mapping[str, float]] = run("jobs_flat", "claim_ms", place.environment, urls=urls, rounds=rounds)
    return found


def memory_mb(place: Place, seconds: float) -> float:
    """The most memory that a worker takes in its first seconds on this store."""
    with worker(place) as process:
        time.sleep(seconds)
        return peak_mb(process.pid)
