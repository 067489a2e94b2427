"""Counts what there is: from the tallies, never by looking at the jobs."""

from __future__ import annotations

from typing import Final

import apsw
from msgspec import json, structs

from holdfast.ports import Count, Stats, Tally, WorkerRecord
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_rows
from holdfast.types import JobState

_SQL = load("reads.sql")
_STEPS: Final = 2000
_decode_worker = json.Decoder(WorkerRecord).decode


def read_stats(db: apsw.Connection, since_minute: int | None, now: float) -> Stats:
    """Everything counted; called inside of one read transaction."""
    tallies = [Tally(queue, task, JobState(state), n) for queue, task, state, n in read_rows(db, _SQL["tallies"])]
    workers = [
        structs.replace(_decode_worker(record), seen_at=seen_at) for record, seen_at in read_rows(db, _SQL["workers"])
    ]
    counts = []
    if since_minute is not None:
        counts = [Count(*row) for row in read_rows(db, _SQL["counts"], (since_minute,))]
    totals = [Count(*row) for row in read_rows(db, _SQL["totals"])]
    return Stats(
        now=now,
        tallies=tallies,
        workers=workers,
        counts=counts,
        totals=totals,
        oldest_ready_at=_oldest(db, now),
    )


def _oldest(db: apsw.Connection, now: float) -> dict[str, float]:
    oldest: dict[str, float] = {}
    ready = read_rows(db, _SQL["oldest_ready"], {"limit": _STEPS})
    due = read_rows(db, _SQL["oldest_due"], {"limit": _STEPS, "now": now})
    for queue, due_at in ready + due:
        oldest[queue] = min(due_at, oldest.get(queue, due_at))
    return oldest
