"""The attempts of a job, with the one that no store writes down: the one that completed it."""

from __future__ import annotations

from msgspec import structs

from holdfast.types import Attempt, Change, JobRecord, JobState


def with_attempts(record: JobRecord, attempts: list[Attempt]) -> JobRecord:
    """The record with its attempts; a completed one is not in the history, as the record says all about it."""
    ended_at = record.ended_at
    is_derived = record.state is JobState.COMPLETED and not _is_remembered(record.attempt, attempts)
    if is_derived and ended_at is not None:
        started_at = ended_at if record.started_at is None else record.started_at
        last = Attempt(number=record.attempt, started_at=started_at, ended_at=ended_at, worker=record.worker)
        attempts = [*attempts, last]
    return structs.replace(record, attempts=tuple(attempts)) if attempts else record


def _is_remembered(number: int, attempts: list[Attempt]) -> bool:
    """Whether the history has the attempt that completed the job already."""
    return any(one.outcome is Change.COMPLETE and one.number == number for one in attempts)
