"""Deletes what nobody needs any more: some of it with each call, so that no call holds the write lock for long."""

from __future__ import annotations

from typing import Final

from msgspec import json

from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.lanes import drop_empty_lanes
from holdfast.stores.sqlite.letters import forget_hours
from holdfast.stores.sqlite.marks import sweep_marks
from holdfast.stores.sqlite.people import delete_jobs
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_value
from holdfast.stores.sqlite.values import COUNTS_KEPT_MINUTES

_SQL = load("prune.sql")
_decode_over = json.Decoder(list[tuple[int, int, str]]).decode
_GONE_KEPT_S: Final = 8 * 86_400.0
_REMOVED_KEPT_S: Final = 3600.0
_VALUES_AT_ONCE: Final = 5000


def prune_jobs(batch: Batch, limit: int) -> int:
    """Delete up to so many records whose time is over, and with them what is left of others; say how many records."""
    now = batch.tick()
    batch.db.execute(_SQL["delete_counts"], (int(now // 60) - COUNTS_KEPT_MINUTES,))
    batch.db.execute(_SQL["delete_workers"], (now - _GONE_KEPT_S,))
    batch.db.execute(_SQL["delete_counted"])
    batch.db.execute(_SQL["delete_cancelled"])
    batch.db.execute(_SQL["delete_removed_values"], (now - _REMOVED_KEPT_S, _VALUES_AT_ONCE))
    rows = _decode_over(read_value(batch.db, _SQL["over"], {"now": now, "limit": limit}))
    delete_jobs(batch, rows)
    forget_hours(batch.db, now)
    batch.books.marks_swept_to = sweep_marks(batch.db, batch.books.marks_swept_to)
    batch.flush()  # the tallies say which lanes have no jobs
    batch.sweep_claims()
    if not batch.new_lanes:  # they are known under numbers that must not go while this transaction uses them
        books = batch.books
        is_dropped, books.lanes_swept_to = drop_empty_lanes(batch.db, books.lanes_swept_to)
        if is_dropped:
            batch.lanes_dropped()
    return len(rows)
