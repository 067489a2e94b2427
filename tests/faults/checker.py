"""The checker: looks at the ledgers and at the store after a run, and says which promises were broken.

Each function is one invariant and returns its violations in words; none is the only good answer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct, json

from holdfast.policy.lifecycle import LIFECYCLE
from holdfast.types import Change, JobRecord, JobState
from tests.faults.ledger import Effect

SETTLED_S: Final = 1.0
"""What a handler ended so shortly before its process was hit may not have been settled: a worker says so with its next
exchange, which it begins at once, or when the one under way is answered. That takes hundredths of a second; the rest is
for a busy machine."""
UNSYNCED_S: Final = 0.6
"""So long a claim that came alone may not be on the disk of PostgreSQL: three times its wal_writer_delay."""
FREE_DEATHS: Final = 2
"""So many workers may die that had a job, before one more is counted against it."""
_ENDS: Final = frozenset({JobState.COMPLETED, JobState.DEAD_LETTER, JobState.CANCELLED})
_LEGAL: Final = frozenset(
    (before.value, move.after.value) for move in LIFECYCLE.values() if move.after for before in move.before
) | {("running", "running")}  # an orphan is handed to whoever judges it


class Transition(Struct, frozen=True):
    """A job's state before and after one write, as the database itself saw it."""

    job: str
    before: str
    after: str
    token: str
    """Of the latest lease."""


class Fault(Struct, frozen=True):
    """What was done to a process, and when, in monotonic time."""

    kind: str
    pid: int
    at: float
    """From here on it may have been hit."""
    until: float
    """By then it has been: the process is gone, or stands still."""


class Sample(Struct, frozen=True):
    """How many jobs the store counted, between those acked before the look and those attempted after it."""

    acked: int
    counted: int
    attempted: int


class Limit(Struct, frozen=True):
    """At most so many starts of a task in any window, over all workers."""

    task: str
    max_calls: int
    window_s: float


class Evidence(Struct, kw_only=True):
    """Everything that is known after a run has come to rest."""

    attempted: Sequence[str] = ()
    acked: Sequence[str] = ()
    effects: Sequence[Effect] = ()
    jobs: Mapping[str, JobRecord] = {}
    removed: frozenset[str] = frozenset()
    """Deleted on purpose."""
    transitions: Sequence[Transition] = ()
    faults: Sequence[Fault] = ()
    crashes: Sequence[tuple[float, float]] = ()
    """From when until when the store's server was away in a crash that it may have lost claims in which came alone."""
    hindrances: Sequence[Fault] = ()
    """What kept a process from telling the store what it had finished. It explains no second run by itself."""
    samples: Sequence[Sample] = ()
    tallies: Mapping[str, int] = {}
    """The store's own count by state, at the end."""
    max_retries: Mapping[str, int] = {}
    """By task: those whose attempts are bounded in this run."""
    limits: Sequence[Limit] = ()
    recovery_s: float | None = None
    """What a fault cut off runs again within this, by `workers.recovery_bound`; None where that is not bounded."""


class Run(Struct, frozen=True):
    """One execution of a job, by its handler's own account."""

    start: Effect
    last: Effect | None
    """How it ended; None when it was cut off."""


def runs_by_job(effects: Sequence[Effect]) -> dict[str, list[Run]]:
    """The executions of each job, in the order in which they began."""
    ends = {(one.job, one.token, one.pid): one for one in effects if one.what != "start"}
    runs: dict[str, list[Run]] = defaultdict(list)
    for one in sorted((one for one in effects if one.what == "start"), key=lambda one: one.at):
        runs[one.job].append(Run(one, ends.get((one.job, one.token, one.pid))))
    return runs


def check(evidence: Evidence) -> list[str]:
    """Every violation of every invariant."""
    return [found for invariant in INVARIANTS for found in invariant(evidence)]


