"""A message on its way: whoever sent it may wait for it, on a thread or in an event loop, or forget it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from holdfast.errors import SourceError
    from holdfast.streams.buffer import Buffer

Waker = threading.Event | asyncio.Future[None]
"""How somebody is told that the wait is over: on a thread, or in an event loop."""


class Written(NamedTuple):
    """Where a message was written."""

    topic: str
    partition: int
    offset: int
    """As `Message.offset`; -1 where it is written and the server did not say where, as Kafka after a lost reply."""


class Sent(Struct, eq=False):  # a struct, since making one is a part of every send
    """A message that a producer has taken: `sent.wait()` or `await sent` until it is written.

    NotSent when the producer has given up on it. Nobody has to wait; what was given up shows in the next flush, too.
    """

    _buffer: Buffer
    topic: str
    partition: int = -1
    """Below 0 until it is written."""
    offset: int | None = None
    """None until it is written."""
    error: SourceError | None = None
    """Why it was given up."""
    _wakers: tuple[Waker, ...] = ()
    """Who waits; changed with the buffer's lock held."""

    def __repr__(self) -> str:
        state = "given up" if self.error is not None else "on its way" if self.offset is None else "written"
        return f"<Sent to {self.topic}: {state}>"

    def done(self) -> bool:
        """Whether the wait is over: it is written, or given up."""
        return self.offset is not None or self.error is not None

    def wait(self, timeout: float | None = None) -> Written:
        """Block until it is written, and say where; TimeoutError when that takes longer, and it is still on its way."""
        if not self.done():
            event = threading.Event()
            if self._buffer.listen(self, event) and not self._buffer.clock.wait(event, timeout):
                self._buffer.forget(self, event)
                raise TimeoutError(f"not written within {timeout:g} s, and still on its way")
        return self._result()

    def __await__(self) -> Generator[object, None, Written]:
        if not self.done():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._buffer.listen(self, future):
                try:
                    yield from future
                finally:
                    self._buffer.forget(self, future)
        return self._result()

    def _result(self) -> Written:
        if self.error is not None:
            raise self.error.with_traceback(None)
        return Written(self.topic, self.partition, -1 if self.offset is None else self.offset)


def wake(wakers: Iterable[Waker]) -> None:
    """Tell all of them: each thread by its event, each event loop by one call."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for waker in wakers:
        if isinstance(waker, threading.Event):
            waker.set()
        else:
            by_loop.setdefault(waker.get_loop(), []).append(waker)
    for loop, futures in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            loop.call_soon_threadsafe(_end, futures)


def _end(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # its task was cancelled
            future.set_result(None)
