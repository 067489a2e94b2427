"""The attempts of a job, with the one that no store writes down: the one that completed it."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from holdfast.stores.ways import WAYS
from holdfast.types import Attempt, Change, JobRecord, JobState

_COMPLETED: Final = WAYS[Change.COMPLETE].number


def with_attempts(record: JobRecord, attempts: list[Attempt], settled: int) -> JobRecord:
    """The record with its attempts; a completed one is not in the history, as the record says all about it.

    `settled` is the number of the latest settlement's change: what came completed has its whole history.
    """
    ended_at = record.ended_at
    is_by_worker = record.state is JobState.COMPLETED and settled == _COMPLETED
    if is_by_worker and ended_at is not None and not _is_remembered(record.attempt, attempts):
        started_at = ended_at if record.started_at is None else record.started_at
        last = Attempt(number=record.attempt, started_at=started_at, ended_at=ended_at, worker=record.worker)
        attempts = [*attempts, last]
    return structs.replace(record, attempts=tuple(attempts)) if attempts else record


def _is_remembered(number: int, attempts: list[Attempt]) -> bool:
    """Whether the history has the attempt that completed the job already."""
    return any(one.outcome is Change.COMPLETE and one.number == number for one in attempts)
