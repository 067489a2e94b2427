"""Groups dead letters by their cause: out of what is counted as they come and go, never by looking at all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import structs

from holdfast.ports import Query
from holdfast.stores.causes import Cause, first_hour, group_causes, is_whole
from holdfast.stores.looking import GROUPED
from holdfast.stores.memory.search import groups_of
from holdfast.stores.postgres.arrays import plain
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.places import cause_filter
from holdfast.stores.postgres.queries import load
from holdfast.stores.postgres.records import records_by_seq
from holdfast.stores.postgres.search import IN_ORDER, all_of
from holdfast.types import Group, JobRecord, JobState

_SQL: Final = {name: sql.replace(":sums", load("letters.sql")["sums"]) for name, sql in load("letters.sql").items()}


def group_letters(db: Db, query: Query) -> list[Group]:
    """The dead letters of a query by fingerprint: the largest group first, and of two the one with the newer letter."""
    with db.transaction():
        db.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        now, first_at, last_at = db.row(_SQL["bounds"])
        if query.text or query.user or query.project:
            db.run(IN_ORDER)
            wanted = structs.replace(query, states=(JobState.DEAD_LETTER,), cursor="")
            return groups_of(all_of(db, wanted, GROUPED), now)

        def read(places: Sequence[int]) -> Mapping[int, JobRecord]:
            return records_by_seq(db, places)

        return group_causes(_causes(db, query, now, (first_at, last_at)), read, now)


def _causes(db: Db, query: Query, now: float, known: tuple[float | None, float | None]) -> list[Cause]:
    since, until = _within(query, *known)
    where, values = cause_filter(query)
    hour_values: dict[str, Any] = {**values, "first": first_hour(now)}
    if (since, until) == (-math.inf, math.inf):
        names = ("wholes" if is_whole(structs.replace(query, since=None, until=None)) else "causes", "hours")
    else:
        names = ("causes_within", "hours_within")
        values |= {"since": since, "until": until}
        hour_values |= {"since": since, "until": until}
    causes, hours = (_SQL[name].replace(":where", where) for name in names)
    with db.together():
        found = db.run(causes, **values)
        found_hours = db.run(hours, **hour_values)
    by_hour: dict[str, dict[int, int]] = {}
    for fingerprint, hour, n in found_hours.fetchall():
        by_hour.setdefault(fingerprint, {})[hour] = n
    return [
        Cause(
            fingerprint=plain(fingerprint),
            tasks=map(plain, tasks),
            tenants=map(plain, tenants),
            count=n,
            first_at=first_at,
            newest=(last_at, seq),
            hours=by_hour.pop(fingerprint, {}),  # of all its parts: the first one has them
        )
        for fingerprint, tasks, tenants, n, first_at, last_at, seq in found.fetchall()
    ]


def _within(query: Query, first_at: float | None, last_at: float | None) -> tuple[float, float]:
    """The time that is asked for; all of it where that is the same, as nothing need be counted then."""
    since = -math.inf if query.since is None else query.since
    until = math.inf if query.until is None else query.until
    if first_at is None or last_at is None or (since <= first_at and until > last_at):
        return -math.inf, math.inf
    return since, until
