"""A store in front of another one, which goes away when it is told to."""
# ruff: noqa: D102 - the protocol says what the verbs do

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from holdfast.clock import SystemClock
from holdfast.errors import StoreAway, StoreError
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
from holdfast.types import Group, JobRecord, NewJob

T = TypeVar("T")
Fault = Literal["away", "lost", "hang", "late"]

VERBS: Final = (
    "capabilities enqueue exchange heartbeat reclaim note transaction get find groups stats change prune wait".split()
)
"""What can fail; `enqueue` stands for its sync twin too."""


class FaultyStore:
    """Passes everything on to `inner`, until `fail` is called; `mend` ends all faults.

    `calls` counts what was asked of it, by verb.
    """

    def __init__(self, inner: Store, clock: Clock | None = None) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()
        """How many calls hang, or wait to be late, by verb."""
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._faults: dict[str, Fault] = {}
        self._late_s = 0.0
        self._error: StoreError = StoreAway("no connection")
        self._waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()

    def fail(self, *verbs: str, fault: Fault = "away", error: StoreError | None = None, late_s: float = 1.0) -> None:
        """From now on these verbs fail, all of them where none is named.

        fault: "away" raises the error before anything is done, "lost" after it was done, "hang" answers nothing until
        the store is mended, and then with the error; "late" does it after `late_s`.
        """
        self._late_s = late_s
        self._error = error or StoreAway("no connection")
        self._faults.update(dict.fromkeys(verbs or VERBS, fault))

    def mend(self) -> None:
        """All is well again; what hangs gets its error."""
        with self._lock:
            self._faults.clear()
            waiters, self._waiters = self._waiters, set()
        for loop, waiter in waiters:
            loop.call_soon_threadsafe(_wake, waiter)

    async def _pass(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls[verb] += 1
        match self._faults.get(verb):
            case None:
                return await call()
            case "away":
                raise self._failure()
            case "lost":
                await call()
                raise self._failure()
            case "late":
                await self._delayed(verb, self._clock.asleep(self._late_s))
                return await call()
            case "hang":
                await self._delayed(verb, self._hang())
                raise self._failure()

    def _pass_now(self, verb: str, call: Callable[[], T]) -> T:
        self.calls[verb] += 1
        match self._faults.get(verb):
            case None:
                return call()
            case "lost":
                call()
                raise self._failure()
            case "late":
                self._clock.sleep(self._late_s)
                return call()
            case _:
                raise self._failure()  # a thread is not left hanging for ever

    def _failure(self) -> StoreError:
        return type(self._error)(*self._error.args)

    async def _delayed(self, verb: str, until: Awaitable[None]) -> None:
        with self._lock:
            self.waiting[verb] += 1
        try:
            await until
        finally:
            with self._lock:
                self.waiting[verb] -= 1

    async def _hang(self) -> None:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        with self._lock:
            self._waiters.add((loop, waiter))
        try:
            await waiter
        finally:
            with self._lock:
                self._waiters.discard((loop, waiter))

    # ---------------------------------------------------------------- the verbs

    @property
    def clock_offset_s(self) -> float:
        """That of the inner store, which tests move."""
        return self.inner.clock_offset_s  # type: ignore[attr-defined, no-any-return]

    @clock_offset_s.setter
    def clock_offset_s(self, value: float) -> None:
        self.inner.clock_offset_s = value  # type: ignore[attr-defined]

    @property
    def capabilities(self) -> Capabilities:
        return self._pass_now("capabilities", lambda: self.inner.capabilities)

    async def enqueue(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        return await self._pass("enqueue", lambda: self.inner.enqueue(jobs, connection))

    def enqueue_now(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        return self._pass_now("enqueue", lambda: self.inner.enqueue_now(jobs, connection))

    async def exchange(self, exchange: Exchange) -> Exchanged:
        return await self._pass("exchange", lambda: self.inner.exchange(exchange))

    async def heartbeat(self, worker: WorkerRecord) -> Beat:
        return await self._pass("heartbeat", lambda: self.inner.heartbeat(worker))

    async def reclaim(self, worker: str, token: bytes, limit: int) -> list[Delivery]:
        return await self._pass("reclaim", lambda: self.inner.reclaim(worker, token, limit))

    async def note(self, note: Note) -> bool:
        return await self._pass("note", lambda: self.inner.note(note))

    def transaction(
        self, settlement: Settlement, limit_s: float, counts: Sequence[Count] = ()
    ) -> AbstractContextManager[Transaction]:
        return self._pass_now("transaction", lambda: self.inner.transaction(settlement, limit_s, counts))

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return await self._pass("get", lambda: self.inner.get(ids))

    async def find(self, query: Query) -> Page:
        return await self._pass("find", lambda: self.inner.find(query))

    async def groups(self, query: Query) -> list[Group]:
        return await self._pass("groups", lambda: self.inner.groups(query))

    async def stats(self, since_minute: int | None = None) -> Stats:
        return await self._pass("stats", lambda: self.inner.stats(since_minute))

    async def change(self, operation: Operation) -> list[Changed]:
        return await self._pass("change", lambda: self.inner.change(operation))

    async def prune(self, limit: int) -> int:
        return await self._pass("prune", lambda: self.inner.prune(limit))

    async def wait(self, timeout_s: float) -> None:
        await self._pass("wait", lambda: self.inner.wait(timeout_s))

    async def close(self) -> None:
        self.mend()
        await self.inner.close()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


if TYPE_CHECKING:
    _contract: type[Store] = FaultyStore
