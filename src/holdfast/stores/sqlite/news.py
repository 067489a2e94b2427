"""Tells workers that something may have changed: at once in this process, within milliseconds from any other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from weakref import WeakKeyDictionary

import apsw

from holdfast.ports import Clock
from holdfast.stores.sqlite.rows import read_value

_LOOK_EVERY_S: Final = 0.005
"""How late a commit of another process may be noticed: looking costs 20 µs, so under 1 % of a core."""


class News:
    """A connection that is only asked whether any other one, in any process, has committed since."""

    def __init__(self, connect: Callable[[], apsw.Connection], clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._mutex = threading.Lock()
        self._db: apsw.Connection | None = None
        self._seen: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
        self._waiting: set[asyncio.Future[None]] = set()

    def version(self) -> int:
        """A number that changes with every commit."""
        with self._mutex:
            if self._db is None:
                self._db = self._connect()
            number: int = read_value(self._db, "PRAGMA data_version")
            return number

    def look(self, version: int) -> None:
        """A worker in this loop found nothing more to do when this was the version: it waits for a newer one."""
        self._seen[asyncio.get_running_loop()] = version

    def tell(self) -> None:
        """This process has committed something: wake its own waiters now."""
        if self._waiting:
            with self._mutex:
                waiting, self._waiting = self._waiting, set()
            for future in waiting:
                with suppress(RuntimeError):  # its event loop is closed: nobody waits there any more
                    future.get_loop().call_soon_threadsafe(_wake, future)

    async def wait(self, timeout_s: float) -> None:
        """Return when there is a newer version than this loop has seen, or after so long."""
        loop = asyncio.get_running_loop()
        seen = self._seen.pop(loop, None)
        if seen is None:
            seen = self.version()
        end = self._clock.monotonic() + timeout_s
        while self.version() == seen:
            left_s = end - self._clock.monotonic()
            if left_s <= 0:
                break
            if await self._is_told(loop, min(left_s, _LOOK_EVERY_S)):
                return

    async def _is_told(self, loop: asyncio.AbstractEventLoop, seconds: float) -> bool:
        future: asyncio.Future[None] = loop.create_future()
        with self._mutex:
            self._waiting.add(future)
        try:
            async with self._clock.timeout(seconds):
                await future
        except TimeoutError:
            return False
        finally:
            with self._mutex:
                self._waiting.discard(future)
        return True

    def close(self) -> None:
        """Give the connection back, and let nobody wait for it."""
        self.tell()
        with self._mutex:
            if self._db is not None:
                self._db.close()
                self._db = None


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
