"""Row 3: a worker is paused past its lease, and comes back. Its late settlements change nothing."""

from __future__ import annotations

from msgspec import json
from msgspec.structs import replace

from holdfast.ports import Query
from holdfast.runtime.runner import Room
from holdfast.runtime.worker import Exit
from holdfast.types import JobState
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.checker import Evidence
from tests.faults.conftest import every_store, full_only, waits
from tests.faults.cut_off import refused
from tests.faults.engines import is_free
from tests.faults.load import Dice, mixed_calls
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, LEASE_S, SETTINGS, Fleet, poll, recovery_bound

pytestmark = waits
JOBS = 2
_FIRST_S = 5.0
_HELD_S = 0.6
"""Before its jobs end, what it sends is held back."""
_PAUSE_S = 3 * LEASE_S
# A second run begins at the very beginning of the pause at the soonest, so this one outlives it in any case.
_SECOND_S = _PAUSE_S + 1.0
# No more room than jobs: a claim for more, on its way when they end, would keep their settlement back.
QUICK = replace(SETTINGS, room=Room(concurrency=JOBS, threads=2, isolates=2), heartbeat_s=0.25)
WORKERS = 4
ROUNDS = 5
AT_ONCE = 2
CALM = replace(SETTINGS, room=Room(concurrency=4, threads=2, isolates=1))
_TRIES = 100


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
    start_s = poll(lambda: len(arena.stats().workers) == 2, 20, "the other worker is there")
    CLOCK.sleep(max(0.0, min(one.at for one in arena.effects()) + _FIRST_S - _HELD_S - CLOCK.monotonic()))
    held_s = CLOCK.monotonic()
    hold.begin()
    poll(lambda: sum(one.what == "end" for one in arena.effects()) == JOBS, 20, "the first run of each job ends")
    CLOCK.sleep(0.5)  # within the lease, and long enough for a busy machine: the settlement is on its way by now
    fleet.pause(zombie)
    fleet.faults[-1] = replace(fleet.faults[-1], at=held_s)  # what it has sent since then has not arrived
    hold.let_others_go()
    paused_s = CLOCK.monotonic()
    poll(lambda: arena.started() == 2 * JOBS, 20, "the other worker has begun all jobs again")
    poll(lambda: arena.states([short])["completed"] == 1, 20, "the other worker has completed one of them")
    CLOCK.sleep(max(0.0, paused_s + _PAUSE_S - CLOCK.monotonic()))
    assert arena.states([long])["running"] == 1
    hold.end()
    fleet.resume(zombie)
    assert fleet.wait(zombie) == Exit.REPLACE
    arena.quiesce(20)
    fleet.stop()
    return replace(arena.evidence(fleet), recovery_s=recovery_bound(start_s=start_s))


@every_store
def test_a_worker_that_was_paused_past_its_lease_changes_nothing(arena: Arena, report: Report) -> None:
    with arena.fleet() as fleet:
        evidence = pause_past_the_lease(arena, fleet)
        rejected = refused(fleet)

    assert checker.check(evidence) == []
    assert completed(evidence) == len(evidence.acked)  # they have no second attempt to lose, and lost none
    assert rejected == JOBS, "a late settlement did not reach the store: this run shows nothing"
    assert checker.duplicates(evidence) <= JOBS
    report(
        "a worker stopped (SIGSTOP) for three leases with settlements on their way",
        injected=len(evidence.faults),
        figures=figures_of(evidence),
        note=f"late settlements rejected {rejected}, accepted {JOBS - rejected}{checker.told_bound(evidence)}",
    )


