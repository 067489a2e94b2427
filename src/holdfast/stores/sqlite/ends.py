"""Ends jobs that did not run here, in the transaction that adds them or finds them unfinished."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

import apsw
from msgspec import Struct, json

from holdfast.errors import Unwritable
from holdfast.ports import Enqueued
from holdfast.stores.ends import AttemptKey, Ending, decide_ends, ending_of, key_of, settled_by, state_after
from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.letters import add_letters
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_rows, read_value, text_list
from holdfast.stores.ways import GIVEN_UP
from holdfast.types import Attempt, Change, NewJob

_SQL = load("ends.sql")
_TELL_HOLDER: Final = load("people.sql")["tell_holder"]
_ADD_ATTEMPTS: Final = load("settle.sql")["add_attempts"]
_ATTEMPTS: Final = load("reads.sql")["attempts"]
_BURY: Final = Change.BURY


class _Row(Struct, array_like=True):
    """A job that has not ended."""

    id: str
    seq: int
    lane: int
    state: str
    token: str


_encode = json.Encoder().encode
_decode_rows = json.Decoder(list[_Row]).decode
_decode_attempt = json.Decoder(Attempt).decode


def end_jobs(batch: Batch, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> list[Enqueued]:
    """End those of these that come with their end; `answers` are what is answered without that."""
    told, ended = decide_ends(jobs, answers)
    if not ended:
        return told
    found = _decode_rows(read_value(batch.db, _SQL["look"], (text_list([job.id for job in ended]),)))
    rows = {row.id: row for row in found}
    known = _attempts_of(batch.db, found)
    endings = [ending_of(job, known.get(rows[job.id].seq, ())) for job in ended]
    written, attempts = _encoded(endings)
    _take_away(batch, [row for row in found if row.state == "running"])
    for one in endings:
        row = rows[one.job.id]
        batch.move(row.lane, row.state, state_after(one.end).value)
    window = batch.books.key_window_s
    batch.db.execute(_SQL["end"], {"now": batch.tick(), "window": window, "rows": written})
    batch.db.execute(_ADD_ATTEMPTS, (attempts,))
    letters = [one.job.id for one in endings if one.end.change is _BURY]
    if letters:
        add_letters(batch.db, letters)
    return told


def _attempts_of(db: apsw.Connection, rows: Sequence[_Row]) -> dict[int, set[AttemptKey]]:
    known: dict[int, set[AttemptKey]] = {}
    seqs = array("q", [row.seq for row in rows])
    for seq, record in read_rows(db, _ATTEMPTS, (apsw.carray(seqs),)):
        known.setdefault(seq, set()).add(key_of(_decode_attempt(record)))
    return known


def _take_away(batch: Batch, rows: Sequence[_Row]) -> None:
    """Whoever runs these loses the lease, and is told so."""
    if rows:
        batch.flush()  # who holds what must be in the table
        batch.has_news = True
    for row in rows:
        token = bytes.fromhex(row.token)
        batch.db.execute(_TELL_HOLDER, {"id": row.id, "token": token})
        batch.let_go(token)


def _encoded(endings: Sequence[Ending]) -> tuple[str, str]:
    """The rows of jobs and those of attempts, for `json_each`."""
    rows: list[tuple[Any, ...]] = []
    attempts: list[tuple[str, str]] = []
    for one in endings:
        try:
            rows.append(row := _row_of(one))
            _encode(row)
            attempts += [(one.job.id, _encode(attempt).decode()) for attempt in one.attempts]
        except (ValueError, TypeError, OverflowError) as error:
            raise Unwritable(one.job.id, error) from error
    return _encode(rows).decode(), _encode(attempts).decode()


def _row_of(one: Ending) -> tuple[Any, ...]:
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
    )
