"""The PostgreSQL store: the verbs, each handed to the connection that it belongs to."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError, IllegalChange, StoreError
from holdfast.extras import how_to_install
from holdfast.policy.lifecycle import SETTLING
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
from holdfast.stores.refusals import check_heartbeat
from holdfast.types import Change, Group, JobRecord, NewJob

try:
    from holdfast.stores.postgres.callers import aenqueue_by, enqueue_by
    from holdfast.stores.postgres.connection import address_of
    from holdfast.stores.postgres.db import Db
    from holdfast.stores.postgres.ends import check_no_ends
    from holdfast.stores.postgres.groups import group_letters
    from holdfast.stores.postgres.lanes import drop_empty_lanes
    from holdfast.stores.postgres.opened import Opened
    from holdfast.stores.postgres.people import Changing
    from holdfast.stores.postgres.prune import prune_jobs, prune_rest
    from holdfast.stores.postgres.queries import migrations
    from holdfast.stores.postgres.records import get_records
    from holdfast.stores.postgres.search import find_jobs
    from holdfast.stores.postgres.stats import read_stats
    from holdfast.stores.postgres.workers import reclaim, remember
except ImportError as error:
    raise ConfigError(f"PostgreSQL needs the package psycopg ({error}): {how_to_install('postgres')}") from None

_SCHEMA: Final = len(migrations())
_BY_PEOPLE: Final = frozenset({Change.CANCEL, Change.REPLAY, Change.REMOVE})
_COMPLETE: Final = Change.COMPLETE


class PostgresStore:
    """Jobs in a PostgreSQL database, from version 13 on. It is opened by the first verb, and anew in a forked child.

    `url`: postgresql://user@host/database; libpq's own options may follow, and synchronous_commit=off, with which the
    server's crash loses what was acknowledged last, so that the store is not called durable. `schema`: where the tables
    are, made if it is not there [the first one of the user's search path]. `key_window_s` [86,400]: how long an
    idempotency key is held after its job has ended. `answer_s` [10]: how long to wait for any answer of the server
    before the connection is taken for broken. `clock_offset_s` is for tests, which move leases and due times with it.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "",
        key_window_s: float = 86_400.0,
        answer_s: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        if key_window_s < 0:
            raise ConfigError(f"key_window_s: {key_window_s} is negative")
        if not 0 < answer_s < 3600:
            raise ConfigError(f"answer_s: {answer_s} is not a number of seconds above 0")
        self._address = address_of(url, schema, answer_s)
        self._key_window_s = key_window_s
        self._clock: Clock = clock or SystemClock()
        self._mutex = threading.Lock()
        self._pid = os.getpid()
        self._opened: Opened | None = None
        self._lanes_swept_to = 0
        self._is_closed = False
        self.clock_offset_s = 0.0
        """Seconds by which tests have moved the store's clock."""

    @property
    def capabilities(self) -> Capabilities:
        server = self._open().server
        return Capabilities(
            name="postgres",
            location=self._address.location,
            is_durable=server.is_durable,
            is_shared=True,
            has_transactions=True,
            takes_connections=True,
            version=server.version,
            schema=f"tables {server.schema}.holdfast_…, version {_SCHEMA}",
            durability=server.durability,
            warnings=server.warnings,
        )

    # ---------------------------------------------------------------- producers

    async def enqueue(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        opened = await self._aopen()
        if connection is not None:
            check_no_ends(jobs)
            return await aenqueue_by(connection, opened.place, jobs, self.clock_offset_s)
        return await opened.enqueuer.enqueue(jobs)

    def enqueue_now(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        opened = self._open()
        if connection is not None:
            check_no_ends(jobs)
            return enqueue_by(connection, opened.place, jobs, self.clock_offset_s)
        return opened.enqueuer.enqueue_now(jobs)

    # ---------------------------------------------------------------- workers

    async def exchange(self, exchange: Exchange) -> Exchanged:
        for settlement in exchange.settlements:
            if settlement.change not in SETTLING:
                raise IllegalChange(f"{settlement.change}: no worker may settle a job so")
        opened = await self._aopen()
        version = opened.news.version()
        exchanged = await opened.writer.write(lambda db: opened.exchanges.exchange(db, exchange))
        if exchange.claim is not None and len(exchanged.deliveries) < exchange.claim.limit:
            opened.news.look(version)
        return exchanged

    async def heartbeat(self, worker: WorkerRecord) -> Beat:
        check_heartbeat(worker)
        return await (await self._aopen()).beat(worker)

    async def reclaim(self, worker: str, token: bytes, limit: int) -> list[Delivery]:
        opened = await self._aopen()
        lanes = opened.exchanges.lanes
        return await opened.writer.write(lambda db: reclaim(db, lanes, worker, token, limit))

    async def note(self, note: Note) -> bool:
        return await (await self._aopen()).writer.write(lambda db: remember(db, note))

    def transaction(
        self, settlement: Settlement, limit_s: float, counts: Sequence[Count] = ()
    ) -> AbstractContextManager[Transaction]:
        if settlement.change is not _COMPLETE:
            raise IllegalChange(f"{settlement.change}: leaving a transaction completes the job")
        return self._open().transaction(settlement, limit_s, counts)

    async def wait(self, timeout_s: float) -> None:
        await (await self._aopen()).news.wait(timeout_s)

    # ---------------------------------------------------------------- people

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return await (await self._aopen()).read(lambda db: get_records(db, ids))

    async def find(self, query: Query) -> Page:
        return await (await self._aopen()).read(lambda db: find_jobs(db, query))

    async def groups(self, query: Query) -> list[Group]:
        return await (await self._aopen()).read(lambda db: group_letters(db, query))

    async def stats(self, since_minute: int | None = None) -> Stats:
        return await (await self._aopen()).read(lambda db: read_stats(db, since_minute))

    async def change(self, operation: Operation) -> list[Changed]:
        if operation.change not in _BY_PEOPLE:
            raise IllegalChange(f"{operation.change}: people can cancel, replay and remove jobs")
        opened = await self._aopen()
        changed = await opened.change(Changing(operation, opened.setting).run)
        opened.news.tell()
        return changed

    async def prune(self, limit: int) -> int:
        return await (await self._aopen()).prune(lambda db: self._prune(db, limit))

    async def close(self) -> None:
        with self._mutex:
            self._is_closed = True
            opened, self._opened = self._opened, None
        if opened is not None and opened.pid == os.getpid():
            await asyncio.to_thread(opened.close)

    # ---------------------------------------------------------------- inside

    async def _aopen(self) -> Opened:
        """Opening waits for the server, so it must not be done on the event loop."""
        opened = self._opened
        if opened is not None and opened.pid == os.getpid():
            return opened
        return await asyncio.to_thread(self._open)

    def _open(self) -> Opened:
        opened = self._opened
        if opened is not None and opened.pid == os.getpid():
            return opened
        if self._pid != os.getpid():  # a fork: whoever held the mutex is not here
            self._pid = os.getpid()
            self._mutex = threading.Lock()
        with self._mutex:
            if self._is_closed:
                raise StoreError(f"{self._address.location}: the store is closed")
            if self._opened is not None:
                if self._opened.pid == os.getpid():
                    return self._opened
                self._opened.abandon()
            self._opened = Opened(self._address, self._key_window_s, self._clock, lambda: self.clock_offset_s)
            return self._opened

    def _prune(self, db: Db, limit: int) -> int:
        n_deleted = prune_jobs(db, limit)
        prune_rest(db)
        self._lanes_swept_to = drop_empty_lanes(db, self._lanes_swept_to)
        return n_deleted


if TYPE_CHECKING:
    _contract: type[Store] = PostgresStore
