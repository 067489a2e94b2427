"""The Redis store: the verbs, each handed to the connection that it belongs to."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError, StoreError
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
from holdfast.stores.redis import people, records
from holdfast.stores.redis.call import Call
from holdfast.stores.redis.connection import Address, Connection, check_url
from holdfast.stores.redis.exchange import exchange_call
from holdfast.stores.redis.groups import group_letters
from holdfast.stores.redis.opened import Opened
from holdfast.stores.redis.prune import prune_call
from holdfast.stores.redis.scripts import CLOCK
from holdfast.stores.redis.search import find_jobs
from holdfast.stores.redis.server import SCHEMA
from holdfast.stores.redis.stats import stats_call
from holdfast.stores.redis.workers import beat_call, note_call, reclaim_call
from holdfast.stores.refusals import check_exchange, check_heartbeat, check_no_connection, check_operation
from holdfast.types import Group, JobRecord, NewJob

_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]{1,63}")


class RedisStore:
    """Jobs in Redis or Valkey. It is opened by the first verb, and opened anew in a forked child.

    `prefix` [holdfast]: of every key, as in `{holdfast}:…`; products that share a server take one each. `wait_replicas`
    [0]: so many replicas must have a write before it is acknowledged, within `wait_s` [1 s]. `key_window_s` [86,400]:
    how long an idempotency key is held after its job has ended. `answer_within_s` [5 s]: how long an answer is waited
    for; a call whose answer is lost is sent once more. `clock_offset_s` is for tests, which move leases and due times.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "holdfast",
        wait_replicas: int = 0,
        wait_s: float = 1.0,
        key_window_s: float = 86_400.0,
        answer_within_s: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ConfigError(f"prefix: {prefix!r} must be of letters, digits and _ . - alone, from 1 to 63")
        if wait_replicas < 0:
            raise ConfigError(f"wait_replicas: {wait_replicas} is negative")
        for name, seconds in (("wait_s", wait_s), ("key_window_s", key_window_s)):
            if seconds < 0:
                raise ConfigError(f"{name}: {seconds} is negative")
        if answer_within_s <= 0:
            raise ConfigError(f"answer_within_s: {answer_within_s} is no time to answer in")
        check_url(url)
        self._address = Address(
            url=url,
            location=_location_of(url, prefix),
            prefix=prefix,
            key_window_s=key_window_s,
            answer_within_s=answer_within_s,
            wait_replicas=wait_replicas,
            wait_s=wait_s if wait_replicas else 0.0,
        )
        self._clock: Clock = clock or SystemClock()
        self.clock_offset_s = 0.0
        self._mutex = threading.Lock()
        self._pid = os.getpid()
        self._opened: Opened | None = None
        self._is_closed = False

    @property
    def capabilities(self) -> Capabilities:
        server = self._open().server
        return Capabilities(
            name="redis",
            location=self._address.location,
            is_durable=server.is_durable,
            is_shared=True,
            has_transactions=False,
            takes_connections=False,
            version=server.version,
            schema=f"keys {{{self._address.prefix}}}:…, version {SCHEMA}",
            durability=server.durability,
            warnings=server.warnings,
        )

    # ---------------------------------------------------------------- producers

    async def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]:
        check_no_connection(connection, self._address.location)
        return await (await self._aopen()).enqueues.enqueue(jobs) if jobs else []

    def enqueue_now(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]:
        check_no_connection(connection, self._address.location)
        return self._open().enqueues.enqueue_now(jobs) if jobs else []

    # ---------------------------------------------------------------- workers

    async def exchange(self, exchange: Exchange) -> Exchanged:
        check_exchange(exchange)
        opened = await self._aopen()
        if exchange.claim is not None:
            opened.news.look()
        return await opened.exchanges.run(exchange_call(exchange, opened.texts))

    async def heartbeat(self, worker: WorkerRecord) -> Beat:
        check_heartbeat(worker)
        call = beat_call(worker)
        return await (await self._aopen()).heartbeats.ask(lambda connection: connection.run(call))

    async def reclaim(self, worker: str, token: bytes, limit: int) -> list[Delivery]:
        opened = await self._aopen()
        call = reclaim_call(worker, token, limit, opened.texts)
        return await opened.people.ask(lambda connection: connection.run(call))

    async def note(self, note: Note) -> bool:
        return await (await self._aopen()).exchanges.run(note_call(note))

    def transaction(
        self, settlement: Settlement, limit_s: float, counts: Sequence[Count] = ()
    ) -> AbstractContextManager[Transaction]:
        raise StoreError(
            f"{self._address.location}: Redis has no transactions for users' own writes; job.transaction() needs "
            "a store such as sqlite:///jobs.db or postgresql://…"
        )

    async def wait(self, timeout_s: float) -> None:
        await (await self._aopen()).news.wait(timeout_s)

    # ---------------------------------------------------------------- people

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        opened = await self._aopen()

        def read(connection: Connection) -> list[JobRecord | None]:
            found: dict[str, JobRecord] = {}
            for start in range(0, len(ids), records.AT_ONCE):
                call = records.get_call(ids[start : start + records.AT_ONCE], opened.texts)
                some: dict[str, JobRecord] = connection.run(call)
                found.update(some)
            return [found.get(id) for id in ids]  # noqa: A001

        return await opened.reader.ask(read)

    async def find(self, query: Query) -> Page:
        opened = await self._aopen()
        return await opened.searches.ask(lambda connection: find_jobs(connection.run, query, opened.texts))

    async def groups(self, query: Query) -> list[Group]:
        opened = await self._aopen()
        clock = Call(CLOCK, (), float)
        return await opened.searches.ask(
            lambda connection: group_letters(connection.run, query, opened.texts, connection.run(clock))
        )

    async def stats(self, since_minute: int | None = None) -> Stats:
        return await (await self._aopen()).reader.ask(lambda connection: connection.run(stats_call(since_minute)))

    async def change(self, operation: Operation) -> list[Changed]:
        check_operation(operation)
        ids = operation.ids

        def change_all(connection: Connection) -> list[Changed]:
            answers: list[Changed] = []
            for start in range(0, len(ids), people.AT_ONCE):
                call = people.change_call(operation, ids[start : start + people.AT_ONCE])
                some: list[Changed] = connection.run(call)
                answers.extend(some)
            return answers

        return await (await self._aopen()).people.ask(change_all)

    async def prune(self, limit: int) -> int:
        def prune_some(connection: Connection) -> int:
            n, is_more = 0, True
            while is_more and n < limit:
                some, is_more = connection.run(prune_call(limit - n))
                n += some
            return n

        return await (await self._aopen()).people.ask(prune_some)

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
            self._opened = Opened(self._address, self._clock, lambda: self.clock_offset_s)
            return self._opened


def _location_of(url: str, prefix: str) -> str:
    """The URL for people: without user, password and options."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}?prefix={prefix}"


if TYPE_CHECKING:
    _contract: type[Store] = RedisStore
