"""Row 8: a worker is told to stop under load. What runs is finished or given back at once, and costs nothing."""

from __future__ import annotations

import signal

import pytest
from msgspec.structs import replace

from holdfast.runtime.runner import Room
from holdfast.runtime.worker import Exit
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.conftest import every_store, small_on, waits
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, SETTINGS, poll, recovery_bound

pytestmark = waits
GRACE_S = 8.0
BUSY = replace(SETTINGS, room=Room(concurrency=8, threads=4, isolates=2), grace_s=GRACE_S)


# Which signal it was is forgotten before any store hears of it.
@pytest.mark.parametrize(
    ("engine", "number"),
    [("sqlite", signal.SIGTERM), ("postgres", signal.SIGTERM), ("redis", signal.SIGTERM), ("sqlite", signal.SIGINT)],
    indirect=["engine"],
)
def test_a_stop_finishes_what_runs_and_gives_back_the_rest(arena: Arena, number: int, report: Report) -> None:
    tasks = ("work", "toil")
    # More than it can begin before it is told to stop, however late that is: these take seconds.
    arena.enqueue([arena.call(tasks[n % 2], n, seconds=0.2) for n in range(240)])
    with arena.fleet() as fleet:
        pid = fleet.start(BUSY)
        poll(lambda: arena.started() >= 20, 20, "the worker is busy")
        fleet.send(pid, number)
        began_s = CLOCK.monotonic()
        code = fleet.wait(pid)
        assert code == Exit.DRAINED, fleet.log(pid)
        drained_s = CLOCK.monotonic() - began_s
        begun = {one.job for one in arena.effects()}
        states = {job.id: job.state.value for job in arena.records().values()}
        assert {states[one] for one in begun} == {"completed"}
        assert {states[one] for one in states.keys() - begun} == {"queued"}
        fleet.start(BUSY)
        arena.quiesce(30)
        fleet.stop()
        evidence = arena.evidence(fleet)

    assert drained_s < GRACE_S
    assert checker.check(evidence) == []
    assert checker.duplicates(evidence) == 0
    name = signal.Signals(number).name
    report(
        f"a worker told to stop ({name}) under load",
        injected=1,
        figures=figures_of(evidence),
        note=f"drained in {drained_s:.2f} s, {len(begun)} jobs begun, "
        f"{len(states) - len(begun)} left queued, exit {code}",
    )


@every_store
def test_a_grace_time_that_is_too_short_gives_jobs_back_at_once_and_at_no_cost(arena: Arena, report: Report) -> None:
    ids = arena.enqueue([arena.call("once", 60.0) for _ in range(4)])
    with arena.fleet() as fleet:
        pid = fleet.start(replace(BUSY, grace_s=0.3))
        poll(lambda: arena.started() == 4, 20, "all jobs run")
        code = fleet.cut(pid, signal.SIGTERM)
        assert code == Exit.RELEASED, fleet.log(pid)
        states = arena.states(ids)
        fleet.start(BUSY)
        arena.quiesce(20)  # they have no second attempt to lose: completed means that the first was not counted
        fleet.stop()
        evidence = arena.evidence(fleet)

    assert states == {"queued": 4}
    assert checker.check(evidence) == []
    assert arena.states(ids) == {"completed": 4}
    assert {len(record.attempts) for record in arena.get(ids)} == {1}
    charged = sum(len(record.attempts) - 1 for record in arena.get(ids))
    report(
        "a worker told to stop, with a grace time that is too short",
        injected=1,
        figures=figures_of(evidence),
        note=f"exit {code}, {states['queued']} of {len(ids)} running jobs queued again at exit, attempts "
        f"charged {charged}",
    )


@small_on("redis")
def test_a_second_signal_ends_it_at_once_and_its_jobs_run_elsewhere(arena: Arena, report: Report) -> None:
    ids = arena.enqueue([arena.call("once", 60.0) for _ in range(4)])
    with arena.fleet() as fleet:
        pid = fleet.start(replace(BUSY, grace_s=60.0))
        poll(lambda: arena.started() == 4, 20, "all jobs run")
        fleet.send(pid, signal.SIGTERM)
        CLOCK.sleep(0.2)
        assert pid in fleet.running
        began_s = CLOCK.monotonic()
        code = fleet.cut(pid, signal.SIGTERM)
        ended_s = CLOCK.monotonic() - began_s
        other = fleet.start(BUSY)
        start_s = poll(lambda: other in {one.pid for one in arena.stats().workers}, 20, "another one is there")
        arena.quiesce(30)
        fleet.stop()
        evidence = arena.evidence(fleet)

    assert code == 128 + signal.SIGTERM
    assert ended_s < 1.0
    evidence = replace(evidence, recovery_s=recovery_bound(start_s=start_s, in_turn=2))  # it, and then the suspects'
    assert checker.check(evidence) == []
    assert arena.states(ids) == {"completed": 4}
    report(
        "a worker told to stop twice",
        injected=1,
        figures=figures_of(evidence),
        note=f"gone in {ended_s:.2f} s, exit {code}, {arena.states(ids)['completed']} of {len(ids)} jobs completed "
        f"elsewhere{checker.told_bound(evidence)}",
    )
