"""Counts what there is: from the tallies, never by looking at the jobs."""

from __future__ import annotations

from typing import Final

from msgspec import json, structs

from holdfast.ports import Count, Stats, Tally, WorkerRecord
from holdfast.stores.postgres.arrays import plain
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.queries import load
from holdfast.types import JobState

_SQL = load("reads.sql")
_STEPS: Final = 2000
DEAD_ROWS: Final = 50_000
"""So many that cannot be forgotten make a claim take about three times as long as without."""
HELD_S: Final = 30.0
"""A transaction that is open for longer keeps many of them."""
_decode_worker = json.Decoder(WorkerRecord).decode


def read_stats(db: Db, since_minute: int | None) -> Stats:
    """Everything counted, in one consistent look."""
    with db.transaction():
        db.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        with db.together():
            now = db.run(_SQL["now"])
            tallies = db.run(_SQL["tallies"])
            workers = db.run(_SQL["workers"])
            counts = None if since_minute is None else db.run(_SQL["counts"], since=since_minute)
            totals = db.run(_SQL["totals"])
            ready = db.run(_SQL["oldest_ready"], limit=_STEPS)
            due = db.run(_SQL["oldest_due"], limit=_STEPS)
            dead = db.run(_SQL["dead_rows"])
        ((dead_rows,),) = dead.fetchall()
        holders = db.rows(_SQL["held_from_vacuum"], held_s=HELD_S) if dead_rows > DEAD_ROWS else []
    oldest: dict[str, float] = {}
    for queue, due_at in ready.fetchall() + due.fetchall():
        name = plain(queue)
        oldest[name] = min(due_at, oldest.get(name, due_at))
    return Stats(
        now=now.fetchall()[0][0],
        tallies=[Tally(plain(queue), plain(task), JobState(state), n) for queue, task, state, n in tallies.fetchall()],
        workers=[structs.replace(_decode_worker(record), seen_at=seen_at) for record, seen_at in workers.fetchall()],
        counts=[] if counts is None else [_count(*row) for row in counts.fetchall()],
        totals=[_count(*row) for row in totals.fetchall()],
        oldest_ready_at=oldest,
        troubles=tuple(
            f"{dead_rows:,} dead rows slow claims down, and vacuum cannot remove them: {plain(who)} has had a "
            f"transaction open for {held_s:,.0f} s; end it"
            for who, held_s in holders
        ),
    )


def _count(minute: int, task: str, name: str, n: int) -> Count:
    return Count(minute, plain(task), plain(name), n)