def no_loss(evidence: Evidence) -> list[str]:
    """I1: every acked job is there and has ended, completed ones by their handler; nothing is there that nobody asked
    for, nor twice for one key.
    """
    found = []
    tasks = {one.task for one in evidence.effects}  # those that write the ledger
    done = {one.job for one in evidence.effects if one.what == "end"}
    for one in evidence.acked:
        if one in evidence.removed:
            continue
        job = evidence.jobs.get(one)
        if job is None:
            found.append(f"I1 lost: {one} was acked and is not in the store")
        elif job.state not in _ENDS:
            found.append(f"I1 unfinished: {one} was acked and is {job.state.value}")
        elif job.state is JobState.COMPLETED and job.task in tasks and one not in done:
            found.append(f"I1 not run: {one} is completed, and no handler has come to its end")
    found += [f"I1 unexpected: nobody enqueued {one}" for one in evidence.jobs.keys() - set(evidence.attempted)]
    keys = Counter((job.tenant, job.task, job.idempotency_key) for job in evidence.jobs.values() if job.idempotency_key)
    return found + [f"I1 twice: idempotency key {key} has {n} jobs" for key, n in keys.items() if n > 1]


def one_terminal(evidence: Evidence) -> list[str]:
    """I2: changes follow the table, so an end is final; the latest lease's result stands; a lease runs once."""
    found = [
        f"I2 illegal change: {one.job} went from {one.before} to {one.after}"
        for one in evidence.transitions
        if (one.before, one.after) not in _LEGAL
    ]
    found += stale_results(evidence)
    starts = Counter((one.job, one.token) for one in evidence.effects if one.what == "start")
    return found + [f"I2 one lease ran twice: {job} under {token}" for (job, token), n in starts.items() if n > 1]


def stale_results(evidence: Evidence) -> list[str]:
    """Of I2: settlements that were accepted though they came from another lease than the latest."""
    latest = {one.job: one for one in evidence.transitions}
    return [
        f"I2 stale result: {job.id} was held under {change.token}, its result is of {job.result!r}"
        for job in evidence.jobs.values()
        if (change := latest.get(job.id)) is not None
        and change.after == "completed"
        and job.result != json.encode(change.token)
    ]


def bounded_duplicates(evidence: Evidence) -> list[str]:
    """I3: a run is followed by another only if it failed, or its process was hit by a fault before it could be settled.

    Or the other one's was, between its claim and its start: it comes too late, and does not know it yet. Or the store
    has lost its claim, so that it knows of no such lease, in a crash just after it.
    """
    found = []
    leases = _leases(evidence)
    assert leases or not evidence.crashes, "without the store's own record nobody knows which claims a crash took"
    for job, runs in runs_by_job(evidence.effects).items():
        for run, following in pairwise(runs):
            is_failure = run.last is not None and run.last.what == "fail"
            is_stale = leases.get((job, following.start.token), 0) < leases.get((job, run.start.token), 0)
            hit = [fault.at for fault in evidence.faults if fault.pid in {following.start.pid, following.start.parent}]
            if is_stale and any(at < following.start.at for at in hit):
                continue
            if (job, run.start.token) not in leases and _is_in_crash(run, following, evidence):
                continue
            if not is_failure and all(fault.at > following.start.at for fault in _faults_of(run, evidence)):
                found.append(f"I3 duplicate: {job} ran again after {run.start.token} without failure or fault")
    return found


def _is_in_crash(run: Run, following: Run, evidence: Evidence) -> bool:
    """Whether the store's server crashed so soon after a run that its claim may not have been on the disk."""
    return any(
        run.start.at <= until and at <= min(run.start.at + UNSYNCED_S, following.start.at)
        for at, until in evidence.crashes
    )


def bounded_attempts(evidence: Evidence) -> list[str]:
    """I4: no more runs than max_retries + 1, and one as a suspect; a dead letter says why.

    Where faults hit its workers, not its own process alone, there may be one more for each, as far as these are free.
    A replay gives it all of them anew.
    """
    found = []
    processes = {one.pid for one in evidence.effects}
    replays = _replays(evidence)
    alike: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for job, runs in runs_by_job(evidence.effects).items():
        for run in runs:
            alike[job, replays.get((job, run.start.token), 0)].append(run)
    for (job, _), runs in alike.items():
        limit = evidence.max_retries.get(runs[0].start.task)
        if limit is None or len(runs) <= limit + 2:
            continue
        hits = sum(_is_worker_hit(run, evidence, processes) for run in runs)
        if len(runs) > limit + 1 + min(hits, FREE_DEATHS * (limit + 1)):
            found.append(f"I4 too many: {job} ran {len(runs)} times, with max_retries={limit}")
    for record in evidence.jobs.values():
        if record.state is JobState.DEAD_LETTER and not record.reason:
            found.append(f"I4 no reason: dead letter {record.id} does not say why")
    return found


