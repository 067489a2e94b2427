"""Remembers new jobs: all of a call or none, each id once, each idempotency key once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

import apsw
from msgspec import json

from holdfast.ports import Enqueued
from holdfast.stores.keys import Holder, decide, may_be_known, scope_of
from holdfast.stores.refusals import has_ends
from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.ends import end_jobs
from holdfast.stores.sqlite.marks import blocks_of, names_of
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_rows, read_value, text_list
from holdfast.types import JobState, NewJob

_SQL = load("enqueue.sql")
_decode_known = json.Decoder(list[tuple[str, JobState]]).decode
_decode_added = json.Decoder(list[tuple[str, JobState, int | None]]).decode
_COLUMNS: Final = 15
_CHUNKS: Final = (128, 16, 4, 1)
"""So many rows in one statement: a step for each row costs more than the row, beside a busy event loop most of all."""


def add_plain_jobs(batch: Batch, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Add those that are new."""
    now = batch.tick()
    if may_be_known(jobs):
        answers, added_jobs = decide(jobs, known_states(batch.db, jobs), {})
        _insert(batch, added_jobs, now)
        return answers
    if _insert(batch, jobs, now):
        return [Enqueued(job.id) for job in jobs]
    states: dict[str, JobState] = {}
    added: set[str] = set()
    for id, state, lane in _decode_added(read_value(batch.db, _SQL["known_or_added"], (_ids_of(jobs), now))):  # noqa: A001
        states[id] = state
        if lane is not None:
            added.add(id)
            batch.add(lane, "queued")
    answers = []
    for job in jobs:
        answers.append(Enqueued(job.id, is_new=job.id in added, state=states[job.id]))
        added.discard(job.id)  # the same one again is not new
    return answers


def known_states(db: apsw.Connection, jobs: Iterable[NewJob]) -> dict[str, JobState]:
    """Where those of these jobs stand that are known, by id."""
    return dict(_decode_known(read_value(db, _SQL["known"], (_ids_of(jobs),))))


def add_jobs(batch: Batch, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Add those that are new, or none of them when an idempotency key is taken by another payload; then end them.

    Only those end that come with their end, and those that are known too.
    """
    now = batch.tick()
    is_any_ended = has_ends(jobs)
    known = known_states(batch.db, jobs)
    holders, expired = _holders_of(batch, jobs, now)
    answers, added = decide(jobs, known, holders)
    if any(answer.is_conflict for answer in answers):
        return answers
    if expired and (taken := expired & {scope_of(job) for job in added}):  # a job that came again keeps its own
        batch.db.execute(_SQL["free_keys"], (text_list(sorted(taken)),))
    _insert(batch, added, now)
    return end_jobs(batch, jobs, answers) if is_any_ended else answers


def _holders_of(batch: Batch, jobs: Sequence[NewJob], now: float) -> tuple[dict[str, Holder], set[str]]:
    """The keys of these jobs that are held, and by whom; and those held long enough."""
    scopes = [scope for job in jobs if (scope := scope_of(job)) is not None]
    holders: dict[str, Holder] = {}
    expired: set[str] = set()
    oldest = now - batch.books.key_window_s
    for scope, holder, payload, ended_at, state in read_rows(batch.db, _SQL["holders"], (text_list(scopes),)):
        if ended_at is None or ended_at > oldest:
            holders[scope] = (holder, payload, JobState(state))
        else:
            expired.add(scope)
    return holders, expired


def _insert(batch: Batch, jobs: Sequence[NewJob], now: float) -> bool:
    """Insert those whose id is not known; say whether all were new, and are tallied."""
    rows = [_row_of(batch, job, now) for job in jobs]
    lanes = Counter([row[1] for row in rows]) if len(rows) > 1 else {row[1]: 1 for row in rows}
    has_owners = any(job.tenant or job.user or job.project for job in jobs)
    n_new = start = 0
    while start < len(rows):
        size = next(size for size in _CHUNKS if size <= len(rows) - start)
        values: list[Any] = []
        chunk = rows[start : start + size]
        for row in chunk:
            values += row
        batch.db.execute(_insert_of(size), values)
        added = batch.db.changes()
        if added:
            _mark(batch, lanes if len(lanes) == 1 else {row[1] for row in chunk}, added)
            if has_owners:
                _mark_owners(batch, chunk, added)
        n_new += added
        start += size
    if n_new:
        batch.has_news = True
    if n_new < len(rows):
        return False
    for lane, n in lanes.items():
        batch.add(lane, "queued", n)
    return True


def _mark(batch: Batch, lanes: Iterable[int], added: int) -> None:
    """The last so many places have jobs of these lanes; where some were known before, a mark too many does no harm."""
    last = batch.db.last_insert_rowid()
    for block in blocks_of(last - added + 1, last):
        batch.marks.update([(f"l{lane}", block) for lane in lanes])


def _mark_owners(batch: Batch, rows: Sequence[tuple[Any, ...]], added: int) -> None:
    last = batch.db.last_insert_rowid()
    names = {name for owners in {row[8:11] for row in rows} for name in names_of(*owners)}
    for block in blocks_of(last - added + 1, last):
        batch.marks.update((name, block) for name in names)


def _ids_of(jobs: Iterable[NewJob]) -> str:
    return text_list([job.id for job in jobs])


def _row_of(batch: Batch, job: NewJob, now: float) -> tuple[Any, ...]:
    delay_s = job.delay_s
    wakes_at = now + delay_s if delay_s > 0 else None
    return (
        job.id,
        batch.lane_of((job.queue, job.task, job.gates)),
        job.priority,
        now if wakes_at is None else wakes_at,
        now,
        now,
        1 if wakes_at is None else None,
        wakes_at,
        job.tenant,
        job.user,
        job.project,
        job.trace,
        job.payload,
        scope_of(job),
        job.idempotency_key,
    )


@cache
def _insert_of(size: int) -> str:
    row = f"({', '.join('?' * _COLUMNS)})"
    return _SQL["insert"].replace("(:row)", ", ".join([row] * size))
