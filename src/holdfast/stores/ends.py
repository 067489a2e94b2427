"""Work that comes with its end: which ends take effect, and what each adds to its record; the same in every store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct, structs

from holdfast.policy.lifecycle import LIFECYCLE, is_allowed
from holdfast.ports import Enqueued
from holdfast.stores.history import completion_of
from holdfast.stores.ways import WAYS
from holdfast.types import Attempt, Change, End, JobState, NewJob

_COMPLETE: Final = Change.COMPLETE
_NOTHING: Final = b"null"
BEHIND_S: Final = 1.0
"""So far may a worker's idea of the store's clock be behind it; and rather a letter too many than one too few."""

AttemptKey = tuple[int, float]
"""Its number and when it began: what tells two attempts of one record apart."""


def are_plain(jobs: Sequence[NewJob]) -> bool:
    """Whether none of these has an idempotency key, or comes with its end: then they may be written with others'."""
    return all(job.idempotency_key is None and job.end is None for job in jobs)


def rounds_of(jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> list[dict[int, NewJob]]:
    """Those of these jobs that come with their end, by their place, in rounds that have none twice.

    `answers` are those without the ends. Where nothing is stored, for a conflict, nothing ends.
    """
    if any(answer.is_conflict for answer in answers):
        return []
    rounds: list[dict[int, NewJob]] = []
    times: Counter[str] = Counter()
    for place, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
        if job.end is not None and answer.id == job.id:
            times[job.id] += 1
            if times[job.id] > len(rounds):
                rounds.append({})
            rounds[times[job.id] - 1][place] = job
    return rounds


def with_states(answers: Sequence[Enqueued], states: Mapping[int, JobState]) -> list[Enqueued]:
    """What is answered, as if the jobs came one after the other; `states` are those after each end, by its place."""
    after: dict[str, JobState] = {}
    told = []
    for place, answer in enumerate(answers):
        if place in states:
            after[answer.id] = states[place]
        told.append(structs.replace(answer, state=after.get(answer.id, answer.state)))
    return told


def state_after(end: End) -> JobState:
    """The state that an end leads to."""
    state = LIFECYCLE[end.change].after
    assert state is not None  # noqa: S101 - no end deletes the record
    return state


def settled_by(end: End) -> int:
    """What the record says of the change that settled it; of a completion nothing, as no worker of ours ran it.

    So `get` makes up no attempt of it: the end has the whole history.
    """
    return 0 if end.change is _COMPLETE else WAYS[end.change].number


def key_of(attempt: Attempt) -> AttemptKey:
    """What tells it from the others of its record."""
    return attempt.number, attempt.started_at


class Known(Struct, frozen=True):
    """What is known of work when an end of it comes."""

    state: JobState = JobState.QUEUED
    changed_at: float = 0.0
    """When it came into its state."""
    attempts: Sequence[Attempt] = ()
    """Those that are written down."""
    completion: Attempt | None = None
    """The attempt that completed it, where it is not among them: see `history.py`."""


NEW: Final = Known()


class Row(Protocol):
    """What a store with rows has of a job beside its attempts, in the words of its columns."""

    state: JobState
    changed_at: float
    settled: int
    attempt: int
    started_at: float | None
    worker: str


def known_of(row: Row, attempts: Sequence[Attempt]) -> Known:
    """The same of a row, and of the attempts that are written down of it."""
    completion = completion_of(
        row.state,
        attempts,
        settled=row.settled,
        number=row.attempt,
        started_at=row.started_at,
        ended_at=row.changed_at,
        worker=row.worker,
    )
    return Known(row.state, row.changed_at, attempts, completion)


class Ending(Struct, frozen=True):
    """An end that takes effect, beside what its record knows already."""

    job: NewJob
    end: End
    attempts: Sequence[Attempt]
    """Those to be written down."""

    @property
    def result(self) -> bytes | None:
        """What it returned, as JSON."""
        return _NOTHING if self.end.change is _COMPLETE else None

    @property
    def last(self) -> Attempt | None:
        """The latest of the attempts."""
        return self.attempts[-1] if self.attempts else None

    @property
    def failure(self) -> Attempt | None:
        """The latest of the attempts that failed."""
        return next((one for one in reversed(self.attempts) if one.failure_type is not None), None)

    @property
    def first_failed_at(self) -> float | None:
        """When the first of them failed."""
        return next((one.ended_at for one in self.attempts if one.failure_type is not None), None)


def may_end(job: NewJob, state: JobState) -> bool:
    """Whether its end may take effect in this state; only a look at the attempts says whether what has ended does."""
    return job.end is not None and (not state.is_terminal or is_allowed(state, job.end.change, is_again=True))


def ending_of(job: NewJob, known: Known = NEW) -> Ending | None:
    """The end of a job of which so much is known; None where it takes no effect."""
    end = job.end
    if end is None or not may_end(job, known.state):
        return None
    told = () if known.completion is None else (known.completion,)
    seen = {key_of(one) for one in (*known.attempts, *told)}
    fresh: list[Attempt] = []
    for one in end.attempts:
        if key_of(one) not in seen:
            seen.add(key_of(one))
            fresh.append(one)
    if known.state.is_terminal and not any(one.ended_at >= known.changed_at - BEHIND_S for one in fresh):
        return None
    return Ending(job, end, (*told, *fresh))
