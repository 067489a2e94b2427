"""A store with many jobs in it that wait, and what it costs to claim, look at and drain them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import httpx
from msgspec import Struct, json
from msgspec.structs import replace

from holdfast import App
from holdfast.clock import new_id
from holdfast.ports import Query, Stats, WorkerRecord
from holdfast.runtime.runner import Room
from holdfast.runtime.worker import WorkerSettings
from holdfast.types import Attempt, Change, End, FailureType, JobState, NewJob
from tests.faults.checker import quantile
from tests.faults.soak_probe import claim_s
from tests.faults.soak_programs import Programs, Usage, usage
from tests.faults.workers import CLOCK, poll

TARGET: Final = "tests.faults.backlog:app"
TASK: Final = "noop"
QUEUE: Final = "default"
PATHS: Final = (
    "/overview",
    "/queues",
    "/jobs",
    "/jobs?state=queued",
    f"/jobs?task={TASK}&state=queued",
    "/jobs?state=dead_letter",
    "/dead-letters",
    "/dead-letters/groups",
    "/retry/stats",
    "/metrics",
)
"""What the page asks for, and Prometheus."""

_AT_ONCE: Final = 1_000
_GROUPS: Final = 40
_CLAIMED: Final = 100
_PAGE: Final = 500
_LEASE_S: Final = 3_600.0
_DRAINED_WITHIN_S: Final = 300.0


def open_shop(url: str) -> App:
    """An app with one task, which does nothing."""
    app = App(url)

    @app.task(name=TASK, breaker=None)
    async def noop(number: int) -> int:
        return number

    return app


app = open_shop(os.environ.get("HOLDFAST_URL", "memory://"))


class Claims(Struct, frozen=True):
    """Milliseconds for a claim of a hundred jobs, the commit included."""

    p50: float
    """Of the median block, as is the other one."""
    p99: float
    overall_p99: float
    """Of all blocks together."""


class Backlog:
    """A store with its app, and perhaps its server and its worker. Leaving the block ends them."""

    def __init__(self, url: str, folder: Path) -> None:
        folder.mkdir()
        self.app = open_shop(url)
        self._programs = Programs(folder, {"HOLDFAST_URL": url})
        self._worker = new_id()

    def __enter__(self) -> Backlog:
        return self

    def __exit__(self, *error: object) -> None:
        self._programs.__exit__()
        self.app.close()

    # ---- filling

    def fill(self, jobs: int, letters: int) -> float:
        """Enqueue so many jobs that are due, with so many dead letters among them; jobs a second."""
        began_s = CLOCK.monotonic()
        for first in range(0, jobs, _AT_ONCE):
            end = min(jobs, first + _AT_ONCE)
            new = [_job(number) for number in range(first, end)]
            new += [_letter(number) for number in range(letters * first // jobs, letters * end // jobs)]
            self.app.bridge.run(self.app.store.enqueue(new))
        return (jobs + letters) / (CLOCK.monotonic() - began_s)

    def counts(self) -> dict[str, int]:
        """How many jobs the store counts in each state."""
        found: dict[str, int] = {}
        for tally in self._stats().tallies:
            found[tally.state.value] = found.get(tally.state.value, 0) + tally.n
        return {state: n for state, n in found.items() if n}

    # ---- claiming

    def claims_s(self, rounds: int) -> list[float]:
        """Seconds for each of so many claims; what they bring is given back."""

        async def claims() -> list[float]:
            store = self.app.store
            await store.heartbeat(WorkerRecord(id=self._worker, lease_s=_LEASE_S))
            return [await claim_s(store, self._worker, _CLAIMED) for _ in range(rounds)]

        return self.app.bridge.run(claims())

    # ---- looking, through `holdfast serve`

    def begin_server(self) -> None:
        """A server, which takes its time to start."""
        self._programs.start_server(TARGET)

    def await_server(self) -> None:
        """Until it has answered once."""
        live = httpx.get(f"{self._programs.server_url()}/health/live", timeout=60)
        assert live.is_success, live.text

    def answers_s(self, rounds: int) -> dict[str, float]:
        """The longest time for an answer, by what was asked for; all must be answered."""
        longest: dict[str, float] = dict.fromkeys(PATHS, 0.0)
        with httpx.Client(base_url=self._programs.server_url(), timeout=60) as client:
            for _ in range(rounds):
                for path in PATHS:
                    began_s = CLOCK.monotonic()
                    answer = client.get(path)
                    longest[path] = max(longest[path], CLOCK.monotonic() - began_s)
                    assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:200]}"
        return longest

    def overview(self) -> dict[str, int]:
        """The page's own count of the jobs by state."""
        jobs: dict[str, int] = httpx.get(f"{self._programs.server_url()}/overview", timeout=60).json()["states"]
        return {state: n for state, n in jobs.items() if n}

    # ---- draining

    def begin_worker(self) -> None:
        """A worker process, which has nothing to do until the queue is resumed."""
        self.app.queues.pause(QUEUE)
        settings = WorkerSettings(room=Room(concurrency=100, threads=4, isolates=1))
        self._programs.start("worker", "holdfast.runtime.process", TARGET, json.encode(settings).decode())

    def await_worker(self) -> None:
        """Until it is there."""
        poll(lambda: bool(self._workers()), 60, "the worker registers")

    def drain_rate(self, jobs: int) -> float:
        """Jobs a second over so many of them, by the times of their ends in the store."""
        wanted = self.counts().get("completed", 0) + jobs
        self.app.queues.resume(QUEUE)
        self.fill(1, 0)  # which wakes the worker: it looks after a second by itself
        poll(lambda: self.counts().get("completed", 0) >= wanted, _DRAINED_WITHIN_S, f"{jobs} jobs end: {self.log}")
        self.app.queues.pause(QUEUE)
        ends = self._latest_ends(jobs)
        later = [at for at in ends if at > ends[0]]  # what was settled together with the first was begun before it
        assert later, "all were settled at once: this shows nothing"
        return len(later) / (ends[-1] - ends[0])

    def _latest_ends(self, jobs: int) -> list[float]:
        """When the jobs ended that were claimed last, in order."""
        found: list[float] = []
        query = Query(states=(JobState.COMPLETED,), limit=_PAGE)
        while len(found) < jobs:
            page = self.app.bridge.run(self.app.store.find(query))
            found += [record.ended_at for record in page.items if record.ended_at is not None]
            query = replace(query, cursor=page.cursor)
        return sorted(found[:jobs])

    def top_up(self, jobs: int) -> None:
        """Let as many wait again as there were."""
        if (missing := jobs - self.counts().get("queued", 0)) > 0:
            self.fill(missing, 0)

    @property
    def log(self) -> str:
        """What the worker has said last."""
        return self._programs.log("worker")[-2_000:]

    # ---- what it takes

    def server_usage(self) -> Usage:
        """Of the server."""
        return usage([self._programs.pid("server")])

    def worker_usage(self) -> Usage:
        """Of the worker process."""
        return usage([self._programs.pid("worker")])

    def _workers(self) -> list[WorkerRecord]:
        return [one for one in self._stats().workers if one.id != self._worker]

    def _stats(self) -> Stats:
        return self.app.bridge.run(self.app.store.stats())