@full_only
@every_store
def test_workers_paused_at_random_under_load_repeat_only_what_they_held(arena: Arena, report: Report) -> None:
    dice = Dice()
    calls = mixed_calls(arena.app, 4_000, dice, seconds=0.1)
    a_share = len(calls) // ROUNDS
    held = 0
    gone_s: dict[int, float] = {}
    with arena.fleet() as fleet:
        pids = [fleet.start(CALM) for _ in range(WORKERS)]
        starts = [poll(lambda: len(arena.stats().workers) == WORKERS, 30, "all workers register")]
        for n in range(ROUNDS):
            arena.enqueue(calls[n * a_share : (n + 1) * a_share])
            victims = [pids.pop(dice.below(len(pids))) for _ in range(AT_ONCE)]
            for pid in victims:
                _pause_amid(arena, fleet, pid)
                held += len(_held(arena, pid))
            paused_s = CLOCK.monotonic()
            arena.sample()
            CLOCK.sleep(max(0.0, paused_s + 3 * CALM.lease_s - CLOCK.monotonic()))
            for pid in victims:
                fleet.resume(pid)
            for pid in victims:
                assert fleet.wait(pid) == Exit.REPLACE, fleet.log()
                gone_s[pid] = CLOCK.monotonic()
            pids += [fleet.start(CALM) for _ in range(AT_ONCE)]
            starts.append(poll(lambda: len(arena.stats().workers) == WORKERS, 30, "others are in their place"))
        drained_s = arena.quiesce(60)
        assert fleet.running == pids, fleet.log()
        fleet.stop()
        evidence = arena.evidence(fleet)
        rejected = refused(fleet)
        blamed = checker.blamed_early(arena.get(evidence.acked))

    # Until it has noticed that its lease is over, it may begin what it had claimed before.
    faults = [replace(fault, until=gone_s[fault.pid]) for fault in evidence.faults]
    # What was cut off is a suspect, and a process of its own has to start for it: no more at once than workers did.
    evidence = replace(evidence, faults=faults, recovery_s=recovery_bound(start_s=max(starts)))
    assert checker.check(evidence) == []
    # What a pause cuts off runs next, on the two that go on, and has ended long before the next one.
    assert completed(evidence) == len(evidence.acked), arena.states(evidence.acked)
    assert blamed == []
    assert list(checker.recoveries(evidence)), "no pause cut a job off: this run shows nothing"
    late, accepted = _late(evidence)
    assert late > 0, "no paused job came to its end after it had run elsewhere: this run shows nothing"
    assert accepted == 0
    assert checker.duplicates(evidence) <= held
    report(
        f"random workers of {WORKERS} stopped (SIGSTOP) for three leases under load, {AT_ONCE} at a time",
        injected=len(evidence.faults),
        figures=figures_of(evidence),
        note=f"{held} jobs held by them, blamed for it {len(blamed)}, {late} ended late; late settlements "
        f"rejected {rejected}, accepted {accepted}{checker.told_bound(evidence)}, drained {drained_s:.1f} s after the "
        "last",
        seed=dice.seed,
    )


def _pause_amid(arena: Arena, fleet: Fleet, pid: int) -> None:
    """Stop a worker while jobs run in it, and not in the middle of a write: it would hold SQLite's write lock."""
    for _ in range(_TRIES):
        fleet.pause(pid)
        if arena.is_busy(pid) and is_free(arena.engine):
            return
        fleet.resume(pid)
        fleet.faults.pop()  # it was much shorter than a lease, and explains nothing
        CLOCK.sleep(0.02)
    raise AssertionError("no pause hit a running job: this run shows nothing")


def _held(arena: Arena, pid: int) -> list[str]:
    """The jobs that are a worker's by what the store says."""
    (worker,) = (one.id for one in arena.stats().workers if one.pid == pid)
    page = arena.app.bridge.run(arena.app.store.find(Query(states=(JobState.RUNNING,), limit=500)))
    return [job.id for job in page.items if job.worker == worker]


def _late(evidence: Evidence) -> tuple[int, int]:
    """How many runs came to their end under a lease that was not the job's latest by then, and settled it anyway."""
    ends = [one for one in evidence.effects if one.what == "end"]
    latest = {one.job: one.token for one in evidence.transitions if one.after == "running"}
    late = [one for one in ends if latest[one.job] != one.token]
    return len(late), sum(evidence.jobs[one.job].result == json.encode(one.token) for one in late)