def recovery_time(evidence: Evidence) -> list[str]:
    """I5: what a fault cut off runs again soon."""
    bound_s = evidence.recovery_s
    return [
        f"I5 late: {one.job} ran again {one.took_s:.2f} s after its worker was hit, not within {bound_s:.2f} s and the "
        f"{one.turn_s:.2f} s for which others had their turn"
        for one in _recovered(evidence)
        if bound_s is not None and one.took_s - one.turn_s > bound_s
    ]


def accounting(evidence: Evidence) -> list[str]:
    """I6: the store's counts are those of its jobs, at every look."""
    found = [
        f"I6 at a look: {one.counted} counted, with {one.acked} acked before and {one.attempted} attempted after"
        for one in evidence.samples
        if not one.acked <= one.counted <= one.attempted
    ]
    states = Counter(job.state.value for job in evidence.jobs.values())
    counted = {state: n for state, n in evidence.tallies.items() if n}
    if evidence.tallies and counted != states:
        found.append(f"I6 at the end: counted {counted}, there are {dict(states)}")
    return found


def no_false_work(evidence: Evidence) -> list[str]:
    """I7: no limit is exceeded, over all workers together."""
    found = []
    for limit in evidence.limits:
        starts = sorted(one.at for one in evidence.effects if one.what == "start" and one.task == limit.task)
        for first, beyond in zip(starts, starts[limit.max_calls :], strict=False):
            if beyond - first < limit.window_s:
                found.append(
                    f"I7 too fast: {limit.max_calls + 1} starts of {limit.task} in {beyond - first:.3f} s, not "
                    f"{limit.window_s:g} s"
                )
    return found


INVARIANTS: Final = (
    no_loss,
    one_terminal,
    bounded_duplicates,
    bounded_attempts,
    recovery_time,
    accounting,
    no_false_work,
)


# ---------------------------------------------------------------- figures


