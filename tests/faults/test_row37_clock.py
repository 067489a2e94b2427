"""Row 37: the clocks of some workers are wrong by hours. Leases go by the store's clock, so nobody takes notice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.runtime.runner import Room
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import on, waits
from tests.faults.report import Report, figures_of
from tests.faults.stepping import SteppedClock
from tests.faults.workers import LEASE_S, SETTINGS, poll, recovery_bound

pytestmark = waits
JOBS = 12
ROOM = replace(SETTINGS, room=Room(concurrency=2, threads=1, isolates=1))
AHEAD_S = (7200.0, -7200.0)


@on("postgres", "redis")
def test_wrong_clocks_neither_steal_leases_nor_keep_them(arena: Arena, report: Report, tmp_path: Path) -> None:
    arena.enqueue([arena.call("work", n, seconds=1.5 * LEASE_S if n < 6 else 0.1) for n in range(JOBS)])
    with arena.fleet() as fleet:
        wrong = [fleet.start(ROOM, env=_wrong_by(ahead_s, tmp_path / f"{ahead_s:+}")) for ahead_s in AHEAD_S]
        workers = [*wrong, fleet.start(ROOM)]
        start_s = poll(lambda: len(arena.stats().workers) == len(workers), 20, "all workers register")
        poll(lambda: {one.pid for one in arena.effects()} >= set(workers), 20, "every worker runs something")
        arena.quiesce(30)
        before = arena.evidence(fleet)
        held = arena.enqueue([arena.call("once", 60.0) for _ in range(6)])
        # Not only claimed: one that has not begun when its worker is killed would last its first 60 s elsewhere.
        poll(lambda: {one.job for one in arena.effects()} >= set(held), 20, "all of them run")
        poll(lambda: {one.pid for one in arena.effects() if one.job in held} == set(workers), 20, "by every worker")
        for pid in wrong:
            fleet.kill(pid)
        again = {one.job for one in arena.effects() if one.pid in wrong and one.job in held}
        fleet.start(ROOM)  # for the other one has no place free
        poll(lambda: _ended(arena, again), 20, "what they held runs elsewhere")
        evidence = replace(arena.evidence(fleet), recovery_s=recovery_bound(start_s=start_s, in_turn=2))
    took = [took_s for _, took_s in checker.recoveries(evidence)]

    assert checker.check(before) == []
    assert completed(before) == JOBS
    assert checker.duplicates(before) == 0
    taken = sum(len(runs) - 1 for runs in checker.runs_by_job(before.effects).values())
    assert taken == 0
    assert checker.one_terminal(evidence) + checker.bounded_duplicates(evidence) == []
    assert took
    assert checker.recovery_time(evidence) == []
    report(
        "the clocks of workers wrong by two hours, either way; then they are killed",
        injected=len(AHEAD_S),
        figures=replace(figures_of(before), recoveries=took),
        note=f"jobs of {1.5 * LEASE_S:g} s under a lease of {LEASE_S:g} s taken by others {taken}; then "
        f"killed{checker.told_bound(evidence)}",
    )


def _wrong_by(ahead_s: float, folder: Path) -> Mapping[str, str]:
    """What a worker is started with to go by such a clock."""
    folder.mkdir()
    clock = SteppedClock(folder)
    expected = clock.step(ahead_s)
    command = [*clock.prefix, sys.executable, "-c", "import time; print(time.time())"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert float(said) == pytest.approx(expected, abs=10)
    return clock.env


def _ended(arena: Arena, jobs: set[str]) -> bool:
    return {one.job for one in arena.effects() if one.what == "end"} >= jobs
