"""Row 5: a job holds the interpreter lock for longer than its worker's lease, so that no heartbeat can be sent.

The lease is lost, and the worker finds out; what it held runs elsewhere, the guilty one in a process of its own.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec
from msgspec.structs import replace

from holdfast.app.task import Call
from holdfast.runtime.runner import Room
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.checker import Fault
from tests.faults.conftest import small_on
from tests.faults.cut_off import refused
from tests.faults.engines import SqliteEngine, is_free
from tests.faults.ledger import Effect
from tests.faults.outages import replaced as replaced_by
from tests.faults.report import Report, figures_of
from tests.faults.rough_shop import TARGET, add_rough_tasks
from tests.faults.workers import CLOCK, SETTINGS, Fleet, hold_still, poll, recovery_bound
from tests.servers import children

LEASE_S = 1.0
WORKERS = 2
QUICK = replace(SETTINGS, room=Room(concurrency=4, threads=2, isolates=2), lease_s=LEASE_S, heartbeat_s=0.25)
_TRIES = 100


@small_on("sqlite")
def test_a_job_that_holds_the_interpreter_lock_costs_its_worker_the_lease_and_nothing_else(
    arena: Arena, is_full: bool, report: Report
) -> None:
    add_rough_tasks(arena.app, arena.folder / "effects")
    kinds = ("hog", "hog_async", "backtrack") if is_full else ("hog",)
    guilty_pids: set[int] = set()
    beside: list[str] = []
    slowest_s = 0.0
    with arena.fleet() as fleet:
        settings = msgspec.json.encode(QUICK).decode()
        supervisor = fleet.run("tests.faults.supervise", settings, str(WORKERS), TARGET)
        for kind in kinds:
            slowest_s = max(slowest_s, poll(lambda: _are_all_there(arena, supervisor), 30, "all workers register"))
            beside += _neighbours(arena)
            (guilty,) = arena.enqueue([_call(arena, kind)])
            arena.quiesce(60)
            first, *others = (one for one in arena.effects() if one.job == guilty and one.what == "start")
            assert _end_of(arena, first).at - first.at > 2 * LEASE_S, (
                "it did not take long enough: this run shows nothing"
            )
            guilty_pids.add(first.pid)
            poll(lambda: _replaced(fleet) >= guilty_pids, 20, "the worker that lost its lease is replaced")
            fleet.faults += [Fault("interpreter lock", pid, first.at, first.at) for pid in _replaced(fleet)]
            # It ran again where it can block nobody, though it held the lock for longer than a lease there as well.
            assert all(one.parent != supervisor for one in others), "it ran again in a worker's own process"
        replaced = _replaced(fleet)
        fleet.stop()
        evidence = arena.evidence(fleet)
    runs = checker.runs_by_job(evidence.effects)
    again = sum(len(runs[one]) > 1 for one in beside)
    rejected = refused(fleet)

    is_locked = isinstance(arena.engine, SqliteEngine)  # it may have been holding the write lock: then all wait for it
    assert is_locked or replaced == guilty_pids, fleet.log()
    # Three start where two workers did, for two suspects and in the place of the lost one, with a processor less.
    bound_s = recovery_bound(LEASE_S, start_s=slowest_s, at_once=3, blocked_s=3 * LEASE_S if is_locked else 0.0)
    evidence = replace(evidence, recovery_s=bound_s)
    assert checker.check(evidence) == []
    # The neighbours have no second attempt to lose: completed means that none was punished. Each loses one worker, or
    # two where the lock of the file was held; only a third would count. The guilty one is done when it runs by itself.
    assert completed(evidence) == len(evidence.acked), arena.states(evidence.acked)
    assert again >= len(kinds), "it held the lock beside nobody: this run shows nothing"
    report(
        "a job holds the interpreter lock for 3 leases or more (a native call, a pattern that backtracks)",
        injected=len(kinds),
        figures=figures_of(evidence),
        note=f"innocent neighbours run again {again}, workers replaced {len(replaced)}, late settlements rejected "
        f"{rejected}, accepted {len(checker.stale_results(evidence))}{checker.told_bound(evidence)}",
    )


def _neighbours(arena: Arena) -> list[str]:
    """A job that runs for long in each worker: while it is taken, the others stand still for a moment."""
    found: list[str] = []
    pids = [worker.pid for worker in arena.stats().workers]
    for pid in pids:
        with _held_still(arena, [one for one in pids if one != pid]):
            found += arena.enqueue([arena.call("once", 4 * LEASE_S, 0.05)])
            poll(partial(_has_begun, arena, found[-1]), 20, "it runs")
    assert {one.pid for one in arena.effects() if one.job in found} == {*pids}
    return found


def _has_begun(arena: Arena, job: str) -> bool:
    return any(one.job == job for one in arena.effects())


@contextmanager
def _held_still(arena: Arena, pids: Sequence[int]) -> Iterator[None]:
    """Processes that do nothing, and do not hold SQLite's write lock meanwhile."""
    for _ in range(_TRIES):
        for pid in pids:
            hold_still(pid)
        try:
            if is_free(arena.engine):
                yield
                return
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        CLOCK.sleep(0.02)
    raise AssertionError("somebody writes whenever they are stopped")


def _end_of(arena: Arena, start: Effect) -> Effect:
    """The line about the end of this run, which is waited for."""
    found: list[Effect] = []

    def has_ended() -> bool:
        found[:] = [one for one in arena.effects() if (one.job, one.pid, one.what) == (start.job, start.pid, "end")]
        return bool(found)

    poll(has_ended, 30, "it lets go of the lock")
    return found[0]


def _call(arena: Arena, kind: str) -> Call[object]:
    """For at least three leases; and when it is run again, for more than one."""
    if kind != "backtrack":
        return arena.call(kind, 3 * LEASE_S, 1.5 * LEASE_S)
    size = 14
    took_s = 0.0
    while took_s < 0.02:  # each letter takes twice as long as the one before
        size += 1
        took_s = min(_backtrack(size) for _ in range(3))
    while took_s < 4 * LEASE_S:
        size, took_s = size + 1, 2 * took_s
    return arena.call(kind, size, size - 1)


def _backtrack(size: int) -> float:
    began_s = CLOCK.monotonic()
    re.fullmatch(r"(a+)+", "a" * size + "b")
    return CLOCK.monotonic() - began_s


def _are_all_there(arena: Arena, supervisor: int) -> bool:
    """Whether the supervisor's processes are those that the store knows."""
    known = {worker.pid for worker in arena.stats().workers}
    return len(known) == WORKERS and known <= set(children(supervisor))


def _replaced(fleet: Fleet) -> set[int]:
    return replaced_by(fleet.log())
