"""Work that comes with its end: which ends take effect, and what each adds to its record; the same in every store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct, structs

from holdfast.policy.lifecycle import LIFECYCLE
from holdfast.ports import Enqueued
from holdfast.stores.ways import WAYS
from holdfast.types import Attempt, Change, End, JobState, NewJob

_COMPLETE: Final = Change.COMPLETE
_NOTHING: Final = b"null"

AttemptKey = tuple[int, float]
"""Its number and when it began: what tells two attempts of one record apart."""


def are_plain(jobs: Sequence[NewJob]) -> bool:
    """Whether none of these has an idempotency key, or comes with its end: then they may be written with others'."""
    return all(job.idempotency_key is None and job.end is None for job in jobs)


def decide_ends(jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> tuple[list[Enqueued], list[NewJob]]:
    """Which of these jobs end, as if they came one after the other, and what is answered then.

    `answers` are those without the ends. Where nothing is stored, for a conflict, nothing ends.
    """
    if any(answer.is_conflict for answer in answers):
        return list(answers), []
    after: dict[str, JobState] = {}
    told: list[Enqueued] = []
    ended: list[NewJob] = []
    for job, answer in zip(jobs, answers, strict=True):
        state = after.get(answer.id, answer.state)
        if job.end is not None and answer.id == job.id and not state.is_terminal:
            state = after[job.id] = state_after(job.end)
            ended.append(job)
        told.append(structs.replace(answer, state=state))
    return told, ended


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


class Ending(Struct, frozen=True):
    """An end that takes effect, beside what its record knows already."""

    job: NewJob
    end: End
    attempts: Sequence[Attempt]
    """Those that the record has not."""

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


def ending_of(job: NewJob, known: Collection[AttemptKey] = ()) -> Ending:
    """The end of a job whose record has these attempts."""
    end = job.end
    assert end is not None  # noqa: S101 - only what comes with its end is asked about
    seen = set(known)
    fresh: list[Attempt] = []
    for one in end.attempts:
        if key_of(one) not in seen:
            seen.add(key_of(one))
            fresh.append(one)
    return Ending(job, end, fresh)
