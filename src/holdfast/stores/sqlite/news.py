"""Tells workers that something may have changed: at once in this process, within milliseconds from any other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from weakref import WeakKeyDictionary

import apsw

from holdfast.clock import SystemClock
from holdfast.errors import StoreError
from holdfast.ports import Clock
from holdfast.stores.sqlite.faults import translated
from holdfast.stores.sqlite.rows import read_value

_LOOK_EVERY_S: Final = 0.006
_MACHINE: Final = SystemClock()


class News:
    """A connection that is only asked whether any other one, in any process, has committed since.

    One thread looks for all who wait, and only while somebody does: that costs a third of looking in an event loop,
    under 1 % of a core. Other processes live in the machine's time, so it sleeps by that.
    """

    def __init__(self, path: str, connect: Callable[[], apsw.Connection], clock: Clock) -> None:
        self._path = path
        self._connect = connect
        self._clock = clock
        self._db_mutex = threading.Lock()
        self._db: apsw.Connection | None = None
        self._seen: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
        self._mutex = threading.Lock()
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._is_needed = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def version(self) -> int:
        """A number that changes with every commit."""
        with self._db_mutex:
            if self._db is None:
                self._db = self._connect()
            try:
                number: int = read_value(self._db, "PRAGMA data_version")
            except apsw.Error as error:
                self._db.close(True)
                self._db = None
                raise translated(error, self._path) from error
            return number

    def look(self, version: int) -> None:
        """A worker in this loop found nothing more to do when this was the version: it waits for a newer one."""
        self._seen[asyncio.get_running_loop()] = version

    def tell(self) -> None:
        """This process has committed something: wake its own waiters now."""
        if self._waiting:
            with self._mutex:
                waiting, self._waiting = list(self._waiting), {}
            _wake_all(waiting)

    async def wait(self, timeout_s: float) -> None:
        """Return when there is a newer version than this loop has seen, or after so long."""
        loop = asyncio.get_running_loop()
        now = self.version()
        seen = self._seen.pop(loop, now)
        if seen != now or timeout_s <= 0:
            return
        future: asyncio.Future[None] = loop.create_future()
        with self._mutex:
            self._waiting[future] = seen
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._look_out, name="holdfast-news", daemon=True)
                self._thread.start()
            self._is_needed.set()
        try:
            async with self._clock.timeout(timeout_s):
                await future
        except TimeoutError:
            return
        finally:
            with self._mutex:
                self._waiting.pop(future, None)

    def close(self) -> None:
        """Let nobody wait any more, and give the connection back."""
        self._is_closed = True
        self.tell()
        self._is_needed.set()
        if self._thread is not None:
            self._thread.join()
        with self._db_mutex:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _look_out(self) -> None:
        while not self._is_closed:
            self._is_needed.wait()
            _MACHINE.sleep(_LOOK_EVERY_S)
            try:
                version = self.version()
            except StoreError:  # whoever is woken asks for itself, and is told what is wrong
                version = -1
            with self._mutex:
                woken = [future for future, seen in self._waiting.items() if seen != version]
                for future in woken:
                    del self._waiting[future]
                if not self._waiting and not self._is_closed:
                    self._is_needed.clear()
            _wake_all(woken)


def _wake_all(waiting: list[asyncio.Future[None]]) -> None:
    for future in waiting:
        with suppress(RuntimeError):  # its event loop is closed: nobody waits there any more
            future.get_loop().call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
