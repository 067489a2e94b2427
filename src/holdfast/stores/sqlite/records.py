"""Reads whole jobs for people, with or without their attempts."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

import apsw
from msgspec import json

from holdfast.stores.history import whole
from holdfast.stores.sqlite.deliveries import read_notes
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_rows, text_list
from holdfast.types import Attempt, FailureType, JobRecord, JobState, Severity

_SQL = load("reads.sql")
COLUMNS: Final = _SQL["columns"]
_GET: Final = _SQL["get"].replace(":columns", COLUMNS)
_BY_SEQ: Final = _SQL["by_seq"].replace(":columns", COLUMNS)
_STATES: Final = {one.value: one for one in JobState}
_FAILURE_TYPES: Final = {one.value: one for one in FailureType}
_SEVERITIES: Final = {one.value: one for one in Severity}
_decode_attempt = json.Decoder(Attempt).decode


def get_records(db: apsw.Connection, ids: Sequence[str]) -> list[JobRecord | None]:
    """The whole records, in the order asked for, with every attempt and all that was noted."""
    if not ids:
        return []
    rows = read_rows(db, _GET, (text_list(ids),))
    attempts: dict[int, list[Attempt]] = {}
    if rows:
        seqs = array("q", [row[0] for row in rows])
        for seq, record in read_rows(db, _SQL["attempts"], (apsw.carray(seqs),)):
            attempts.setdefault(seq, []).append(_decode_attempt(record))
    noted = array("q", [row[0] for row in rows if row[31]])
    notes = read_notes(db, noted) if noted else {}
    found = {row[1]: whole(to_record(row), attempts.get(row[0], []), notes.get(row[0]), row[30]) for row in rows}
    return [found.get(id) for id in ids]  # noqa: A001


def records_by_seq(db: apsw.Connection, seqs: Sequence[int]) -> dict[int, JobRecord]:
    """These records without attempts, by their place."""
    if not seqs:
        return {}
    return {row[0]: to_record(row) for row in read_rows(db, _BY_SEQ, (apsw.carray(array("q", seqs)),))}


def to_record(row: Sequence[Any]) -> JobRecord:
    """A row of `COLUMNS` as a record."""
    state = _STATES[row[3]]
    return JobRecord(
        id=row[1],
        task=row[29],
        payload=row[2],
        state=state,
        queue=row[28],
        priority=row[4],
        tenant=row[5],
        user=row[6],
        project=row[7],
        idempotency_key=row[8],
        created_at=row[9],
        due_at=row[10],
        started_at=row[11],
        ended_at=row[12] if state.is_terminal else None,
        attempt=row[13],
        reason=row[14],
        result=row[15],
        progress=row[16],
        failure_type=None if row[17] is None else _FAILURE_TYPES[row[17]],
        severity=None if row[18] is None else _SEVERITIES[row[18]],
        error_name=row[19],
        message=row[20],
        fingerprint=row[21],
        first_failed_at=row[22],
        last_failed_at=row[23],
        original_payload=row[24],
        replays=row[25],
        worker=row[26],
        trace=row[27],
    )
