"""Row 6: jobs that kill their worker. They run out of attempts, and their neighbours are not punished."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.types import JobState
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.conftest import small_on
from tests.faults.report import Report, figures_of
from tests.faults.shop import POISON_RETRIES
from tests.faults.workers import CLOCK


@small_on("sqlite")
def test_poison_ends_in_the_dead_letters_and_its_neighbours_complete(
    arena: Arena, is_full: bool, report: Report
) -> None:
    killers, jobs = (5, 1_000) if is_full else (2, 400)
    calls = [arena.call("work", number) for number in range(jobs - killers)]
    poison = [arena.call("poison") for _ in range(killers)]
    for n, call in enumerate(poison):
        calls.insert(n * jobs // killers + 50, call)
    arena.enqueue(calls, at_once=jobs)
    began_s = CLOCK.monotonic()
    with arena.fleet() as fleet:
        fleet.supervise(2)
        arena.quiesce(60)
        took_s = CLOCK.monotonic() - began_s
        fleet.stop()
        evidence = arena.evidence(fleet)
    letters = arena.get([call.job.id for call in poison])
    runs = checker.runs_by_job(evidence.effects)
    deaths = {run.start.pid for call in poison for run in runs[call.job.id]}
    # Each death is a fault of its own making, for the neighbours that were hit by it.
    last = {pid: max(one.at for one in evidence.effects if pid in {one.pid, one.parent}) for pid in deaths}
    faults = [checker.Fault("abort", pid, last[pid], last[pid]) for pid in deaths]
    evidence = replace(evidence, faults=faults, max_retries={"poison": POISON_RETRIES})

    assert checker.no_loss(evidence) + checker.one_terminal(evidence) + checker.accounting(evidence) == []
    assert checker.bounded_duplicates(evidence) == []
    # To the killers these are no faults of others, which would be free: each is run alone from its second run on.
    assert checker.bounded_attempts(replace(evidence, faults=())) == []
    assert sum(job.state is JobState.COMPLETED for job in evidence.jobs.values()) == jobs - killers
    assert {letter.state for letter in letters} == {JobState.DEAD_LETTER}
    assert {letter.error_name.rpartition(".")[2] for letter in letters} == {"WorkerDied"}
    assert {letter.reason for letter in letters} == {"retries used up"}
    report(
        "jobs that abort their process, among others",
        injected=killers,
        figures=figures_of(evidence),
        note=f"all of them dead letters as WorkerDied, runs of each {sorted(len(runs[one.id]) for one in letters)}, "
        f"{len(deaths)} processes died, all ended {took_s:.1f} s after the start",
    )
