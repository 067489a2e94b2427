"""Ends jobs that did not run here, in the transaction that adds or finds them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

import apsw
from msgspec import Struct, json

from holdfast.errors import Unwritable
from holdfast.ports import Enqueued
from holdfast.stores.ends import (
    Ending,
    Known,
    ending_of,
    known_of,
    may_end,
    rounds_of,
    settled_by,
    state_after,
    with_states,
)
from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.letters import add_letters, forget_letters
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_rows, read_value, text_list
from holdfast.stores.ways import GIVEN_UP
from holdfast.types import Attempt, Change, JobState, NewJob

_SQL = load("ends.sql")
_TELL_HOLDER: Final = load("people.sql")["tell_holder"]
_ADD_ATTEMPTS: Final = load("settle.sql")["add_attempts"]
_ATTEMPTS: Final = load("reads.sql")["attempts"]
_BURY: Final = Change.BURY
_RUNNING: Final = JobState.RUNNING
_DEAD_LETTER: Final = JobState.DEAD_LETTER


class _Row(Struct, array_like=True):
    """A job, as an end finds it."""

    id: str
    seq: int
    lane: int
    state: JobState
    token: str
    changed_at: float
    settled: int
    attempt: int
    started_at: float | None
    worker: str


_encode = json.Encoder().encode
_decode_rows = json.Decoder(list[_Row]).decode
_decode_attempt = json.Decoder(Attempt).decode


def end_jobs(batch: Batch, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> list[Enqueued]:
    """End those of these that come with their end; `answers` are what is answered without that."""
    states: dict[int, JobState] = {}
    for ends in rounds_of(jobs, answers):
        after = _end(batch, list(ends.values()))
        states |= {place: after[job.id] for place, job in ends.items()}
    return with_states(answers, states)


def _end(batch: Batch, jobs: Sequence[NewJob]) -> dict[str, JobState]:
    """End those of these that do; the states of all of them then."""
    found = _decode_rows(read_value(batch.db, _SQL["look"], (text_list([job.id for job in jobs]),)))
    rows = {row.id: row for row in found}
    known = _known_of(batch.db, [rows[job.id] for job in jobs if may_end(job, rows[job.id].state)])
    endings = [ending for job in jobs if job.id in known and (ending := ending_of(job, known[job.id])) is not None]
    after = {row.id: row.state for row in found}
    if not endings:
        return after
    written, attempts = _encoded(endings, rows)
    before = [rows[one.job.id] for one in endings]
    _take_away(batch, [row for row in before if row.state is _RUNNING])
    forget_letters(batch.db, [row.seq for row in before if row.state is _DEAD_LETTER])
    for one, row in zip(endings, before, strict=True):
        after[row.id] = state_after(one.end)
        batch.move(row.lane, row.state.value, after[row.id].value)
    window = batch.books.key_window_s
    batch.db.execute(_SQL["end"], {"now": batch.tick(), "window": window, "rows": written})
    batch.db.execute(_ADD_ATTEMPTS, (attempts,))
    letters = [one.job.id for one in endings if one.end.change is _BURY]
    if letters:
        add_letters(batch.db, letters)
    return after


def _known_of(db: apsw.Connection, rows: Sequence[_Row]) -> dict[str, Known]:
    attempts: dict[int, list[Attempt]] = {}
    if rows:
        seqs = array("q", [row.seq for row in rows])
        for seq, record in read_rows(db, _ATTEMPTS, (apsw.carray(seqs),)):
            attempts.setdefault(seq, []).append(_decode_attempt(record))
    return {row.id: known_of(row, attempts.get(row.seq, ())) for row in rows}


def _take_away(batch: Batch, rows: Sequence[_Row]) -> None:
    """Whoever runs these loses the lease, and is told so."""
    if rows:
        batch.flush()  # who holds what must be in the table
        batch.has_news = True
    for row in rows:
        token = bytes.fromhex(row.token)
        batch.db.execute(_TELL_HOLDER, {"id": row.id, "token": token})
        batch.let_go(token)


def _encoded(endings: Sequence[Ending], before: Mapping[str, _Row]) -> tuple[str, str]:
    """The rows of jobs and those of attempts, for `json_each`."""
    rows: list[tuple[Any, ...]] = []
    attempts: list[tuple[str, str]] = []
    for one in endings:
        try:
            rows.append(row := _row_of(one, before[one.job.id].state))
            _encode(row)
            attempts += [(one.job.id, _encode(attempt).decode()) for attempt in one.attempts]
        except (ValueError, TypeError, OverflowError) as error:
            raise Unwritable(one.job.id, error) from error
    return _encode(rows).decode(), _encode(attempts).decode()


def _row_of(one: Ending, before: JobState) -> tuple[Any, ...]:
    end, result, last, failed = one.end, one.result, one.last, one.failure
    state = state_after(end).value
    failure: tuple[Any, ...] = (False, None, None, "", "", "", None)
    if failed is not None:
        texts = (failed.error_name, failed.message, failed.fingerprint)
        failure = (True, failed.failure_type, failed.severity, *texts, failed.ended_at)
    return (
        one.job.id,
        state,
        settled_by(end),
        GIVEN_UP.get(state),
        None if result is None else result.hex(),
        end.keep_s,
        end.reason,
        None if last is None else last.started_at,
        0 if last is None else last.number,
        (last.worker or None) if last is not None else None,
        *failure,
        one.first_failed_at,
        before.value,
    )