def recoveries(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Each job that a fault cut off, and the seconds until it ran again; for each death, where it took several.

    Not those that were blamed for it, as from the third death of a worker on: they wait for their retry like others.
    A worker that has lost its lease stops its runs itself: then it is from the fault that stopped it on. Where others
    followed before it ran again, nobody may have been able to go on between two of them: then it is the longest time in
    which none began.
    """
    for one in _recovered(evidence):
        yield one.job, one.took_s


class _Recovery(Struct, frozen=True):
    """A job that a fault cut off, until it ran again."""

    job: str
    took_s: float
    turn_s: float
    """Of these, how long the process in which it ran again had others first that were cut off as well."""


def _recovered(evidence: Evidence) -> Iterator[_Recovery]:
    history: dict[str, list[Transition]] = defaultdict(list)
    for one in evidence.transitions:
        history[one.job].append(one)
    cut_off = [
        (job, gap, run, following)
        for job, runs in runs_by_job(evidence.effects).items()
        for run, following in pairwise(runs)
        if (gap := _cut_off_from(run, following, evidence)) is not None
    ]
    processes = {one.pid for one in evidence.effects}
    for job, (since, until), run, following in cut_off:
        between = _between(history[job], run.start.token, following.start.token)
        if any(one.after == "retrying" for one in between):
            continue
        deaths, turn_s = max(1, _deaths(between)), 0.0
        if following.start.parent in processes:  # it runs in a process of its own, where one is run at a time
            others = (other for *_, other in cut_off if other.start.pid == following.start.pid)
            turn_s = sum(_overlap_s(other, since, until) for other in others)
        yield _Recovery(job, (until - since) / deaths, turn_s / deaths)


def _overlap_s(run: Run, since: float, until: float) -> float:
    """How long it went on between two instants."""
    return max(0.0, min(run.last.at, until) - max(run.start.at, since)) if run.last is not None else 0.0


def _cut_off_from(run: Run, following: Run, evidence: Evidence) -> tuple[float, float] | None:
    """From when until when it had to run again, if a fault cut it off."""
    again_at = following.start.at
    if run.last is not None and run.last.what == "stop" and run.last.at <= again_at:
        pids = {run.start.pid, run.start.parent}
        hits = [max(one.at, run.start.at) for one in evidence.faults if one.pid in pids and run.start.at <= one.until]
        stopped_at = max((at for at in hits if at <= run.last.at), default=0.0)
        marks = [*sorted(at for at in hits if stopped_at <= at <= again_at), again_at]
        return max(pairwise(marks), key=lambda gap: gap[1] - gap[0], default=None)
    if run.last is None or run.last.at > again_at:
        hit_at = min((max(one.at, run.start.at) for one in _faults_of(run, evidence)), default=None)
        return None if hit_at is None else (hit_at, again_at)
    return None


def blamed_early(records: Sequence[JobRecord]) -> list[str]:
    """Jobs that a worker's death was counted against, though none of them had run alone and it was not the third."""
    found = []
    for record in records:
        free = 0
        for one in record.attempts:
            is_death = one.error_name.rpartition(".")[2] == "WorkerDied"
            if one.outcome is Change.RELEASE:
                free += is_death
                continue
            if is_death and free < FREE_DEATHS:
                found.append(f"{record.id} is charged with attempt {one.number}, after {free} deaths at no cost")
            free = 0
    return found


def told_bound(evidence: Evidence) -> str:
    """What a finding adds of how soon what was cut off had to run again, and did."""
    if evidence.recovery_s is None:
        return ""
    soon = "no job cut off amid its run"
    if found := list(_recovered(evidence)):
        last = max(found, key=lambda one: one.took_s)
        turns = f", {last.turn_s:.2f} s of it the turns of others" if last.turn_s else ""
        soon = f"{len(found)} jobs cut off, running again after at most {last.took_s:.2f} s{turns}"
    return f", {soon} (bound {evidence.recovery_s:.1f} s)"


def _leases(evidence: Evidence) -> dict[tuple[str, str], int]:
    """The place of each lease of each job in the audit trail."""
    return {(one.job, one.token): n for n, one in reversed(list(enumerate(evidence.transitions)))}


def _replays(evidence: Evidence) -> dict[tuple[str, str], int]:
    """How often a job had been replayed before each of its leases."""
    counts: Counter[str] = Counter()
    found: dict[tuple[str, str], int] = {}
    for one in evidence.transitions:
        counts[one.job] += (one.before, one.after) == ("dead_letter", "queued")
        found.setdefault((one.job, one.token), counts[one.job])
    return found


def _between(changes: Sequence[Transition], first: str, second: str) -> Sequence[Transition]:
    """What became of a job from one of its leases to another."""
    claims = {one.token: n for n, one in enumerate(changes) if one.after == "running"}
    return changes[claims.get(first, 0) : claims.get(second, 0)]


def _deaths(changes: Sequence[Transition]) -> int:
    """How often somebody else had it than whoever held it before: that one was dead, whether it had begun or not."""
    return sum(sooner.after == "running" and later.token != sooner.token for sooner, later in pairwise(changes))


def duplicates(evidence: Evidence) -> int:
    """How many effects were done more than once: ends beyond each job's first."""
    ends = Counter(one.job for one in evidence.effects if one.what == "end")
    return sum(n - 1 for n in ends.values())


def per_10k(n: int, evidence: Evidence) -> float:
    """So many for each 10,000 jobs."""
    return 10_000 * n / max(1, len(evidence.acked))


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so large a share of them does not exceed; 0 where there are none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def _faults_of(run: Run, evidence: Evidence) -> Iterator[Fault]:
    """What may have hit a run: faults of its process or its worker, neither over before it began nor long after it."""
    pids = {run.start.pid, run.start.parent}
    for one in evidence.faults:
        if one.pid in pids and run.start.at <= one.until and not _is_settled(run, one.at, evidence):
            yield one


def _is_worker_hit(run: Run, evidence: Evidence, processes: Container[int]) -> bool:
    """Whether a fault may have hit the worker that had it, and not just the process of its own that it ran in."""
    parent = run.start.parent
    return any(one.pid == parent or parent not in processes for one in _faults_of(run, evidence))


def _is_settled(run: Run, by: float, evidence: Evidence) -> bool:
    """Whether it has ended so long before an instant that the store must know."""
    if run.last is None or run.last.at + SETTLED_S >= by:
        return False
    pids = {run.start.pid, run.start.parent}
    free_s, since = 0.0, run.last.at
    for one in sorted((one for one in evidence.hindrances if one.pid in pids), key=lambda one: one.at):
        free_s += max(0.0, min(one.at, by) - since)
        since = max(since, one.until)
    return free_s + max(0.0, by - since) > SETTLED_S
