"""Finds jobs by what people ask for: looks at some places at a time, until a page is full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast.ports import Page, Query
from holdfast.stores.looking import page_of
from holdfast.stores.postgres.arrays import escaped, ints
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.places import Filter, looks_of
from holdfast.stores.postgres.queries import load
from holdfast.stores.postgres.records import COLUMNS, to_record
from holdfast.types import JobRecord

_SQL = load("reads.sql")
_LANES: Final = load("places.sql")["lanes_of"]
_FIND: Final = _SQL["find"].replace(":columns", COLUMNS)
_ENDED: Final = "state IN ('completed', 'failed', 'dead_letter', 'cancelled')"
IN_ORDER: Final = "SET LOCAL enable_bitmapscan = off"
"""Until it has analysed a table, the server takes a few places out of an index by collecting all and sorting them."""
_INSTANT: Final = f"CASE WHEN {_ENDED} THEN changed_at ELSE created_at END"


def find_jobs(db: Db, query: Query) -> Page:
    """Records without attempts, newest first, of a bounded number of jobs."""
    where, values = _filter_of(query)
    sql = _FIND.replace(":where", where)

    def read(places: Sequence[int], limit: int) -> list[tuple[int, JobRecord]]:
        return [(row[0], to_record(row)) for row in db.rows(sql, **values, places=ints(places), limit=limit)]

    with db.transaction():
        db.run(IN_ORDER)
        return page_of(query, looks_of(db, query, is_exact=not values), read)


def all_of(db: Db, query: Query, most: int) -> Iterator[JobRecord]:
    """Those of a query among so many places that are looked at first."""
    where, values = _filter_of(query)
    sql = _FIND.replace(":where", where)
    looked_at = 0
    for places in looks_of(db, query, is_exact=False):
        some = places[: most - looked_at]
        looked_at += len(some)
        yield from map(to_record, db.rows(sql, **values, places=ints(some), limit=len(some)))
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
    if query.text:
        parts.append(_SQL["has_text"])
        text = query.text.encode().lower().decode()  # bytes: only a-z, as the server's own lower in this collation
        values["text"] = escaped(text)
    return " AND ".join(parts), values
