"""Finds jobs by what people ask for, and groups dead letters by their cause."""

from __future__ import annotations

from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast.ports import Page, Query
from holdfast.stores.postgres.arrays import escaped, ints, plain
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.queries import load
from holdfast.stores.postgres.records import COLUMNS, records_of, to_record
from holdfast.stores.ways import GIVEN_UP
from holdfast.types import FailureType, Group, JobState

_SQL = load("reads.sql")
_SEARCHED_AT_ONCE: Final = 2000
_ENDED: Final = "state IN ('completed', 'failed', 'dead_letter', 'cancelled')"
_INSTANT: Final = f"CASE WHEN {_ENDED} THEN changed_at ELSE created_at END"

_Filter = tuple[str, dict[str, Any]]


def find_jobs(db: Db, query: Query) -> Page:
    """Records without attempts, newest first; with a text, of a bounded number of jobs."""
    where, values = _filter_of(query, query.states)
    if query.cursor:
        where += " AND seq < %(before)s"
        values["before"] = _seq_of(query.cursor)
    if query.text:
        return _search(db, query, (where, values))
    sql = _SQL["find"].replace(":columns", COLUMNS).replace(":where", where)
    rows = db.rows(sql, **values, limit=query.limit + 1)
    items = [to_record(row) for row in rows[: query.limit]]
    return Page(items, cursor=str(rows[query.limit - 1][0]) if len(rows) > query.limit > 0 else "")


def _search(db: Db, query: Query, filter_: _Filter) -> Page:
    where, values = filter_
    sql = _SQL["search"].replace(":has_text", _SQL["has_text"]).replace(":where", where)
    rows = db.rows(sql, **values, **_text_of(query), limit=_SEARCHED_AT_ONCE)
    found: list[int] = []
    cursor = str(rows[-1][0]) if len(rows) == _SEARCHED_AT_ONCE else ""
    for seq, has_text in rows:
        if has_text:
            if len(found) == query.limit:
                cursor = str(found[-1])
                break
            found.append(seq)
    return Page(records_of(db, found), cursor=cursor)


def group_letters(db: Db, query: Query) -> list[Group]:
    """The dead letters of a query by fingerprint: the largest group first, and of two the one with the newer letter."""
    where, values = _filter_of(query, (JobState.DEAD_LETTER,))
    if query.text:
        where += f" AND {_SQL['has_text']}"
        values |= _text_of(query)
    rows = db.rows(_SQL["groups"].replace(":where", where), **values)
    newest = {record.fingerprint: record for record in records_of(db, [row[4] for row in rows])}
    lanes = sorted({lane for row in rows for lane in row[5]})
    tasks = {lane: plain(task) for lane, task in db.rows(_SQL["tasks"], lanes=ints(lanes))}
    groups = []
    for fingerprint, count, first_at, last_at, _, its_lanes in rows:
        sample = newest[plain(fingerprint)]
        failure_type = sample.failure_type or FailureType.SYSTEM  # it may have been buried without a failure
        groups.append(
            Group(
                fingerprint=sample.fingerprint,
                count=count,
                tasks=tuple(sorted({tasks[lane] for lane in its_lanes})),
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
    """A condition and its values. States stand in it as they are, so that the server sees which index has them all."""
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
        values |= {"queue": escaped(query.queue), "task": escaped(query.task)}
    equal = {
        "tenant": query.tenant,
        "user": query.user or None,
        "project": query.project or None,
        "failure_type": None if query.failure_type is None else query.failure_type.value,
        "fingerprint": query.fingerprint or None,
    }
    for name, value in equal.items():
        if value is not None:
            parts.append(f'"{name}" = %({name})s')
            values[name] = escaped(value)
    for name, sign, instant in (("since", ">=", query.since), ("until", "<", query.until)):
        if instant is not None:
            parts.append(f"{_INSTANT} {sign} %({name})s")
            values[name] = instant
    return " AND ".join(parts), values


def _text_of(query: Query) -> dict[str, Any]:
    text = query.text.encode().lower().decode()  # bytes: only a-z, as the server's own lower in this collation
    return {"text": escaped(text)}


def _seq_of(cursor: str) -> int:
    if not cursor.isdecimal() or len(cursor) > 18:
        raise ConfigError(f"cursor: {cursor!r} is not where a page ended")
    return int(cursor)
