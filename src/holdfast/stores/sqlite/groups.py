"""Groups dead letters by their cause: out of what is counted as they come and go, never by looking at all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import apsw
from msgspec import json, structs

from holdfast.ports import Query
from holdfast.stores.causes import Cause, first_hour, group_causes, is_whole
from holdfast.stores.looking import GROUPED
from holdfast.stores.memory.search import groups_of
from holdfast.stores.sqlite.places import cause_filter
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.records import records_by_seq
from holdfast.stores.sqlite.rows import read_row, read_rows
from holdfast.stores.sqlite.search import all_of
from holdfast.types import Group, JobRecord, JobState

_SQL = load("letters.sql")
_decode_names = json.Decoder(list[str]).decode


def group_letters(db: apsw.Connection, query: Query, now: float) -> list[Group]:
    """The dead letters of a query by fingerprint: the largest group first, and of two the one with the newer letter."""
    if query.text or query.user or query.project:
        wanted = structs.replace(query, states=(JobState.DEAD_LETTER,), cursor="")
        return groups_of(all_of(db, wanted, GROUPED), now)

    def read(places: Sequence[int]) -> Mapping[int, JobRecord]:
        return records_by_seq(db, places)

    return group_causes(_causes(db, query, now), read, now)


def _causes(db: apsw.Connection, query: Query, now: float) -> list[Cause]:
    since, until = _within(db, query)
    where, values = cause_filter(query)
    hour_values = {**values, "first": first_hour(now)}
    if (since, until) == (-math.inf, math.inf):
        names = ("wholes" if is_whole(structs.replace(query, since=None, until=None)) else "causes", "hours")
    else:
        names = ("causes_within", "hours_within")
        values |= {"since": since, "until": until}
        hour_values |= {"since": since, "until": until}
    causes, hours = (_SQL[name].replace(":where", where) for name in names)
    by_hour: dict[str, dict[int, int]] = {}
    for fingerprint, hour, n in read_rows(db, hours, hour_values):
        by_hour.setdefault(fingerprint, {})[hour] = n
    return [
        Cause(
            fingerprint=fingerprint,
            tasks=_decode_names(tasks),
            tenants=_decode_names(tenants),
            count=n,
            first_at=first_at,
            newest=(last_at, seq),
            hours=by_hour.pop(fingerprint, {}),  # of all its parts: the first one has them
        )
        for fingerprint, tasks, tenants, n, first_at, last_at, seq in read_rows(db, causes, values)
    ]


def _within(db: apsw.Connection, query: Query) -> tuple[float, float]:
    """The time that is asked for; all of it where that is the same, as nothing need be counted then."""
    since = -math.inf if query.since is None else query.since
    until = math.inf if query.until is None else query.until
    first_at, last_at = read_row(db, _SQL["bounds"])
    if first_at is None or (since <= first_at and until > last_at):
        return -math.inf, math.inf
    return since, until
