"""The connections of one process to a database, each with its own purpose."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from msgspec import structs

from holdfast.clock import SystemClock
from holdfast.errors import StoreAway, StoreError
from holdfast.ports import Beat, Clock, Count, Settlement, WorkerRecord
from holdfast.stores.postgres.callers import Place
from holdfast.stores.postgres.connection import Address
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.enqueue import Setting
from holdfast.stores.postgres.exchange import Exchanges
from holdfast.stores.postgres.news import News
from holdfast.stores.postgres.pool import Backoff, Pool
from holdfast.stores.postgres.queries import load
from holdfast.stores.postgres.schema import open_schema
from holdfast.stores.postgres.transaction import JobTransaction
from holdfast.stores.postgres.workers import beat
from holdfast.stores.postgres.writer import Enqueuer, Writer

Answer = TypeVar("Answer")
_MACHINE: Final = SystemClock()
_READERS: Final = 4
_SLOW_S: Final = 60.0
"""How long an answer may take where much is done at once: pruning, and a job's own statements."""
_BEAT_S: Final = 3.0
"""A heartbeat without an answer is sent again on a new connection, while the lease still holds."""
_LISTEN_NO_MORE: Final = load("values.sql")["listen_no_more"]


class Opened:
    """A database that this process has open."""

    def __init__(self, address: Address, key_window_s: float, clock: Clock, offset_s: Callable[[], float]) -> None:
        self.pid = os.getpid()
        self._location = address.location
        self._clock = clock
        self._backoff = Backoff()

        def pool(backoff: Backoff = self._backoff, **options: Any) -> Pool:
            return Pool(address, backoff, offset_s, **options)

        first = pool()
        try:
            self.server = first.use(lambda db: open_schema(db.line, address))
        finally:
            first.close()
        store = self.server.store
        channel = f"holdfast:{store}"
        self._listening = pool()
        self.news = News(channel, self._listening.connect, clock)
        self.setting = setting = Setting(key_window_s=key_window_s, channel=channel, listener=self.news.listener)
        self.exchanges = Exchanges(store, setting, self.news)
        self.writer = Writer("holdfast-writer", self._location, pool(is_hot=True))
        self.enqueuer = Enqueuer(self._location, pool(is_hot=True, most_spare=2), store, setting, self.news.tell)
        told = structs.replace(setting, listener="", are_lanes_held=True)  # their commit is news for us too
        self.place = Place(self._location, self.server.schema, store, told, self.enqueuer.lanes_of)
        # No wait before a try: whoever beats waits between its tries, and a lease has no time for two such waits.
        self._beating = pool(Backoff(longest_s=0.0), is_hot=True, answer_s=min(_BEAT_S, address.answer_s))
        self._answer_s = address.answer_s
        self._reading = pool(most_spare=_READERS)
        self._pruning = pool(answer_s=max(_SLOW_S, address.answer_s))
        self._transactions = pool(most_spare=8, answer_s=max(_SLOW_S, address.answer_s))
        self._heart = ThreadPoolExecutor(1, thread_name_prefix="holdfast-heartbeat")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="holdfast-reader")

    async def read(self, run: Callable[[Db], Answer]) -> Answer:
        """Run this for people, on a thread and a connection beside the others.

        Nobody waits longer than for any answer, not even for a free thread: while a server hangs, all of them wait for
        it, and whoever asks is better told so.
        """
        try:
            async with _MACHINE.timeout(self._answer_s):
                return await self.change(run)
        except TimeoutError:
            raise StoreAway(
                f"{self._location}: the server has not answered for {self._answer_s:g} s; check it and the network"
            ) from None

    async def change(self, run: Callable[[Db], Answer]) -> Answer:
        """The same for what changes something, which has its end awaited."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._reading.use, run)

    async def prune(self, run: Callable[[Db], Answer]) -> Answer:
        """The same for what may take long, and nobody waits for."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._pruning.use, run)

    async def beat(self, worker: WorkerRecord) -> Beat:
        """Register a worker, renew its lease, or take its leave; on a connection of its own."""
        run = asyncio.get_running_loop().run_in_executor
        answer: Beat = await run(self._heart, self._beating.use, lambda db: beat(db, worker))
        if not answer.is_alive:
            self.news.tell()  # there may be orphans
        return answer

    def transaction(self, settlement: Settlement, limit_s: float, counts: Sequence[Count]) -> JobTransaction:
        """A job's own transaction, on a connection of its own."""
        return JobTransaction(
            settlement,
            limit_s,
            counts,
            location=self._location,
            clock=self._clock,
            pool=self._transactions,
            window_s=self.setting.key_window_s,
            tell=self.news.tell,
        )

    def close(self) -> None:
        """Close every connection."""
        if self.news.is_listed():
            with suppress(StoreError):
                self._beating.use(lambda db: db.run(_LISTEN_NO_MORE, listener=self.news.listener))
        self.news.close()
        self._heart.shutdown()
        self._readers.shutdown()
        self.enqueuer.close()
        self.writer.close()
        for pool in (self._beating, self._reading, self._pruning, self._transactions, self._listening):
            pool.close()

    def abandon(self) -> None:
        """In a forked child: these connections are the parent's. Closing them here would harm it, so they are kept."""
        _abandoned.append(self)


_abandoned: list[Any] = []
