"""Tells workers that something may have changed: at once in this process, by LISTEN and NOTIFY from any other."""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from weakref import WeakKeyDictionary

import psycopg

from holdfast.clock import SystemClock, new_secret
from holdfast.errors import StoreError
from holdfast.ports import Clock
from holdfast.stores.postgres.connection import Line
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.queries import load

_SQL = load("values.sql")
_MACHINE: Final = SystemClock()
_LISTED_S: Final = 120.0
_RENEWED_S: Final = 40.0
_FULL_CLAIMS: Final = 8
_PING_S: Final = 15.0
_LOOKS_S: Final = (0.025, 0.25)
"""Who enqueued while this process was put on the list may not have seen it there: so it looks again soon."""


class News:
    """This process's place among those who wait for news.

    NOTIFY makes commits wait for each other, so it is sent only while somebody waits: a process whose claim brought
    less than it asked for is on a list, and it leaves the list after several claims in a row that brought all.
    """

    def __init__(self, channel: str, connect: Callable[[], Line], clock: Clock) -> None:
        self.listener = new_secret().hex()
        self._channel = channel
        self._connect = connect
        self._clock = clock
        self._mutex = threading.Lock()
        self._number = 0
        self._seen: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
        self._waiting: set[asyncio.Future[None]] = set()
        self._thread: threading.Thread | None = None
        self._is_heard = False
        self._bell: tuple[int, int] | None = None
        self._listed_at_s: float | None = None
        self._full_claims = 0
        self._looks: list[float] = []
        self._is_closed = False

    # ---------------------------------------------------------------- for those who claim, on one thread

    def claimed(self, db: Db, *, is_full: bool) -> bool:
        """Be put on the list, or taken from it; whether this process was put there now, and should look once more."""
        if is_full:
            self._full_claims += 1
            if self._listed_at_s is not None and self._full_claims >= _FULL_CLAIMS:
                db.run(_SQL["listen_no_more"], listener=self.listener)
                self._listed_at_s = None
            return False
        self._full_claims = 0
        now_s = _MACHINE.monotonic()
        was_listed = self._listed_at_s is not None and self._is_heard
        if was_listed and now_s - (self._listed_at_s or 0.0) < _RENEWED_S:
            return False
        if not self._listen():
            return False
        db.run(_SQL["listen"], listener=self.listener, for_s=_LISTED_S)
        self._listed_at_s = now_s
        if not was_listed:
            self._looks = list(_LOOKS_S)
        return not was_listed

    def version(self) -> int:
        """A number that changes with the news."""
        return self._number

    def look(self, version: int) -> None:
        """A worker in this loop found nothing more to do when this was the version: it waits for a newer one."""
        self._seen[asyncio.get_running_loop()] = version

    # ---------------------------------------------------------------- for those who wait

    def tell(self) -> None:
        """There is news: wake everybody here."""
        with self._mutex:
            self._number += 1
            waiting, self._waiting = self._waiting, set()
        for future in waiting:
            with suppress(RuntimeError):  # its event loop is closed: nobody waits there any more
                future.get_loop().call_soon_threadsafe(_wake, future)

    async def wait(self, timeout_s: float) -> None:
        """Return when there is a newer version than this loop has seen, or after so long."""
        loop = asyncio.get_running_loop()
        with self._mutex:
            seen, self._seen[loop] = self._seen.get(loop, self._number), self._number
            if seen != self._number or timeout_s <= 0 or self._is_closed:
                return
            limit_s = min(timeout_s, self._looks.pop(0)) if self._looks else timeout_s
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.add(future)
        try:
            async with self._clock.timeout(limit_s):
                await future
        except TimeoutError:
            return
        finally:
            with self._mutex:
                self._waiting.discard(future)
                self._seen[loop] = self._number

    def close(self) -> None:
        """Let nobody wait any more, and give the connection back."""
        self._is_closed = True
        self.tell()
        with self._mutex:
            if self._bell is not None:
                os.write(self._bell[1], b"x")
        if self._thread is not None:
            self._thread.join()

    def is_listed(self) -> bool:
        """Whether this process is on the list."""
        return self._listed_at_s is not None

    # ---------------------------------------------------------------- the connection that listens

    def _listen(self) -> bool:
        """Whether somebody listens, from now on if not before."""
        if self._is_heard or self._is_closed:
            return self._is_heard
        try:
            line = self._connect()
        except StoreError:
            return False  # the slow poll goes on without it
        try:
            line.add_notify_handler(lambda _: self.tell())
            line.execute(f'LISTEN "{self._channel}"'.encode())
        except psycopg.Error:
            line.close()
            return False
        if self._thread is not None:
            self._thread.join()
        self._bell = os.pipe()
        self._is_heard = True
        self._thread = threading.Thread(target=self._hear, args=(line, self._bell), name="holdfast-news", daemon=True)
        self._thread.start()
        return True

    def _hear(self, line: Line, bell: tuple[int, int]) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(line.fileno(), selectors.EVENT_READ)
                selector.register(bell[0], selectors.EVENT_READ)
                while not self._is_closed:
                    if not selector.select(_PING_S):
                        line.execute(b"SELECT 1")  # or a connection that is half open is never noticed
                        continue
                    line.pgconn.consume_input()
                    while line.pgconn.notifies() is not None:
                        self.tell()
        except (psycopg.Error, OSError):
            self._is_heard = False
            self.tell()  # who is woken asks for itself, and is told what is wrong
        finally:
            self._is_heard = False
            with suppress(psycopg.Error, OSError):
                line.close()
            with self._mutex:
                self._bell = None
                os.close(bell[0])
                os.close(bell[1])


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
