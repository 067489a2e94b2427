"""Finds jobs by what people ask for: looks at some places at a time, until a page is full."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import apsw

from holdfast.ports import Page, Query
from holdfast.stores.looking import page_of
from holdfast.stores.sqlite.places import Filter, looks_of
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.records import COLUMNS, to_record
from holdfast.stores.sqlite.rows import read_rows
from holdfast.types import JobRecord

_SQL = load("reads.sql")
_LANES: Final = load("places.sql")["lanes_of"]
_FIND: Final = _SQL["find"].replace(":columns", COLUMNS)
_ENDED: Final = "state IN ('completed', 'failed', 'dead_letter', 'cancelled')"
_INSTANT: Final = f"CASE WHEN {_ENDED} THEN changed_at ELSE created_at END"


def find_jobs(db: apsw.Connection, query: Query) -> Page:
    """Records without attempts, newest first, of a bounded number of jobs."""
    where, values = _filter_of(query)
    sql = _FIND.replace(":where", where)

    def read(places: Sequence[int], limit: int) -> list[tuple[int, JobRecord]]:
        question = {**values, "places": apsw.carray(array("q", places)), "limit": limit}
        return [(row[0], to_record(row)) for row in read_rows(db, sql, question)]

    return page_of(query, looks_of(db, query, is_exact=not values), read)


def all_of(db: apsw.Connection, query: Query, most: int) -> Iterator[JobRecord]:
    """Those of a query among so many places that are looked at first."""
    where, values = _filter_of(query)
    sql = _FIND.replace(":where", where)
    looked_at = 0
    for places in looks_of(db, query, is_exact=False):
        some = places[: most - looked_at]
        looked_at += len(some)
        question = {**values, "places": apsw.carray(array("q", some)), "limit": len(some)}
        yield from map(to_record, read_rows(db, sql, question))
        if looked_at >= most:
            return


def _filter_of(query: Query) -> Filter:
    """A condition and its values."""
    parts = ["true"]
    values: dict[str, Any] = {}
    if query.states:
        parts.append(f"state IN ({', '.join(repr(state.value) for state in query.states)})")
    if query.task or query.queue:
        parts.append(f"lane IN ({_LANES})")
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
    if query.text:
        parts.append(f"({_SQL['has_text']})")
        values["text"] = query.text.encode().lower().decode()  # bytes: only a-z, as SQLite's own lower
    return " AND ".join(parts), values
