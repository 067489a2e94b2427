"""The whole record of a job: its notes and its attempts, with the one that no store writes down: what completed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from holdfast.stores.ways import WAYS
from holdfast.types import Attempt, Change, JobRecord, JobState, Notes

_COMPLETED: Final = WAYS[Change.COMPLETE].number


def whole(record: JobRecord, attempts: list[Attempt], notes: Notes | None, settled: int) -> JobRecord:
    """The record with its attempts and notes; a completed attempt is not written down, as the record says all about it.

    `settled` is the number of the latest settlement's change: what came completed has its whole history.
    """
    last = completion_of(
        record.state,
        attempts,
        settled=settled,
        number=record.attempt,
        started_at=record.started_at,
        ended_at=record.ended_at,
        worker=record.worker,
    )
    every = attempts if last is None else [*attempts, last]
    return structs.replace(record, attempts=tuple(every), notes=notes) if every or notes else record


def completion_of(
    state: JobState,
    attempts: Sequence[Attempt],
    *,
    settled: int,
    number: int,
    started_at: float | None,
    ended_at: float | None,
    worker: str,
) -> Attempt | None:
    """The attempt that completed a job, where it is not among those that were written down."""
    if state is not JobState.COMPLETED or settled != _COMPLETED or ended_at is None:
        return None
    if any(one.outcome is Change.COMPLETE and one.number == number for one in attempts):
        return None
    return Attempt(
        number=number, started_at=ended_at if started_at is None else started_at, ended_at=ended_at, worker=worker
    )
