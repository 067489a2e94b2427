"""What must hold of a simulated fleet, beyond what the checker of all fault tests asks for."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from holdfast.types import JobState
from tests.faults import checker
from tests.faults.checker import Evidence
from tests.simulation.shop import POISON_RETRIES, RETRIES

if TYPE_CHECKING:
    from tests.simulation.world import World

_DEATHS: Final = 3
_LATEST_S: Final = 10.0


def check(world: World, evidence: Evidence) -> list[str]:
    """Every violation."""
    return [
        *checker.check(evidence),
        *_operators_are_told_the_truth(world, evidence),
        *_replays_are_run(world, evidence),
        *_steps_are_kept(world, evidence),
        *_poison_is_given_up(evidence),
        *_failures_are_counted(evidence),
        *_ticks_are_run(world, evidence),
    ]


def _operators_are_told_the_truth(world: World, evidence: Evidence) -> list[str]:
    """What somebody was told is cancelled stays so."""
    return [
        f"cancelled, they said: {job} is {evidence.jobs[job].state.value}"
        for job in sorted(world.cancelled)
        if job in evidence.jobs and evidence.jobs[job].state is not JobState.CANCELLED
    ]


def _replays_are_run(world: World, evidence: Evidence) -> list[str]:
    """A letter goes back once for each replay, and then runs, unless it is cancelled."""
    found = []
    replays = len(set(world.replays))
    starts: Counter[str] = Counter(one.job for one in evidence.effects if one.what == "start")
    lives: dict[str, int] = defaultdict(lambda: 1)
    for change in evidence.transitions:
        if (change.before, change.after) == ("dead_letter", "queued"):
            lives[change.job] += 1
    for job, n in lives.items():
        if n - 1 > replays:
            found.append(f"replayed too often: {job} went back {n - 1} times, with {replays} replays")
        if starts[job] < n and evidence.jobs[job].state is not JobState.CANCELLED:
            found.append(f"replayed in vain: {job} went back {n - 1} times and ran {starts[job]} times in all")
    return found


def _steps_are_kept(world: World, evidence: Evidence) -> list[str]:
    """A step is done again only by another run; a job that completed has done all of them."""
    done = Counter(world.steps)
    runs = {job: len(some) for job, some in checker.runs_by_job(evidence.effects).items()}
    found = [
        f"step {n} of {job} was done {times} times in {runs.get(job, 0)} runs"
        for (job, n), times in done.items()
        if times > runs.get(job, 0)
    ]
    for record in evidence.jobs.values():
        if record.task == "steps" and record.state is JobState.COMPLETED:
            found += [f"step {n} of {record.id} was not done" for n in range(3) if not done[record.id, n]]
    return found


def _poison_is_given_up(evidence: Evidence) -> list[str]:
    """What kills its worker costs three of them for each attempt, as no suspect has a process of its own here."""
    most = _DEATHS * (POISON_RETRIES + 1)
    runs = Counter(one.job for one in evidence.effects if one.task == "poison" and one.what == "start")
    runs.subtract(one.job for one in evidence.effects if one.task == "poison" and one.what == "stop")
    return [f"I4 too many: {job} has killed its worker {n} times, not {most}" for job, n in runs.items() if n > most]


def _failures_are_counted(evidence: Evidence) -> list[str]:
    """I4: no job is retried more often than its policy allows, in each of its lives."""
    retried: Counter[str] = Counter()
    found = []
    for one in evidence.transitions:
        if (one.before, one.after) == ("dead_letter", "queued"):
            retried[one.job] = 0
        elif (one.before, one.after) == ("running", "retrying"):
            retried[one.job] += 1
            if retried[one.job] > RETRIES:
                found.append(f"I4 too many: {one.job} is retried for the {retried[one.job]}th time")
    return found


def _ticks_are_run(world: World, evidence: Evidence) -> list[str]:
    """The jobs of schedules come to their end as well, but for the latest."""
    now = world.clock.now()
    return [
        f"stuck: {one.id} of a schedule is {one.state.value}"
        for one in evidence.jobs.values()
        if one.task == "tick" and not one.state.is_terminal and one.created_at < now - _LATEST_S
    ]
