"""Remembers new jobs: all of a call or none, each id once, each idempotency key once."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import psycopg
from msgspec import Struct

from holdfast.errors import StoreAway, StoreError
from holdfast.ports import Enqueued
from holdfast.stores.keys import Holder, decide, may_be_known, scope_of
from holdfast.stores.lanes import LaneKey
from holdfast.stores.postgres.arrays import blobs, escaped, floats, ints, plain, texts
from holdfast.stores.postgres.faults import translated
from holdfast.stores.postgres.queries import load
from holdfast.types import JobState, NewJob

_SQL = load("enqueue.sql")
_TRIES: Final = 10
AT_ONCE: Final = 2000
"""So many jobs in one statement: it must not take longer than a statement may."""
_JOBS: Final = "holdfast_jobs"
_STATES: Final = {one.value: one for one in JobState}

Statement = tuple[str, Mapping[str, Any]]
Steps = Generator[Statement, list[Any], list[Enqueued]]
"""Statements, to be run one after the other by whoever has the connection, each answered with its rows."""


class LanesGone(Exception):
    """A lane was dropped since it was looked up; nothing was added."""


class Setting(Struct, frozen=True):
    """What new jobs are written with."""

    key_window_s: float
    channel: str
    """Where those who wait are told."""
    listener: str
    """Who need not be told: this process."""
    are_lanes_held: bool = False
    """Whether the lanes are kept from being dropped by other means, and may be too new for the transaction to see."""


def told(error: psycopg.errors.LockNotAvailable, jobs: Sequence[NewJob], location: str) -> StoreError:
    """The error to raise when these jobs have waited for a lock in vain: one in the table of jobs is a key's."""
    keys = {job.idempotency_key for job in jobs} - {None}
    if not keys or _JOBS not in (error.diag.context or ""):
        return translated(error, location)
    which = f"the idempotency key {keys.pop()!r}" if len(keys) == 1 else "one of the idempotency keys"
    what = f"another transaction, which is still open, holds {which}"
    return StoreAway(f"{location}: {what}; send it again, and end such transactions soon")


def lane_key(job: NewJob) -> LaneKey:
    """The lane that a job belongs to."""
    return job.queue, job.task, job.gates


def add_jobs(jobs: Sequence[NewJob], lanes: Mapping[LaneKey, int], setting: Setting) -> Steps:
    """Add those that are new, by one statement for up to `AT_ONCE`."""
    if len(jobs) > AT_ONCE:
        answers = []
        for start in range(0, len(jobs), AT_ONCE):
            answers += yield from add_jobs(jobs[start : start + AT_ONCE], lanes, setting)
        return answers
    states: dict[str, JobState] = {}
    new: set[str] = set()
    rest = jobs
    if may_be_known(jobs):  # so that nothing is written for those that are
        states = dict(_known((yield _known_of(jobs))))
        rest = [job for job in jobs if job.id not in states]
    if len(rest) == 1 and rest[0].delay_s <= 0 and (yield _insert_one(rest[0], lanes, setting)):
        new = {rest[0].id}
    elif rest:
        ((n_added, are_lanes_there, added, _),) = yield _insert(rest, lanes, setting)
        if not are_lanes_there:
            raise LanesGone
        if n_added == len(jobs):
            return [Enqueued(job.id) for job in jobs]
        new = {job.id for job in rest} if added is None else {plain(id) for id in added}  # noqa: A001
        if added is not None:  # others were faster with some, or some come twice
            states = dict(_known((yield _known_of(jobs))))
    answers = []
    for job in jobs:
        answers.append(Enqueued(job.id, is_new=job.id in new, state=states.get(job.id, JobState.QUEUED)))
        new.discard(job.id)  # the same one again is not new
    return answers


def add_jobs_with_keys(jobs: Sequence[NewJob], lanes: Mapping[LaneKey, int], setting: Setting) -> Steps:
    """The same inside of a transaction, where some have idempotency keys: look, decide, add; again if beaten to it."""
    held = [_digest_of(job) for job in jobs]
    scopes = {digest: scope_of(job) for digest, job in zip(held, jobs, strict=True) if digest is not None}
    keys = {"held_keys": blobs(list(scopes)), "window_s": setting.key_window_s}
    for _ in range(_TRIES):
        known = dict(_known((yield _known_of(jobs))))
        holders: dict[str, Holder] = {}
        is_any_over = False
        for digest, id, payload, state, is_over in (yield _SQL["holders"], keys):  # noqa: A001
            scope = scopes[digest]
            if is_over:
                is_any_over = True
            elif scope is not None:
                holders[scope] = (plain(id), payload, _STATES[state])
        answers, added = decide(jobs, known, holders)
        if not added:
            return answers
        yield "SAVEPOINT enqueueing", {}
        if is_any_over:  # a job that came again keeps its own
            yield _SQL["free_keys"], {**keys, "held_keys": blobs([_digest_of(job) for job in added])}
        n_added, are_lanes_there = 0, True
        for start in range(0, len(added), AT_ONCE):
            ((n, are_lanes_there, _, _),) = yield _insert(added[start : start + AT_ONCE], lanes, setting)
            n_added += n
        if n_added == len(added):
            yield "RELEASE SAVEPOINT enqueueing", {}
            return answers
        yield "ROLLBACK TO SAVEPOINT enqueueing", {}
        if not are_lanes_there:
            raise LanesGone
    raise StoreAway("idempotency keys: others enqueue the same ones all the time; send it again")


def _insert(jobs: Sequence[NewJob], lanes: Mapping[LaneKey, int], setting: Setting) -> Statement:
    numbers = [lanes[lane_key(job)] for job in jobs]
    all_lanes = [] if setting.are_lanes_held else sorted(set(numbers))
    return _SQL["insert"], {
        "ids": texts([job.id for job in jobs]),
        "lanes": ints(numbers),
        "priorities": ints([job.priority for job in jobs]),
        "delays": floats([max(0.0, job.delay_s) for job in jobs]),
        "payloads": blobs([job.payload for job in jobs]),
        "tenants": texts([job.tenant for job in jobs]),
        "users": texts([job.user for job in jobs]),
        "projects": texts([job.project for job in jobs]),
        "traces": texts([job.trace for job in jobs]),
        "held_keys": blobs([_digest_of(job) for job in jobs]),
        "keys": texts([job.idempotency_key for job in jobs]),
        "all_lanes": ints(all_lanes),
        "n_lanes": len(all_lanes),
        "n": len(jobs),
        "channel": setting.channel,
        "listener": setting.listener,
    }


def _insert_one(job: NewJob, lanes: Mapping[LaneKey, int], setting: Setting) -> Statement:
    return _SQL["insert_one"], {
        "id": escaped(job.id),
        "lane": lanes[lane_key(job)],
        "priority": job.priority,
        "payload": job.payload,
        "tenant": escaped(job.tenant),
        "user": escaped(job.user),
        "project": escaped(job.project),
        "trace": None if job.trace is None else escaped(job.trace),
        "channel": setting.channel,
        "listener": setting.listener,
    }


def _known_of(jobs: Sequence[NewJob]) -> Statement:
    return _SQL["known"], {"ids": texts([job.id for job in jobs])}


def _known(rows: list[Any]) -> list[tuple[str, JobState]]:
    return [(plain(id), _STATES[state]) for id, state in rows]  # noqa: A001


def _digest_of(job: NewJob) -> bytes | None:
    scope = scope_of(job)
    return None if scope is None else sha256(scope.encode()).digest()
