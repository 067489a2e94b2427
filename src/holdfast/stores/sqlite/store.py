"""The SQLite store: the verbs, each handed to the connection that it belongs to."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import apsw
from msgspec import structs

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError, IllegalChange, StoreError
from holdfast.ports import (
    Beat,
    Capabilities,
    Changed,
    Clock,
    Count,
    Delivery,
    Enqueued,
    Exchange,
    Exchanged,
    Note,
    Operation,
    Page,
    Query,
    Settlement,
    Stats,
    Store,
    Transaction,
    WorkerRecord,
)
from holdfast.stores.refusals import check_exchange, check_heartbeat, check_no_connection, check_operation
from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.claim import claim_jobs
from holdfast.stores.sqlite.faults import DiskFull
from holdfast.stores.sqlite.groups import group_letters
from holdfast.stores.sqlite.opened import Opened
from holdfast.stores.sqlite.people import change_jobs
from holdfast.stores.sqlite.prune import prune_jobs
from holdfast.stores.sqlite.queries import migrations
from holdfast.stores.sqlite.records import get_records
from holdfast.stores.sqlite.search import find_jobs
from holdfast.stores.sqlite.settle import settle
from holdfast.stores.sqlite.stats import read_stats
from holdfast.stores.sqlite.values import add_counts, change_values, newest_version, values_above
from holdfast.stores.sqlite.workers import reclaim, remember
from holdfast.types import Change, Group, JobRecord, NewJob

Answer = TypeVar("Answer")
Synchronous = Literal["NORMAL", "FULL", "EXTRA"]
_COMPLETE: Final = Change.COMPLETE
_MOST_KNOWN_LANES: Final = 100_000
_FEW: Final = 10
_ON_DISK: Final = "every commit is on the disk before it is acknowledged"
_SCHEMA: Final = len(migrations())
_DURABILITY: Final = {
    "FULL": _ON_DISK,
    "EXTRA": _ON_DISK,
    "NORMAL": "a killed process loses nothing, a power cut the last commits (synchronous=normal)",
}


class SqliteStore:
    """Jobs in one file. It is opened by the first verb. A process that was forked while it was open is refused it.

    `synchronous` [FULL]: every commit is on the disk before it is acknowledged. NORMAL is faster, and loses the last
    commits with the machine's power, though not with the process, so it is not called durable. `key_window_s`
    [86,400]: how long an idempotency key is held after its job has ended. `clock_offset_s` is for tests, which move
    leases and due times with it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "FULL",
        key_window_s: float = 86_400.0,
        clock: Clock | None = None,
    ) -> None:
        name = os.fspath(path)
        if not name or name == ":memory:" or name.startswith("file:"):
            raise ConfigError(f"path: {name!r} is not the path of a file; for a store in memory use memory://")
        if synchronous not in {"NORMAL", "FULL", "EXTRA"}:
            raise ConfigError(f"synchronous: {synchronous!r} is none of NORMAL, FULL and EXTRA")
        if key_window_s < 0:
            raise ConfigError(f"key_window_s: {key_window_s} is negative")
        self._path = os.path.realpath(name)  # SQLite puts its log beside the file itself, not beside a link to it
        self._synchronous = synchronous
        self._key_window_s = key_window_s
        self._clock: Clock = clock or SystemClock()
        self._offset_s = 0.0
        self._mutex = threading.Lock()
        self._pid = os.getpid()
        self._opened: Opened | None = None
        self._lanes: dict[str, int] = {}
        self._is_closed = False

    @property
    def clock_offset_s(self) -> float:
        """Seconds by which tests have moved the store's clock."""
        return self._offset_s

    @clock_offset_s.setter
    def clock_offset_s(self, seconds: float) -> None:
        self._offset_s = seconds
        if self._opened is not None:
            self._opened.store_clock.offset_s = seconds

    @property
    def capabilities(self) -> Capabilities:
        self._open()
        return Capabilities(
            name="sqlite",
            location=self._path,
            is_durable=self._synchronous != "NORMAL",
            is_shared=True,
            has_transactions=True,
            version=f"SQLite {apsw.sqlite_lib_version()}",
            schema=f"tables holdfast_…, version {_SCHEMA}",
            durability=_DURABILITY[self._synchronous],
        )

    # ---------------------------------------------------------------- producers

    async def enqueue(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        check_no_connection(connection, self._path)
        return await self._open().writer.enqueue(jobs)

    def enqueue_now(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        check_no_connection(connection, self._path)
        return self._open().writer.enqueue_now(jobs)

    # ---------------------------------------------------------------- workers

    async def exchange(self, exchange: Exchange) -> Exchanged:
        check_exchange(exchange)
        opened = self._open()
        version = opened.news.version() if exchange.claim is not None else 0
        exchanged = await opened.writer.write(lambda batch: self._exchange(batch, exchange))
        if exchange.claim is not None and len(exchanged.deliveries) < exchange.claim.limit:
            opened.news.look(version)
        return exchanged

    async def heartbeat(self, worker: WorkerRecord) -> Beat:
        check_heartbeat(worker)
        return await self._open().heartbeats.beat(worker)

    async def reclaim(self, worker: str, token: bytes, limit: int) -> list[Delivery]:
        opened = self._open()
        alive = await opened.reader.read(opened.heartbeats.alive)
        dead = opened.locks.dead_of(other for other in alive if other != worker)
        gone: list[str] = []
        try:
            deliveries, gone = await opened.writer.write(
                lambda batch: reclaim(batch, worker, token, limit, tuple(dead))
            )
        finally:
            opened.locks.bury(dead, gone)
        return deliveries

    async def note(self, note: Note) -> bool:
        return await self._open().writer.write(lambda batch: remember(batch, note))

    def transaction(
        self, settlement: Settlement, limit_s: float, counts: Sequence[Count] = ()
    ) -> AbstractContextManager[Transaction]:
        if settlement.change is not _COMPLETE:
            raise IllegalChange(f"{settlement.change}: leaving a transaction completes the job")
        return self._open().transaction(settlement, limit_s, counts)

    async def wait(self, timeout_s: float) -> None:
        await self._open().news.wait(timeout_s)

    # ---------------------------------------------------------------- people

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return await self._open().reader.read(lambda db: get_records(db, ids))

    async def find(self, query: Query) -> Page:
        return await self._open().reader.read(lambda db: find_jobs(db, query))

    async def groups(self, query: Query) -> list[Group]:
        opened = self._open()
        now = opened.store_clock.now()
        return await opened.reader.read(lambda db: group_letters(db, query, now))

    async def stats(self, since_minute: int | None = None) -> Stats:
        opened = self._open()
        now = opened.store_clock.now()
        return await opened.reader.read(lambda db: read_stats(db, since_minute, now))

    async def change(self, operation: Operation) -> list[Changed]:
        check_operation(operation)
        ids = operation.ids
        try:
            return await self._open().writer.write(lambda batch: change_jobs(batch, operation))
        except DiskFull:  # fewer at a time need less room, and this may be how somebody makes some
            if len(ids) < 2:
                raise
        half = len(ids) // 2
        first = await self.change(structs.replace(operation, ids=ids[:half]))
        return first + await self.change(structs.replace(operation, ids=ids[half:]))

    async def prune(self, limit: int) -> int:
        try:
            return await self._open().writer.write(lambda batch: prune_jobs(batch, limit))
        except DiskFull:
            if limit < _FEW:
                raise
        return await self.prune(limit // 10)

    async def close(self) -> None:
        with self._mutex:
            self._is_closed = True
            opened, self._opened = self._opened, None
        if opened is not None and opened.pid == os.getpid():
            await asyncio.to_thread(opened.close)

    # ---------------------------------------------------------------- inside

    def _open(self) -> Opened:
        opened = self._opened
        if opened is not None and opened.pid == os.getpid():
            return opened
        if self._pid != os.getpid():  # a fork: whoever held the mutex is not here
            self._pid = os.getpid()
            self._mutex = threading.Lock()
        with self._mutex:
            if self._is_closed:
                raise StoreError(f"{self._path}: the store is closed")
            if self._opened is not None and self._opened.pid == os.getpid():
                return self._opened
            self._opened = Opened(self._path, self._synchronous, self._key_window_s, self._clock)
            self._opened.store_clock.offset_s = self._offset_s
            return self._opened

    def _exchange(self, batch: Batch, exchange: Exchange) -> Exchanged:
        now = batch.tick()
        known = self._lanes
        if len(known) > _MOST_KNOWN_LANES:
            known.clear()
        settled: Sequence[bool] = ()
        if exchange.settlements:
            settled = settle(batch, exchange.settlements, known)
            for one in exchange.settlements:
                known.pop(one.id, None)
        newest = newest_version(batch)
        changed = change_values(batch, exchange.changes, now) if exchange.changes else ()
        if exchange.counts:
            add_counts(batch, exchange.counts, exchange.counted)
        deliveries: Sequence[Delivery] = ()
        next_due_s = None
        if exchange.claim is not None:
            deliveries, next_due_s = claim_jobs(batch, exchange.claim, batch.tick(), known)
        return Exchanged(
            now=now,
            settled=settled,
            changed=changed,
            deliveries=deliveries,
            values=values_above(batch, exchange.seen),
            next_due_s=next_due_s,
            newest=newest,
        )


if TYPE_CHECKING:
    _contract: type[Store] = SqliteStore
