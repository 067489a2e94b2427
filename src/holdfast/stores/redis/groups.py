"""Groups dead letters by their cause: out of what is counted as they come and go, never by looking at all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import structs

from holdfast.ports import Query
from holdfast.stores.causes import Cause, first_hour, group_causes, hour_of, is_whole
from holdfast.stores.looking import GROUPED
from holdfast.stores.memory.search import groups_of
from holdfast.stores.redis.call import Call
from holdfast.stores.redis.places import CauseName, Run, causes_call
from holdfast.stores.redis.records import look_call
from holdfast.stores.redis.scripts import GROUPS
from holdfast.stores.redis.search import all_of
from holdfast.stores.redis.state import Texts
from holdfast.types import Group, JobRecord, JobState

_AT_ONCE: Final = 500


def group_letters(run: Run, query: Query, texts: Texts, now: float) -> list[Group]:
    """The dead letters of a query by fingerprint: the largest group first, and of two the one with the newer letter."""
    if query.text or query.user or query.project:
        wanted = structs.replace(query, states=(JobState.DEAD_LETTER,), cursor="")
        return groups_of(all_of(run, wanted, texts, GROUPED), now)
    causes, ids = _causes(run, query, now)

    def read(places: Sequence[int]) -> Mapping[int, JobRecord]:
        seq_of = {ids[place]: place for place in places}
        found: dict[int, JobRecord] = {}
        wanted = list(seq_of)
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            found |= {seq_of[record.id]: record for record in run(look_call(Query(), some, len(some), texts))}
        return found

    return group_causes(causes, read, now)


def _causes(run: Run, query: Query, now: float) -> tuple[list[Cause], dict[int, str]]:
    """What there is of each cause, and the ids of the newest letters by their place."""
    first, last = first_hour(now), hour_of(now)
    names, counts = run(causes_call((first, last)))
    query = _without_idle_time(run, query, names)
    has_time = query.since is not None or query.until is not None
    wanted = {number: name for number, name in names.items() if name.is_of(query)}
    lists = _by_fingerprint(wanted) if is_whole(query) else {f"letters_at:{n}": [one] for n, one in wanted.items()}
    by_hour = _by_hour(wanted, counts, first)
    causes: list[Cause] = []
    ids: dict[int, str] = {}
    for list_name, row in _read(run, query, list(lists), (first, last)):
        n, first_at, last_at, newest, seq, hours = row
        of = lists[list_name]
        in_hours = dict(zip(hours[::2], hours[1::2], strict=True))
        fingerprint = of[0].fingerprint
        ids[int(float(seq))] = newest.decode()
        causes.append(
            Cause(
                fingerprint=fingerprint,
                tasks={one.task for one in of},
                tenants={one.tenant for one in of},
                count=n,
                first_at=float(first_at),
                newest=(float(last_at), int(float(seq))),
                # Without a time they are of all parts of the fingerprint: the first one has them.
                hours=in_hours if has_time else by_hour.pop(fingerprint, {}),
            )
        )
    return causes, ids


def _without_idle_time(run: Run, query: Query, names: Mapping[int, CauseName]) -> Query:
    """The query without its time, where no letter is outside of it, so that nothing need be counted by time."""
    if query.since is None and query.until is None:
        return query
    ends = [row for _, row in _read(run, Query(), list(_by_fingerprint(names)), (0, 0))]
    is_since_idle = query.since is None or all(query.since <= float(row[1]) for row in ends)
    is_until_idle = query.until is None or all(query.until > float(row[2]) for row in ends)
    return structs.replace(query, since=None, until=None) if is_since_idle and is_until_idle else query


def _read(run: Run, query: Query, names: list[str], hours: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """What there is in these lists, without those that have nothing."""
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        call: Call[list[Any]] = Call(GROUPS, (some, query.since, query.until, *hours), list)
        for name, row in zip(some, run(call), strict=True):
            if row[0]:
                yield name, row


def _by_fingerprint(causes: Mapping[int, CauseName]) -> dict[str, list[CauseName]]:
    lists: dict[str, list[CauseName]] = {}
    for one in causes.values():
        lists.setdefault(f"fingerprint_at:{one.fingerprint}", []).append(one)
    return lists


def _by_hour(
    causes: Mapping[int, CauseName], counts: Sequence[Mapping[int, int]], first: int
) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for hour, count in enumerate(counts, start=first):
        for number, n in count.items():
            if number in causes:
                hours = found.setdefault(causes[number].fingerprint, {})
                hours[hour] = hours.get(hour, 0) + n
    return found
