"""Row 3: a worker is paused past its lease, and comes back. Its late settlements change nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

import holdfast
from holdfast.runtime.runner import Room
from holdfast.runtime.worker import Exit
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.checker import Evidence
from tests.faults.conftest import Report
from tests.faults.workers import CLOCK, SETTINGS, Fleet, poll

LEASE_S = 1.0
JOBS = 2
_FIRST_S = 2.5
# No more room than jobs: a claim for more, on its way when they end, would keep their settlement back.
QUICK = replace(SETTINGS, room=Room(concurrency=JOBS, threads=2, isolates=2), lease_s=LEASE_S, heartbeat_s=0.25)
FENCE = re.compile(r"\n *AND state = 'running' AND token = .*")


def pause_past_the_lease(arena: Arena, fleet: Fleet, again_s: float) -> Evidence:
    """A worker is stopped for three leases with a settlement on its way, while another takes its jobs over.

    The write lock is held from outside while its jobs end, so that the settlement waits in front of the store: it is
    the first thing to happen when the worker goes on, before that can notice that its lease is over. The jobs' second
    run lasts `again_s`: it is over by then, or still goes on.
    """
    arena.enqueue([arena.call("once", _FIRST_S, again_s) for _ in range(JOBS)])
    zombie = fleet.start(QUICK)
    poll(lambda: arena.started(zombie) == JOBS, 20, "the first worker has begun all jobs")
    fleet.start(QUICK)
    poll(lambda: len(arena.stats().workers) == 2, 20, "the other worker is there")
    CLOCK.sleep(min(one.at for one in arena.effects()) + _FIRST_S - 0.2 - CLOCK.monotonic())
    with arena.write_lock():
        poll(lambda: sum(one.what == "end" for one in arena.effects()) == JOBS, 20, "the first run of each job ends")
        CLOCK.sleep(0.3)  # within the lease, and long enough for a busy machine: the settlement is on its way by now
        fleet.pause(zombie)
        paused_s = CLOCK.monotonic()
    poll(lambda: arena.started() == 2 * JOBS, 20, "the other worker has begun all jobs again")
    if again_s == 0:
        poll(lambda: arena.unfinished() == 0, 20, "the other worker has completed them")
    CLOCK.sleep(max(0.0, paused_s + 3 * LEASE_S - CLOCK.monotonic()))
    fleet.resume(zombie)
    assert fleet.wait(zombie) == Exit.REPLACE
    arena.quiesce(20)
    fleet.stop()
    return arena.evidence(fleet)


@pytest.mark.parametrize("again_s", [0.0, 2.0], ids=["completed elsewhere", "running elsewhere"])
def test_a_worker_that_was_paused_past_its_lease_changes_nothing(arena: Arena, again_s: float, report: Report) -> None:
    with arena.fleet() as fleet:
        evidence = pause_past_the_lease(arena, fleet, again_s)
        rejected = sum(int(n) for n in re.findall(r"(\d+) settlements came too late", fleet.log()))

    assert checker.check(evidence) == []
    assert rejected > 0, "no late settlement reached the store: this run shows nothing"
    assert checker.duplicates(evidence) <= JOBS
    report(f"row 3  SIGSTOP for 3 leases: late settlements rejected {rejected}, accepted 0")


def test_the_checker_goes_red_without_the_fence(arena: Arena, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(Path(holdfast.__file__).parent, source / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    shipped = source / "holdfast" / "stores" / "sqlite" / "settle.sql"
    text, cut = FENCE.subn("", shipped.read_text())
    assert cut == 2, f"{cut} fences in {shipped}"
    shipped.write_text(text)

    with arena.fleet(source=source) as fleet:
        found = checker.one_terminal(pause_past_the_lease(arena, fleet, 0.0))
    assert any(one.startswith("I2 illegal change") for one in found)
    assert any(one.startswith("I2 stale result") for one in found)
