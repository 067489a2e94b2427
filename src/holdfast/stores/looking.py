"""Pages of a search: jobs are looked at newest first, some at a time, and up to a bound for each page.

A place is a job's number in the order in which jobs were enqueued; a store hands out places newest first, from whatever
it has that leads to the wanted jobs with the fewest others between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from holdfast.errors import ConfigError
from holdfast.ports import Page, Query
from holdfast.types import JobRecord, JobState

LOOKED_AT: Final = 3_000
"""So many jobs are looked at for one page, where no index has the wanted ones alone."""
SEARCHED: Final = 2_000
"""The same where a text is looked for, which takes longer."""
GROUPED: Final = 2_000
"""So many of the newest dead letters are looked at where groups are asked for by what they are not counted by."""
BLOCK: Final = 256
"""So many places make a block: stores that do not index every job remember in which blocks those of a kind are."""
OPEN_STATES: Final = frozenset(state for state in JobState if not state.is_terminal)
_END: Final = 2**62
_MOST_AT_ONCE: Final = 2_000
_FEWEST_AT_ONCE: Final = 4
_AT_ONCE: Final = 250
_LONGEST_CURSOR: Final = 18

Read = Callable[[Sequence[int], int], Sequence[tuple[int, JobRecord]]]
"""Of these places, up to so many wanted jobs, newest first, each with its place."""
AskEach = Callable[[int, int], Sequence[Sequence[int]]]
"""Of each of several lists of places, up to so many before a place, newest first."""


def before_of(query: Query) -> int:
    """The place before which a page begins."""
    cursor = query.cursor
    if not cursor:
        return _END
    if not (cursor.isascii() and cursor.isdecimal()) or len(cursor) > _LONGEST_CURSOR:
        raise ConfigError(f"cursor: {cursor!r} is not where a page ended")
    return int(cursor)


def page_of(query: Query, looks: Iterable[Sequence[int]], read: Read) -> Page:
    """Look until the page is full, nothing is left, or enough was looked at."""
    most = max(SEARCHED if query.text else LOOKED_AT, query.limit)
    found: list[tuple[int, JobRecord]] = []
    looked_at = 0
    for places in looks:
        found += read(places, query.limit + 1 - len(found))
        if len(found) > query.limit:
            kept = found[: query.limit]
            return Page([record for _, record in kept], cursor=str(kept[-1][0]) if kept else "")
        looked_at += len(places)
        if looked_at >= most:
            return Page([record for _, record in found], cursor=str(places[-1]))
    return Page([record for _, record in found])


def at_first(
    looks: Iterator[Sequence[int]], most: int, then: Callable[[int], Iterator[Sequence[int]]]
) -> Iterator[Sequence[int]]:
    """Where the wanted jobs are probably dense: look there, and after so many places elsewhere, from there on."""
    looked_at = 0
    for places in looks:
        yield places
        looked_at += len(places)
        if looked_at >= most:
            yield from then(places[-1])
            return


def listed(places: Iterable[int], before: int) -> Iterator[Sequence[int]]:
    """A few places that are known, some at a time."""
    left = sorted((place for place in places if place < before), reverse=True)
    for start in range(0, len(left), _AT_ONCE):
        yield left[start : start + _AT_ONCE]


def merged(ask_each: AskEach, lists: int, before: int, first: int) -> Iterator[Sequence[int]]:
    """The places of several lists in one order, some at a time; about so many at first, as a page may need no more."""
    each = max(_FEWEST_AT_ONCE if lists > 1 else 1, -(-first // max(1, lists)))
    while True:
        found = ask_each(before, each)
        cut = max((one[-1] for one in found if len(one) >= each), default=None)
        places = sorted({place for one in found for place in one if cut is None or place >= cut}, reverse=True)
        if places:
            yield places
        if cut is None:
            return
        before, each = cut, max(each, min(4 * each, _MOST_AT_ONCE // lists))
