"""Finds jobs by what people ask for, and groups dead letters by their cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import structs

from holdfast.errors import ConfigError
from holdfast.ports import Page, Query
from holdfast.stores.memory.search import filter_of, groups_of
from holdfast.stores.redis.call import Call
from holdfast.stores.redis.records import Found, look_call
from holdfast.stores.redis.state import Texts
from holdfast.types import Group, JobRecord, JobState

_SEARCHED_AT_ONCE: Final = 2000
_LOOKED_AT_ONCE: Final = 500
_NEWEST: Final = "+inf"

Run = Callable[[Call[Found]], Found]


def find_jobs(run: Run, query: Query, texts: Texts) -> Page:
    """Records without attempts, newest first; with a text, of a bounded number of jobs."""
    before = _seq_of(query.cursor) if query.cursor else _NEWEST
    is_wanted = filter_of(query)
    items: list[JobRecord] = []
    last = ""
    looked_at = 0
    most = query.limit + 1 if query == Query(limit=query.limit, cursor=query.cursor) else _LOOKED_AT_ONCE
    while True:
        found = run(look_call(query, before, min(most, _LOOKED_AT_ONCE), texts))
        for record, seq in zip(found.records, found.seqs, strict=True):
            if is_wanted(record):
                if len(items) == query.limit:
                    return Page(items, cursor=last)
                items.append(record)
                last = seq
        looked_at += _LOOKED_AT_ONCE
        if not found.after or (query.text and looked_at >= _SEARCHED_AT_ONCE):
            return Page(items, cursor=found.after)
        before = found.after


def group_letters(run: Run, query: Query, texts: Texts) -> list[Group]:
    """The dead letters of a query by fingerprint: the largest group first, and of two the one with the newer letter."""
    wanted = structs.replace(query, states=(JobState.DEAD_LETTER,))
    is_wanted = filter_of(wanted)
    return groups_of(record for record in _all_of(run, wanted, texts) if is_wanted(record))


def _all_of(run: Run, query: Query, texts: Texts) -> Iterator[JobRecord]:
    before = _NEWEST
    while before:
        found = run(look_call(query, before, _LOOKED_AT_ONCE, texts))
        yield from found.records
        before = found.after


def _seq_of(cursor: str) -> str:
    if not (cursor.isascii() and cursor.isdecimal()):
        raise ConfigError(f"cursor: {cursor!r} is not where a page ended")
    return cursor
