"""Row 4: all workers of a host stand still at once. Others do their work, and when they thaw they change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from holdfast.runtime.runner import Room
from holdfast.runtime.worker import Exit
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.cgroups import Group, group
from tests.faults.checker import Fault
from tests.faults.conftest import small_on, waits
from tests.faults.engines import is_free
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, SETTINGS, Fleet, poll, recovery_bound

pytestmark = waits
LEASE_S = 1.0
HOST = 2
EACH = 4
QUICK = replace(SETTINGS, room=Room(concurrency=EACH, threads=2, isolates=2), lease_s=LEASE_S, heartbeat_s=0.25)
_TRIES = 10


@small_on("sqlite")
def test_a_frozen_host_loses_its_jobs_to_the_others_and_changes_nothing_when_it_thaws(
    arena: Arena, is_full: bool, report: Report
) -> None:
    rounds = 4 if is_full else 1
    drained: list[float] = []
    with group("freezer") as host, arena.fleet() as fleet:
        others = [fleet.start(QUICK) for _ in range(HOST)]
        start_s = 0.0
        for _ in range(rounds):
            began_s = CLOCK.monotonic()
            cold = [fleet.start(QUICK) for _ in range(HOST)]
            for pid in cold:
                host.add(pid)
            poll(lambda: len(arena.stats().workers) == 2 * HOST, 20, "all workers register")
            start_s = max(start_s, CLOCK.monotonic() - began_s)
            with _frozen_amid(host, cold, arena, fleet):
                frozen_s = CLOCK.monotonic()
                arena.enqueue([arena.call("work", n, seconds=0.02) for n in range(40)])
                drained.append(arena.quiesce(20 * LEASE_S + start_s))
                CLOCK.sleep(max(0.0, frozen_s + 3 * LEASE_S - CLOCK.monotonic()))
            codes = {fleet.wait(pid) for pid in cold}
            assert codes == {Exit.REPLACE}, fleet.log()
        assert fleet.running == others, fleet.log()
        fleet.stop()
        evidence = arena.evidence(fleet)

    # For what was cut off twice as many processes start at once as workers did, beside the two that are at work.
    evidence = replace(evidence, recovery_s=recovery_bound(LEASE_S, start_s=start_s, at_once=3))
    assert checker.check(evidence) == []
    # Those that were cut off have no second attempt to lose: completed means that the freeze was held against none.
    # Each is cut off once, as the others lose no lease; that never counts where several run in a process.
    assert completed(evidence) == len(evidence.acked), arena.states(evidence.acked)
    assert list(checker.recoveries(evidence)), "no job was cut off: this run shows nothing"
    report(
        f"all {HOST} workers of one host are frozen amid jobs for 3 leases, the {HOST} of another go on",
        injected=rounds,
        figures=figures_of(evidence),
        note=f"everything was done {max(drained):.1f} s after the freeze; thawed workers ended, to be replaced"
        f"{checker.told_bound(evidence)}",
    )


@contextmanager
def _frozen_amid(host: Group, cold: list[int], arena: Arena, fleet: Fleet) -> Iterator[None]:
    """A freeze that hits running jobs, and nobody in the middle of a write: that one would hold SQLite's write lock."""
    for _ in range(_TRIES):
        known = arena.started()
        arena.enqueue([arena.call("once", 2 * LEASE_S, 0.05) for _ in range(2 * HOST * EACH)])
        poll(lambda known=known: arena.started() >= known + 2 * HOST * EACH, 20, "all run")  # type: ignore[misc]
        CLOCK.sleep(0.15)  # nobody claims or settles any more
        at = CLOCK.monotonic()
        host.freeze()
        try:
            if all(arena.is_busy(pid) for pid in cold) and is_free(arena.engine):
                fleet.faults += [Fault("freeze", pid, at, CLOCK.monotonic()) for pid in cold]
                yield
                return
        finally:
            host.thaw()
        arena.quiesce(20)
    raise AssertionError("no freeze hit a running job: this run shows nothing")
