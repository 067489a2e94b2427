"""What is written by one connection, in turns: exchanges and notes by one, new jobs by another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

import psycopg

from holdfast.errors import StoreError
from holdfast.ports import Enqueued
from holdfast.stores.ends import are_plain
from holdfast.stores.lanes import Lanes
from holdfast.stores.pen import Ask, Pen
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.ends import JobsGone, add_ended_jobs
from holdfast.stores.postgres.enqueue import (
    AT_ONCE,
    LanesGone,
    Setting,
    Steps,
    add_jobs,
    add_jobs_with_keys,
    lane_key,
    told,
)
from holdfast.stores.postgres.lanes import lanes_for
from holdfast.stores.postgres.pool import Pool
from holdfast.stores.refusals import has_ends
from holdfast.types import NewJob

Answer = TypeVar("Answer")
_TRIES: Final = 5
_KEY_WAIT_S: Final = 1.0
"""For another transaction that holds an idempotency key."""
_NEXT_KEY_WAIT_S: Final = 0.05
"""The same for those who waited behind one that waited in vain."""


class Writer:
    """A connection that does one thing after the other, for threads and event loops."""

    def __init__(self, name: str, location: str, pool: Pool) -> None:
        self._pool = pool
        self._pen = Pen(name, location, self._write)

    async def write(self, run: Callable[[Db], Answer]) -> Answer:
        """Run this; it may be run again when the connection breaks."""
        return cast("Answer", await self._pen.ask(run))

    def close(self) -> None:
        """Do all that waits, and close the connection."""
        self._pen.close()
        self._pool.close()

    def _write(self, asks: Sequence[Ask]) -> None:
        for ask in asks:
            assert ask.run is not None  # noqa: S101 - only `write` asks here
            ask.answer, ask.error = _outcome(self._pool, ask.run)
            ask.is_done = True


class Enqueuer:
    """Writes new jobs: those that wait while the connection is busy go together.

    With idempotency keys, or with their ends, each goes by itself, by a pen of their own, so that a key or a job which
    another transaction holds keeps nobody waiting who has neither.
    """

    def __init__(self, location: str, pool: Pool, store: str, setting: Setting, tell: Callable[[], None]) -> None:
        self._location = location
        self._pool = pool
        self._store = store
        self._setting = setting
        self._tell = tell
        self._lanes = Lanes()
        self._pen = Pen("holdfast-enqueuer", location, self._write)
        self._pen_with_keys = Pen("holdfast-enqueuer-keys", location, self._write_with_keys)

    def enqueue_now(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write new jobs on the caller's own thread, or together with others' when the pen is taken."""
        return cast("list[Enqueued]", self._pen_for(jobs).ask_now(None, jobs))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """The same from an event loop."""
        return cast("list[Enqueued]", await self._pen_for(jobs).ask(None, jobs))

    def lanes_of(self, jobs: Sequence[NewJob]) -> Mapping[Any, int]:
        """The lanes of these jobs, there and committed at this moment."""
        keys = [lane_key(job) for job in jobs]
        find = lambda db: lanes_for(db, self._lanes, keys, self._store, is_checked=True)  # noqa: E731
        return cast("Mapping[Any, int]", self._pen.ask_now(find))

    def close(self) -> None:
        """Write all that waits, and close the connections."""
        self._pen.close()
        self._pen_with_keys.close()
        self._pool.close()

    def _pen_for(self, jobs: Sequence[NewJob]) -> Pen:
        return self._pen if are_plain(jobs) else self._pen_with_keys

    def _write(self, asks: Sequence[Ask]) -> None:
        """New jobs together; if that fails, each by itself, so that none fails for another."""
        together: list[Ask] = []
        n_jobs = 0
        for ask in asks:
            if ask.run is None and n_jobs + len(ask.jobs) <= AT_ONCE:
                together.append(ask)
                n_jobs += len(ask.jobs)
        if len(together) > 1:
            jobs = [job for ask in together for job in ask.jobs]
            answers, error = _outcome(self._pool, lambda db: self._add(db, jobs))
            start = 0
            for ask in together if error is None or isinstance(error, StoreError) else ():
                ask.error = error
                ask.answer = None if error is not None else answers[start : start + len(ask.jobs)]
                ask.is_done = True
                start += len(ask.jobs)
        for ask in asks:
            if not ask.is_done:
                run = ask.run or (lambda db, jobs=ask.jobs: self._add(db, jobs))
                ask.answer, ask.error = _outcome(self._pool, run)
                ask.is_done = True
        self._tell()

    def _write_with_keys(self, asks: Sequence[Ask]) -> None:
        wait_s = _KEY_WAIT_S
        for ask in asks:
            ask.answer, ask.error = _outcome(self._pool, partial(self._add, jobs=ask.jobs, wait_s=wait_s))
            ask.is_done = True
            if ask.error is not None and isinstance(ask.error.__cause__, psycopg.errors.LockNotAvailable):
                wait_s = _NEXT_KEY_WAIT_S
        self._tell()

    def _add(self, db: Db, jobs: Sequence[NewJob], wait_s: float = _KEY_WAIT_S) -> list[Enqueued]:
        if not jobs:
            return []
        keys = [lane_key(job) for job in jobs]
        for n in range(_TRIES):
            lanes = lanes_for(db, self._lanes, keys, self._store, is_checked=n > 0)
            try:
                if not are_plain(jobs):
                    return self._add_with_keys(db, jobs, lanes, wait_s)
                if len(jobs) > AT_ONCE:
                    with db.transaction():
                        return drive(db, add_jobs(jobs, lanes, self._setting))
                return drive(db, add_jobs(jobs, lanes, self._setting))
            except (LanesGone, JobsGone):
                continue
        raise StoreError("lanes, or jobs, are dropped as fast as they are made; send it again")

    def _add_with_keys(self, db: Db, jobs: Sequence[NewJob], lanes: Mapping[Any, int], wait_s: float) -> list[Enqueued]:
        """Here a lock that is not had in time is not asked for again: the caller knows better whether to wait."""
        add = add_ended_jobs if has_ends(jobs) else add_jobs_with_keys
        try:
            with db.transaction(lock_wait_s=wait_s):
                return drive(db, add(jobs, lanes, self._setting))
        except psycopg.errors.LockNotAvailable as error:
            raise told(error, jobs, self._location) from error


def drive(db: Db, steps: Steps) -> list[Enqueued]:
    """Run the statements, one after the other, by our own connection."""
    try:
        sql, values = next(steps)
        while True:
            cursor = db.run(sql, **values)
            sql, values = steps.send(cursor.fetchall() if cursor.description else [])
    except StopIteration as stop:
        return cast("list[Enqueued]", stop.value)


def _outcome(pool: Pool, run: Callable[[Db], Any]) -> tuple[Any, BaseException | None]:
    """What it brings, or the error for whoever asked."""
    try:
        return pool.use(run), None
    except Exception as error:
        return None, error
