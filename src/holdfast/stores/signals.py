"""Wakes those who wait for news, in whatever thread or event loop they are."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from weakref import WeakKeyDictionary


class Signals:
    """News for workers, numbered; every method is called with the store's lock held."""

    def __init__(self) -> None:
        self._news = 0
        self._seen: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
        self._waiting: set[asyncio.Future[None]] = set()

    def tell(self) -> None:
        """Something changed: wake everybody."""
        self._news += 1
        for waiting in self._waiting:
            with suppress(RuntimeError):  # its event loop is closed: nobody waits there any more
                waiting.get_loop().call_soon_threadsafe(_wake, waiting)
        self._waiting.clear()

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        """A worker in this loop found nothing more to do: what it waits for is the news after now."""
        self._seen[loop] = self._news

    def listen(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """The next news for this loop; what came between its last look and now counts."""
        future = loop.create_future()
        if self._seen.setdefault(loop, self._news) < self._news:
            future.set_result(None)
        else:
            self._waiting.add(future)
        return future

    def leave(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        """The wait is over."""
        self._waiting.discard(future)
        self.look(loop)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
