"""Finds jobs by what people ask for, and groups dead letters by their cause."""

from __future__ import annotations

from typing import Any, Final

import apsw
from msgspec import json

from holdfast.errors import ConfigError
from holdfast.ports import Page, Query
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.records import COLUMNS, records_of, to_record
from holdfast.stores.sqlite.rows import read_rows
from holdfast.stores.ways import GIVEN_UP
from holdfast.types import FailureType, Group, JobState

_SQL = load("reads.sql")
_SEARCHED_AT_ONCE: Final = 2000
_ENDED: Final = "state IN ('completed', 'failed', 'dead_letter', 'cancelled')"
_INSTANT: Final = f"CASE WHEN {_ENDED} THEN changed_at ELSE created_at END"
_decode_tasks = json.Decoder(list[str]).decode

_Filter = tuple[str, dict[str, Any]]


def find_jobs(db: apsw.Connection, query: Query) -> Page:
    """Records without attempts, newest first; with a text, of a bounded number of jobs."""
    where, values = _filter_of(query, query.states)
    if query.cursor:
        where += " AND seq < :before"
        values["before"] = _seq_of(query.cursor)
    if query.text:
        return _search(db, query, (where, values))
    sql = _SQL["find"].replace(":columns", COLUMNS).replace(":where", where)
    rows = read_rows(db, sql, {**values, "limit": query.limit + 1})
    items = [to_record(row) for row in rows[: query.limit]]
    return Page(items, cursor=str(rows[query.limit - 1][0]) if len(rows) > query.limit > 0 else "")


def _search(db: apsw.Connection, query: Query, filter_: _Filter) -> Page:
    where, values = filter_
    sql = _SQL["search"].replace(":has_text", _SQL["has_text"]).replace(":where", where)
    values |= _text_of(query)
    rows = read_rows(db, sql, {**values, "limit": _SEARCHED_AT_ONCE})
    found: list[int] = []
    cursor = str(rows[-1][0]) if len(rows) == _SEARCHED_AT_ONCE else ""
    for seq, has_text in rows:
        if has_text:
            if len(found) == query.limit:
                cursor = str(found[-1])
                break
            found.append(seq)
    return Page(records_of(db, found), cursor=cursor)


def group_letters(db: apsw.Connection, query: Query) -> list[Group]:
    """The dead letters of a query by fingerprint: the largest group first, and of two the one with the newer letter."""
    where, values = _filter_of(query, (JobState.DEAD_LETTER,))
    if query.text:
        where += f" AND ({_SQL['has_text']})"
        values |= _text_of(query)
    rows = read_rows(db, _SQL["groups"].replace(":where", where), values)
    newest = {record.fingerprint: record for record in records_of(db, [row[4] for row in rows])}
    groups = []
    for fingerprint, count, first_at, last_at, _, tasks in rows:
        sample = newest[fingerprint]
        failure_type = sample.failure_type or FailureType.SYSTEM  # it may have been buried without a failure
        groups.append(
            Group(
                fingerprint=fingerprint,
                count=count,
                tasks=tuple(sorted(_decode_tasks(tasks))),
                failure_type=failure_type,
                severity=sample.severity or failure_type.severity,
                error_name=sample.error_name,
                message=sample.message,
                first_at=first_at,
                last_at=last_at,
                sample_id=sample.id,
            )
        )
    return groups


def _filter_of(query: Query, states: tuple[JobState, ...]) -> _Filter:
    """A condition and its values. States stand in it as they are, so that SQLite sees which index has them all."""
    parts = ["true"]
    values: dict[str, Any] = {}
    names = [JobState(state).value for state in states]
    numbers = [GIVEN_UP[name] for name in names if name in GIVEN_UP]
    if names and len(numbers) == len(names):
        parts.append(f"given_up = {numbers[0]}" if len(names) == 1 else f"given_up IN ({', '.join(map(str, numbers))})")
    elif names:
        parts.append(f"state IN ({', '.join(map(repr, names))})")
    if query.task or query.queue:
        parts.append(f"lane IN ({_SQL['lanes_of']})")
        values |= {"queue": query.queue, "task": query.task}
    equal = {
        "tenant": query.tenant,
        "user": query.user or None,
        "project": query.project or None,
        "failure_type": None if query.failure_type is None else query.failure_type.value,
        "fingerprint": query.fingerprint or None,
    }
    for name, value in equal.items():
        if value is not None:
            parts.append(f"{name} = :{name}")
            values[name] = value
    for name, sign, instant in (("since", ">=", query.since), ("until", "<", query.until)):
        if instant is not None:
            parts.append(f"{_INSTANT} {sign} :{name}")
            values[name] = instant
    return " AND ".join(parts), values


def _text_of(query: Query) -> dict[str, Any]:
    text = query.text.encode().lower().decode()  # bytes: only a-z, as SQLite's own lower
    return {"text": text}


def _seq_of(cursor: str) -> int:
    if not cursor.isdecimal():
        raise ConfigError(f"cursor: {cursor!r} is not where a page ended")
    return int(cursor)
