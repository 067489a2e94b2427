"""Ends of jobs that did not run here, as the script takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import msgpack

from holdfast.errors import Unwritable
from holdfast.stores.ends import settled_by, state_after
from holdfast.stores.redis.call import Texts
from holdfast.stores.redis.state import NUMBERS
from holdfast.types import Attempt, End, NewJob

_encode = msgpack.Encoder().encode


def end_rows(jobs: Sequence[NewJob], texts: Texts) -> list[tuple[Any, ...]]:
    """One row for each job that comes with its end; of one that cannot be written, says whose it is."""
    rows: list[tuple[Any, ...]] = []
    for place, job in enumerate(jobs, start=1):
        if job.end is not None:
            try:
                rows.append(row := _row(place, job.end, texts))
                _encode(row)
            except (ValueError, TypeError, OverflowError) as error:
                raise Unwritable(job.id, error) from error
    return rows


def _row(place: int, end: End, texts: Texts) -> tuple[Any, ...]:
    return (
        place,
        settled_by(end),
        NUMBERS[state_after(end)],
        -1 if end.keep_s is None else max(0.0, end.keep_s),
        end.reason,
        [_attempt(attempt, texts) for attempt in end.attempts],
    )


def _attempt(attempt: Attempt, texts: Texts) -> tuple[Any, ...]:
    n_attempt, n_failure = texts.number_of(_encode(attempt)), 0
    if attempt.failure_type is not None:
        n_failure = texts.number_of(failure_text(attempt))
    return attempt.number, attempt.started_at, attempt.worker, n_attempt, n_failure, attempt.ended_at


def failure_text(attempt: Attempt) -> bytes:
    """What a job remembers of its latest failure; `records.py` reads it."""
    words = (attempt.error_name, attempt.message, attempt.fingerprint)
    return _encode((attempt.failure_type, attempt.severity, *words, attempt.ended_at))
