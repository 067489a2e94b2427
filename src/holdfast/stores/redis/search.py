"""Finds jobs by what people ask for: looks at some places at a time, until a page is full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import structs

from holdfast.ports import Page, Query
from holdfast.stores.looking import page_of
from holdfast.stores.memory.search import filter_of
from holdfast.stores.redis.places import Places, Run
from holdfast.stores.redis.records import look_call
from holdfast.stores.redis.state import Texts
from holdfast.types import JobRecord

_LOOKED_AT_ONCE: Final = 500
"""So many with one call, so that none holds up the server for long."""


def find_jobs(run: Run, query: Query, texts: Texts) -> Page:
    """Records without attempts, newest first, of a bounded number of jobs."""
    places = Places(run)
    is_wanted = filter_of(query)
    is_exact = structs.replace(query, states=(), limit=0, cursor="") == Query(limit=0)

    def read(seqs: Sequence[int], limit: int) -> list[tuple[int, JobRecord]]:
        found: list[tuple[int, JobRecord]] = []
        seq_of = {places.ids[seq]: seq for seq in seqs}
        for some in _parts(list(seq_of)):
            for record in run(look_call(query, some, limit - len(found), texts)):
                if is_wanted(record):
                    found.append((seq_of[record.id], record))
            if len(found) >= limit:
                return found[:limit]
        return found

    return page_of(query, places.looks_of(query, is_exact=is_exact), read)


def all_of(run: Run, query: Query, texts: Texts, most: int) -> Iterator[JobRecord]:
    """Those of a query among so many places that are looked at first."""
    places = Places(run)
    is_wanted = filter_of(query)
    looked_at = 0
    for seqs in places.looks_of(query, is_exact=False):
        some = seqs[: most - looked_at]
        looked_at += len(some)
        for ids in _parts([places.ids[seq] for seq in some]):
            yield from filter(is_wanted, run(look_call(query, ids, len(ids), texts)))
        if looked_at >= most:
            return


def _parts(ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _LOOKED_AT_ONCE):
        yield ids[start : start + _LOOKED_AT_ONCE]