def _job(number: int) -> NewJob:
    return NewJob(id=new_id(), task=TASK, payload=b'{"number": %d}' % number, queue=QUEUE)


def _letter(number: int) -> NewJob:
    """A dead letter of one of 40 causes."""
    cause = number % _GROUPS
    failure_type = tuple(FailureType)[cause % len(FailureType)]
    ended_at = CLOCK.now()
    attempt = Attempt(
        number=1,
        started_at=ended_at - 0.01,
        ended_at=ended_at,
        outcome=Change.BURY,
        failure_type=failure_type,
        severity=failure_type.severity,
        error_name=f"shop.Error{cause}",
        message=f"cause {cause}: order {number} was refused",
        traceback="Traceback (most recent call last): …",
        fingerprint=f"1:cause-{cause}",
    )
    end = End(change=Change.BURY, attempts=(attempt,), reason="retries used up")
    return NewJob(id=new_id(), task=TASK, payload=b'{"number": %d}' % number, queue=QUEUE, end=end)


def claims_in_turns(small: Backlog, large: Backlog, *, blocks: int, rounds: int) -> tuple[Claims, Claims]:
    """What claims cost in both, which take turns so that they meet the same machine.

    Of several blocks the median one is compared: a hiccup of the machine is not what a table's size costs, but what
    stalls most of them is.
    """
    took: tuple[list[list[float]], list[list[float]]] = ([], [])
    for _ in range(blocks):
        for one, found in zip((small, large), took, strict=True):
            found.append(one.claims_s(rounds))
    return claims_of(took[0]), claims_of(took[1])


def claims_of(blocks: Sequence[Sequence[float]]) -> Claims:
    """What claims cost that took so many seconds."""
    p50, p99 = (1e3 * quantile([quantile(block, share) for block in blocks], 0.5) for share in (0.5, 0.99))
    return Claims(p50, p99, 1e3 * quantile([took_s for block in blocks for took_s in block], 0.99))
