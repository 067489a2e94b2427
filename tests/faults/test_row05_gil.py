"""Row 5: a job holds the interpreter lock for longer than its worker's lease, so that no heartbeat can be sent.

The lease is lost, and the worker finds out; what it held runs elsewhere, the guilty one in a process of its own.
"""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from holdfast.app.task import Call
from holdfast.runtime.runner import Room
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.checker import Fault
from tests.faults.conftest import small_on, waits
from tests.faults.engines import SqliteEngine
from tests.faults.report import Report, figures_of
from tests.faults.rough_shop import TARGET, add_rough_tasks
from tests.faults.workers import CLOCK, SETTINGS, SWEEP_S, Fleet, poll
from tests.servers import children

pytestmark = waits
LEASE_S = 1.0
WORKERS = 2
NEIGHBOURS = 6
# More room than half of the neighbours: each worker has some, and a place for the guilty one.
QUICK = replace(SETTINGS, room=Room(concurrency=5, threads=2, isolates=2), lease_s=LEASE_S, heartbeat_s=0.25)


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
            known = arena.started()
            beside += arena.enqueue([arena.call("once", 4 * LEASE_S, 0.05) for _ in range(NEIGHBOURS)])
            poll(lambda known=known: arena.started() >= known + NEIGHBOURS, 20, "they run")  # type: ignore[misc]
            (guilty,) = arena.enqueue([_call(arena, kind)])
            arena.quiesce(60)
            first, *others = (one for one in arena.effects() if one.job == guilty and one.what == "start")
            (end,) = (one for one in arena.effects() if (one.job, one.pid, one.what) == (guilty, first.pid, "end"))
            assert end.at - first.at > 2 * LEASE_S, "it did not take long enough: this run shows nothing"
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
    rejected = sum(int(n) for n in re.findall(r"(\d+) settlements came too late", fleet.log()))

    bound_s = LEASE_S + SWEEP_S + max(1.0, 3 * slowest_s)
    if isinstance(arena.engine, SqliteEngine):  # it may have been holding the write lock: then all wait for it
        bound_s += 3 * LEASE_S
    else:
        assert replaced == guilty_pids, fleet.log()
    assert checker.check(replace(evidence, recovery_s=bound_s)) == []
    assert again >= len(kinds), "it held the lock beside nobody: this run shows nothing"
    report(
        "a job holds the interpreter lock for 3 leases or more (a native call, a pattern that backtracks)",
        injected=len(kinds),
        figures=figures_of(evidence),
        note=f"innocent neighbours run again {again}, workers replaced {len(replaced)}, late settlements rejected "
        f"{rejected}, accepted 0",
    )


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
    return {int(pid) for pid in re.findall(r"worker process (\d+) is replaced", fleet.log())}
