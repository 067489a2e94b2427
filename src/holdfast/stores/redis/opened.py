"""The connections of one process to a server, each with its own purpose."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar, cast

from holdfast.errors import StoreError
from holdfast.ports import Clock, Enqueued
from holdfast.stores.ends import are_plain
from holdfast.stores.pen import Ask, Pen
from holdfast.stores.redis.call import Call
from holdfast.stores.redis.connection import Address, Connection
from holdfast.stores.redis.enqueue import enqueue_call
from holdfast.stores.redis.news import News
from holdfast.stores.redis.server import look_at_server
from holdfast.stores.redis.state import Texts
from holdfast.types import NewJob

Answer = TypeVar("Answer")
_BEAT_WITHIN_S: Final = 3.0
_MOST_TOGETHER: Final = 500
"""New jobs of several callers that go in one call; those of one caller are all or none, however many they are."""


class Desk:
    """Calls on a thread and a connection of its own, one after the other."""

    def __init__(self, name: str, location: str, connection: Connection) -> None:
        self._location = location
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def ask(self, run: Callable[[Connection], Answer]) -> Answer:
        """Run this there."""
        loop = asyncio.get_running_loop()
        try:
            running = loop.run_in_executor(self._thread, run, self._connection)
        except RuntimeError as error:  # of the thread, which takes nothing more
            raise StoreError(f"{self._location}: the store is closed") from error
        return await running

    def close(self) -> None:
        """Stop the thread and close the connection."""
        self._thread.shutdown()
        self._connection.close()


class Writer:
    """Calls that gather while the last ones are under way, and go together."""

    def __init__(self, name: str, location: str, connection: Connection, texts: Texts) -> None:
        self._connection = connection
        self._texts = texts
        self._pen = Pen(name, location, self._write)

    async def run(self, call: Call[Answer]) -> Answer:
        """Send this with the next batch."""
        return cast("Answer", await self._pen.ask(call))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Remember new jobs."""
        return cast("list[Enqueued]", await self._pen.ask(None, jobs))

    def enqueue_now(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """The same on the caller's own thread, or together with others' when the pen is taken."""
        return cast("list[Enqueued]", self._pen.ask_now(None, jobs))

    def close(self) -> None:
        """Send all that waits, stop the thread and close the connection, which nobody uses any more."""
        self._pen.ask_now(None, is_last=True)
        self._pen.close()
        self._connection.close()

    def _write(self, asks: Sequence[Ask]) -> None:
        groups: list[Sequence[Ask]] = []
        calls: list[Call[Any]] = []
        for ask in asks:
            ask.is_done = ask.run is None and not ask.jobs  # the last one, which only waits for the others
        for group in _together([ask for ask in asks if not ask.is_done]):
            for some, call in self._calls_of(group):
                groups.append(some)
                calls.append(call)
        answers: list[Any] = []
        if calls:
            try:
                answers = self._connection.run_all(calls)
            except Exception as error:  # it is handed to whoever asked
                answers = [error] * len(groups)
        for some, answer in zip(groups, answers, strict=True):
            _share_out(some, answer)

    def _calls_of(self, group: Sequence[Ask]) -> list[tuple[Sequence[Ask], Call[Any]]]:
        """One call for all of them; where that cannot be written down, one for each that can."""
        try:
            return [(group, self._call_of(group))]
        except Exception as error:  # such as half of a surrogate pair; it is handed to whoever asked
            if len(group) == 1:
                _share_out(group, error)
                return []
        return [pair for ask in group for pair in self._calls_of([ask])]

    def _call_of(self, group: Sequence[Ask]) -> Call[Any]:
        run = group[0].run
        if run is not None:
            return cast("Call[Any]", run)
        if len(group) == 1:
            return enqueue_call(group[0].jobs, self._texts)
        return enqueue_call([job for ask in group for job in ask.jobs], self._texts)


def _together(asks: Sequence[Ask]) -> list[list[Ask]]:
    """New jobs without idempotency keys and ends go as one call, up to a bound; all else by itself."""
    groups: list[list[Ask]] = []
    size = _MOST_TOGETHER
    for ask in asks:
        is_plain = ask.run is None and are_plain(ask.jobs)
        size += len(ask.jobs)
        if is_plain and size <= _MOST_TOGETHER:
            groups[-1].append(ask)
        else:
            groups.append([ask])
            size = len(ask.jobs) if is_plain else _MOST_TOGETHER
    return groups


def _share_out(group: Sequence[Ask], answer: Any) -> None:
    start = 0
    for ask in group:
        if isinstance(answer, Exception):
            ask.error = answer
        elif len(group) == 1:
            ask.answer = answer
        else:
            ask.answer = answer[start : start + len(ask.jobs)]
            start += len(ask.jobs)
        ask.is_done = True


class Opened:
    """A server that this process is connected to."""

    def __init__(self, address: Address, clock: Clock, offset_s: Callable[[], float]) -> None:
        self.pid = os.getpid()
        self.texts = Texts()
        self._address = address
        self._offset_s = offset_s
        people = self._connection()
        try:
            self.server = look_at_server(people, address)
        except StoreError:
            people.close()
            raise
        location = address.location
        self.people = Desk("holdfast-people", location, people)
        self.reader = Desk("holdfast-reader", location, self._connection())
        self.searches = Desk("holdfast-searches", location, self._connection())
        """These may look at every job, one piece after the other, and nobody else is to wait for them."""
        beat_within_s = min(_BEAT_WITHIN_S, address.answer_within_s)
        self.heartbeats = Desk("holdfast-heartbeat", location, Connection(address, offset_s, beat_within_s))
        self.exchanges = Writer("holdfast-exchanges", location, self._connection(), self.texts)
        self.enqueues = Writer("holdfast-enqueues", location, self._connection(), self.texts)
        self.news = News(address, clock)

    def close(self) -> None:
        """Answer all who wait, and close every connection."""
        self.news.close()
        for part in (self.heartbeats, self.reader, self.searches, self.people, self.exchanges, self.enqueues):
            part.close()

    def abandon(self) -> None:
        """In a forked child: these connections are the parent's. Closing them here would harm it, so they are kept."""
        _abandoned.append(self)

    def _connection(self) -> Connection:
        return Connection(self._address, self._offset_s)


_abandoned: list[Opened] = []
