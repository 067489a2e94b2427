"""A thread for blocking calls, one after the other, awaited from the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from holdfast.errors import SourceAway
from holdfast.ports import Clock
from holdfast.streams.kafka.logs import log

R = TypeVar("R")

_IDLE_S: Final = 5.0


class CallThread:
    """Starts with its first call. A daemon: one that is stuck does not keep the process from ending.

    on_idle: called on the thread every few seconds while there is nothing to do.
    """

    def __init__(self, name: str, clock: Clock, on_idle: Callable[[], object] | None = None) -> None:
        self._name = name
        self._clock = clock
        self._on_idle = on_idle
        self._calls: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_closing = False
        """Set by `close`: what blocks on the thread should look at it now and then."""

    async def run(self, call: Callable[[], R]) -> R:
        """What the call returns or raises. Cancelling gives up the wait, and not the call."""
        if self.is_closing:
            raise SourceAway(f"{self._name}: it was closed")
        future = self._submit(call)
        try:
            return await future
        finally:
            self._waiting.discard(future)

    async def close(self, within_s: float, last: Callable[[], object]) -> None:
        """End the thread after the calls that wait, and a last one; whoever still waits after so long is given up."""
        if self._thread is not None and not self.is_closing:
            ending = self._submit(last)
            self.is_closing = True
            try:
                async with self._clock.timeout(within_s):
                    await ending
            except TimeoutError:
                log.warning("%s: given up after %g s", self._name, within_s)
        self.is_closing = True
        self._bell.set()
        for future in self._waiting:
            if not future.done():
                future.set_exception(SourceAway(f"{self._name}: it was closed before the broker had answered"))

    def _submit(self, call: Callable[[], R]) -> asyncio.Future[R]:
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        self._calls.append((call, future))
        self._bell.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return future

    def _run(self) -> None:
        while self._calls or not self.is_closing:
            self._bell.clear()
            while self._calls:
                call, future = self._calls.popleft()
                try:
                    result, error = call(), None
                except BaseException as raised:
                    result, error = None, raised
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    future.get_loop().call_soon_threadsafe(_settle, future, result, error)
            if not self.is_closing and not self._clock.wait(self._bell, _IDLE_S) and self._on_idle is not None:
                self._on_idle()


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
