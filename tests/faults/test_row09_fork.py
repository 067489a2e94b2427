"""Row 9: jobs fork children that outlive them, or come back from the task as the worker would. None is taken for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.runtime.runner import Room
from holdfast.types import JobState
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.conftest import small_on, waits
from tests.faults.engines import SqliteEngine
from tests.faults.report import Report, figures_of
from tests.faults.rough_shop import CHILDREN, TARGET, add_rough_tasks
from tests.faults.workers import SETTINGS, Fleet, poll, recovery_bound

pytestmark = waits
KINDS = ("fork", "fork_async", "fork_apart")
WAYS = ("linger", "return", "leave", "raise", "enqueue")
CALM = replace(SETTINGS, room=Room(concurrency=8, threads=2, isolates=2))


@small_on("sqlite")
def test_what_a_job_forks_is_never_taken_for_its_worker(arena: Arena, is_full: bool, report: Report) -> None:
    add_rough_tasks(arena.app, arena.folder / "effects")
    times = 5 if is_full else 1
    with _children(arena.folder) as children, arena.fleet() as fleet:
        worker = _start(fleet)
        forks = arena.enqueue([arena.call(kind, way) for _ in range(times) for way in WAYS for kind in KINDS])
        (dead,) = arena.enqueue([arena.call("fork_and_die")])
        arena.enqueue([arena.call(("work", "toil", "apart")[n % 3], n) for n in range(30)])
        arena.quiesce(30)
        assert arena.states(forks) == {"completed": len(forks)}
        assert arena.get([dead])[0].error_name.rpartition(".")[2] == "WorkerDied"

        stay = times * len(KINDS) + 1
        poll(lambda: len(_alive(children())) == stay, 20, "those children are there that stay, and no others")
        lingering = _alive(children())
        for pid in lingering[:2]:  # their end is not the worker's, nor the signal for it
            os.kill(pid, signal.SIGTERM)
            poll(lambda pid=pid: not _is_there(pid), 5, "a signal ends the child")  # type: ignore[misc]
        held = arena.enqueue([arena.call("once", 60.0) for _ in range(4)])
        poll(lambda: {one.job for one in arena.effects()} >= set(held), 20, "the worker goes on")

        fleet.kill(worker)
        other = _start(fleet)
        start_s = poll(lambda: other in {one.pid for one in arena.stats().workers}, 20, "another one is there")
        arena.quiesce(30)
        assert _alive(children()), "no child has outlived the worker: this run shows nothing"
        fleet.stop()
        known = len(arena.client.acked)
        arena.client.reload()
        enqueued = len(arena.client.acked) - known
        evidence = arena.evidence(fleet)
        strays = {one.pid for one in evidence.effects} & set(children())
        forked = len(children())

    assert strays == set(), "a forked child has run jobs"
    # SQLite does not survive a fork: where the worker has the file open, its child is refused it.
    assert enqueued == times * (1 if isinstance(arena.engine, SqliteEngine) else len(KINDS))
    evidence = replace(evidence, recovery_s=recovery_bound(start_s=start_s, in_turn=2))  # it, and then the suspects'
    assert checker.check(evidence) == []
    assert sum(job.state is JobState.COMPLETED for job in evidence.jobs.values()) == len(evidence.jobs) - 1
    report(
        "jobs fork children that outlive the worker, return, exit, fail or enqueue (thread, async, isolated)",
        injected=forked,
        figures=figures_of(evidence),
        note=f"enqueued by children {enqueued}; children that ran jobs {len(strays)}{checker.told_bound(evidence)}",
    )


def _start(fleet: Fleet) -> int:
    return fleet.run("holdfast.runtime.process", TARGET, msgspec.json.encode(CALM).decode())


@contextmanager
def _children(folder: Path) -> Iterator[Callable[[], Sequence[int]]]:
    """What was forked; ended at the end."""
    path = folder / CHILDREN

    def read() -> Sequence[int]:
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    try:
        yield read
    finally:
        for pid in read():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _alive(pids: Sequence[int]) -> list[int]:
    return [pid for pid in pids if _is_there(pid)]


def _is_there(pid: int) -> bool:
    """Whether it runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "XZ"
    except OSError:
        return False
