"""Row 3: a worker is paused past its lease, and comes back. Its late settlements change nothing."""

from __future__ import annotations

import re

from msgspec.structs import replace

from holdfast.runtime.runner import Room
from holdfast.runtime.worker import Exit
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.checker import Evidence
from tests.faults.conftest import every_store, waits
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, SETTINGS, Fleet, poll

pytestmark = waits
LEASE_S = 1.0
JOBS = 2
_FIRST_S = 2.5
_SECOND_S = 2.5
# No more room than jobs: a claim for more, on its way when they end, would keep their settlement back.
QUICK = replace(SETTINGS, room=Room(concurrency=JOBS, threads=2, isolates=2), lease_s=LEASE_S, heartbeat_s=0.25)


def pause_past_the_lease(arena: Arena, fleet: Fleet) -> Evidence:
    """A worker is stopped for three leases with a settlement on its way, while another takes its jobs over.

    What it sends is held back from outside while its jobs end, so that the settlement waits in front of the store: it
    is the first thing to happen when the worker goes on, before that can notice that its lease is over. By then the
    second run of one job is over, and that of the other still goes on.
    """
    short, long = arena.enqueue([arena.call("once", _FIRST_S, again_s) for again_s in (0.0, _SECOND_S)])
    hold = arena.engine.hold()
    zombie = fleet.start(QUICK, url=hold.url)
    poll(lambda: arena.started(zombie) == JOBS, 20, "the first worker has begun all jobs")
    fleet.start(QUICK)
    poll(lambda: len(arena.stats().workers) == 2, 20, "the other worker is there")
    CLOCK.sleep(min(one.at for one in arena.effects()) + _FIRST_S - 0.2 - CLOCK.monotonic())
    hold.begin()
    poll(lambda: sum(one.what == "end" for one in arena.effects()) == JOBS, 20, "the first run of each job ends")
    CLOCK.sleep(0.3)  # within the lease, and long enough for a busy machine: the settlement is on its way by now
    fleet.pause(zombie)
    hold.let_others_go()
    paused_s = CLOCK.monotonic()
    poll(lambda: arena.started() == 2 * JOBS, 20, "the other worker has begun all jobs again")
    poll(lambda: arena.states([short])["completed"] == 1, 20, "the other worker has completed one of them")
    CLOCK.sleep(max(0.0, paused_s + 3 * LEASE_S - CLOCK.monotonic()))
    assert arena.states([long])["running"] == 1
    hold.end()
    fleet.resume(zombie)
    assert fleet.wait(zombie) == Exit.REPLACE
    arena.quiesce(20)
    fleet.stop()
    return arena.evidence(fleet)


@every_store
def test_a_worker_that_was_paused_past_its_lease_changes_nothing(arena: Arena, report: Report) -> None:
    with arena.fleet() as fleet:
        evidence = pause_past_the_lease(arena, fleet)
        rejected = sum(int(n) for n in re.findall(r"(\d+) settlements came too late", fleet.log()))

    assert checker.check(evidence) == []
    assert rejected == JOBS, "a late settlement did not reach the store: this run shows nothing"
    assert checker.duplicates(evidence) <= JOBS
    report(
        "a worker stopped (SIGSTOP) for three leases with settlements on their way",
        injected=len(evidence.faults),
        figures=figures_of(evidence),
        note=f"late settlements rejected {rejected}, accepted {JOBS - rejected}",
    )
