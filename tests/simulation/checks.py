"""What must hold of a simulated fleet, beyond what the checker of all fault tests asks for."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from holdfast.types import JobState
from tests.faults import checker
from tests.faults.checker import Evidence
from tests.simulation.shop import MAX_RETRIES, POISON_RETRIES, RETRIES, TRIALS
from tests.simulation.weather import LEASE_S

if TYPE_CHECKING:
    from tests.simulation.world import World

_DEATHS: Final = 3
_RECOVERY_S: Final = LEASE_S + 0.5 + 1.0
"""Lease, sweep interval and a second."""
_UNDER_WAY_S: Final = 6.0
"""So long before its end a worker may have sent a heartbeat that arrives after it."""


def check(world: World, evidence: Evidence) -> list[str]:
    """Every violation."""
    return [
        *checker.check(evidence),
        *_operators_are_told_the_truth(world, evidence),
        *_replays_are_run(world, evidence),
        *_steps_are_kept(world, evidence),
        *_poison_is_given_up(evidence),
        *_failures_are_counted(evidence),
        *_runs_are_few(world, evidence),
        *_orphans_are_found(world),
        *_trials_are_few(world, evidence),
        *_nothing_is_begun_while_open(world),
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


def _runs_are_few(world: World, evidence: Evidence) -> list[str]:
    """I4: what its policy allows in each of its lives, one as a suspect, and one for each that a fault may have hit."""
    found = []
    lives = Counter(one.job for one in evidence.transitions if (one.before, one.after) == ("dead_letter", "queued"))
    for job, runs in checker.runs_by_job(evidence.effects).items():
        retries = MAX_RETRIES.get(runs[0].start.task)
        hit = sum(world.is_hit(run.start, run.last) for run in runs)
        if retries is not None and len(runs) > (1 + lives[job]) * (retries + 1) + 1 + hit:
            found.append(f"I4 too many: {job} ran {len(runs)} times, with max_retries={retries}")
    return found


def _orphans_are_found(world: World) -> list[str]:
    """I5: what a dead worker held is taken back in time, where others live and nothing is wrong with any of them.

    That it then runs at once cannot be asked for: it may have to wait for a place, a limit or a breaker.
    """
    found = []
    lives = world.watch.lives
    for one in world.watch.orphans:
        until_s = one.at + _RECOVERY_S
        others = [life for number, life in lives.items() if number != one.machine and life.overlaps(one.at, until_s)]
        is_whole = any(life.born_s < one.at and life.ended_s > until_s for life in others)
        is_calm = is_whole and all(life.is_well(one.at, until_s) for life in others)
        is_calm = is_calm and lives[one.machine].is_well(one.at - _UNDER_WAY_S, one.at - 1e-9)
        if is_calm and world.loop.time() > until_s:
            again_s = next((at for at in world.watch.changes[one.job] if at > one.at), float("inf"))
            if again_s > until_s:
                found.append(f"I5 late: {one.job} was left with a dead worker for {again_s - one.at:.2f} s")
    return found


def _trials_are_few(world: World, evidence: Evidence) -> list[str]:
    """I7: of one half-open period of the breaker, no more trials than it has are in flight, over all workers."""
    steps: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for job, runs in checker.runs_by_job(evidence.effects).items():
        for run in runs:
            permit = world.watch.permits.get((job, run.start.token))
            if permit is not None and permit.trial is not None:
                end_s = world.watch.lives[run.start.pid].ended_s if run.last is None else run.last.at
                steps[permit.period] += [(run.start.at, 1), (end_s, -1)]
    found = []
    for period, some in steps.items():
        most = max(itertools.accumulate(step for _, step in sorted(some)))
        if most > TRIALS:
            found.append(f"I7 trials: {most} at once in period {period} of the breaker, not {TRIALS}")
    return found


def _nothing_is_begun_while_open(world: World) -> list[str]:
    """I7: who is handed a job is told with it what the breaker is: a permit of an earlier period is for earlier claims.

    Those are what the docs allow for: in flight then, or begun while it was on its way that the breaker has opened.
    """
    found = []
    for (job, token), permit in world.watch.permits.items():
        claimed_s, over_s = world.watch.claims[job, token], world.watch.over_at(permit.period)
        if claimed_s > over_s:
            found.append(f"I7 while open: {job} was claimed {claimed_s - over_s:.3f} s after its permit was void")
    return found
