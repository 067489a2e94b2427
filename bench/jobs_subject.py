"""Whom bench-jobs measures: a queue with its worker, told apart from where its jobs are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from jobs_timing import PYTHON, Failed, Worker, drain_rate, run, started

Counter = Callable[[], int]
Done = Callable[["Place", int], AbstractContextManager[Counter]]


@dataclass(frozen=True, slots=True)
class Place:
    """An empty store, and a folder beside it for what a subject leaves there."""

    url: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What tells the processes of a subject where to go."""
        return {"HOLDFAST_URL": self.url, "HOLDFAST_BENCH_FOLDER": str(self.folder)}

    @property
    def log(self) -> Path:
        return self.folder / "worker.log"


class Engine(Protocol):
    """A server, or a disk, with room for one subject after the other."""

    def place(self) -> AbstractContextManager[Place]:
        """An empty place, which is gone afterwards."""


class Subject(Protocol):
    """One line of the tables. Counts are jobs, rates jobs a second."""

    @property
    def name(self) -> str: ...

    @property
    def has_bulk(self) -> bool:
        """Whether it can enqueue many at a time."""

    @property
    def is_variant(self) -> bool:
        """Whether its producer is that of the subject before it, so that its enqueueing was measured already."""

    def enqueue(self, place: Place, count: int) -> float:
        """One by one, from one caller, a sync one where there is a choice."""

    def bulk(self, place: Place, count: int) -> float:
        """Many at a time."""

    def drain(self, place: Place, count: int) -> float:
        """By one worker process, of no-op jobs that are there already."""

    def starts_s(self, place: Place, count: int) -> list[float] | None:
        """Seconds from before the enqueueing to each start, on an idle worker; None: has no figure of its own."""


def starts_s(place: Place, count: int) -> list[float]:
    """What the handlers noted (jobs_peers/starts.py); the first job waited for the worker to come up."""
    lines = (place.folder / "starts").read_text().split()
    if len(lines) != count + 1:
        raise Failed(f"{len(lines)} of {count + 1} jobs were run: {place.log.read_text(errors='replace')[-500:]}")
    return [float(line) for line in lines[1:]]


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody else's queue: its functions are those of a module of jobs_peers, each run in a process of its own."""

    name: str
    module: str
    worker: Sequence[str]
    """The command of its worker; the program stands beside Python."""
    done: Done
    """Counts what its worker has done of so many jobs, by the peer's own records."""
    has_bulk: bool = False
    is_variant: bool = False
    has_schema: bool = False
    has_starts: bool = True
    python: Path = PYTHON
    environment: dict[str, str] = field(default_factory=dict)

    def enqueue(self, place: Place, count: int) -> float:
        self._prepare(place)
        return self._run(place, "enqueue", count)

    def bulk(self, place: Place, count: int) -> float:
        self._prepare(place)
        return self._run(place, "bulk", count)

    def drain(self, place: Place, count: int) -> float:
        with self.done(place, count) as done, self._worker(place) as worker:
            return drain_rate(done, count, [worker], place.log)

    def starts_s(self, place: Place, count: int) -> list[float] | None:
        if not self.has_starts:
            return None
        self._prepare(place)
        with self._worker(place):
            try:
                self._run(place, "send", count)
            except Failed as error:
                raise Failed(f"{error}; its worker: {place.log.read_text(errors='replace')[-500:]}") from None
        return starts_s(place, count)

    def _prepare(self, place: Place) -> None:
        if self.has_schema:
            run(self.module, "prepare", {**place.environment, **self.environment}, self.python)

    def _run(self, place: Place, function: str, count: int) -> float:
        rate: float = run(self.module, function, {**place.environment, **self.environment}, self.python, count=count)
        return rate

    @contextmanager
    def _worker(self, place: Place) -> Iterator[Worker]:
        program, *arguments = self.worker
        command = [str(self.python.parent / program), *arguments]
        # Some take seconds to end, after all is measured and before their place is emptied.
        with started(command, {**place.environment, **self.environment}, place.log, is_killed=True) as worker:
            yield worker


@dataclass(frozen=True, slots=True)
class Raw:
    """The store's own client in the fewest calls that keep a queue's promises: what can be had at most."""

    module: str
    name: str = "raw client"
    has_bulk: bool = True
    is_variant: bool = False

    def enqueue(self, place: Place, count: int) -> float:
        return self._run(place, "enqueue", count)

    def bulk(self, place: Place, count: int) -> float:
        return self._run(place, "bulk", count)

    def drain(self, place: Place, count: int) -> float:
        return self._run(place, "drain", count)

    def whole_life(self, place: Place, count: int) -> float:
        """Enqueued, claimed and acknowledged, in batches of 200."""
        return self._run(place, "whole_life", count)

    def starts_s(self, place: Place, count: int) -> list[float] | None:
        return None

    def _run(self, place: Place, function: str, count: int) -> float:
        rate: float = run(self.module, function, place.environment, count=count)
        return rate
