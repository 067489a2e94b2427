"""A bound on the calls in flight."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

from holdfast.clock import SystemClock
from holdfast.errors import BulkheadFull, IllegalChange
from holdfast.policy import bounds
from holdfast.ports import Clock


class Bulkhead:
    """At most `max_concurrent` calls in flight, threads and coroutines together.

    max_wait [0]: how long `acquire` waits for a place, in seconds, first come first served; zero refuses at once,
    None waits as long as it takes. Works as a context manager, sync and async.
    """

    def __init__(self, max_concurrent: int, *, max_wait: float | None = 0.0, clock: Clock | None = None) -> None:
        self.max_concurrent = bounds.whole("max_concurrent", max_concurrent, low=1)
        self.max_wait = None if max_wait is None else bounds.length("max_wait", max_wait)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._in_use = 0
        self._queue: deque[_Waiter] = deque()

    @property
    def in_use(self) -> int:
        """Calls in flight now."""
        return self._in_use

    def acquire(self) -> None:
        """Take a place, or raise BulkheadFull."""
        if self._enter():
            return
        event = threading.Event()
        waiter = self._join(event.set)
        if waiter is None:
            return
        try:
            self._clock.wait(event, self.max_wait)
        except BaseException:
            self._abandon(waiter)
            raise
        self._confirm(waiter)

    async def aacquire(self) -> None:
        """The same without blocking the event loop."""
        if self._enter():
            return
        import asyncio  # noqa: PLC0415 - see clock.py

        event, loop = asyncio.Event(), asyncio.get_running_loop()
        waiter = self._join(lambda: loop.call_soon_threadsafe(event.set))
        if waiter is None:
            return
        try:
            async with self._clock.timeout(self.max_wait):
                await event.wait()
        except TimeoutError:
            self._confirm(waiter)  # it may have been granted in the very moment
        except BaseException:
            self._abandon(waiter)
            raise

    def release(self) -> None:
        """Give a place back; the one who has waited longest gets it."""
        with self._lock:
            if self._in_use == 0:
                raise IllegalChange("a bulkhead was released more often than acquired")
            while self._queue:
                waiter = self._queue.popleft()
                waiter.is_granted = waiter.wake()
                if waiter.is_granted:
                    return
            self._in_use -= 1

    def __repr__(self) -> str:
        return f"<Bulkhead {self._in_use} of {self.max_concurrent} in use>"

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()

    async def __aenter__(self) -> None:
        await self.aacquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.release()

    def _enter(self) -> bool:
        """Take a place if one is free; False when it is worth waiting for one."""
        with self._lock:
            if self._in_use < self.max_concurrent:
                self._in_use += 1
                return True
        if self.max_wait == 0.0:
            raise self._full()
        return False

    def _join(self, notify: Callable[[], object]) -> _Waiter | None:
        """Stand in the queue; None when a place was freed since the caller looked, and it is ours."""
        with self._lock:
            if self._in_use < self.max_concurrent:
                self._in_use += 1
                return None
            waiter = _Waiter(notify)
            self._queue.append(waiter)
            return waiter

    def _confirm(self, waiter: _Waiter) -> None:
        """The wait is over: either the place was granted, or leave the queue and raise."""
        with self._lock:
            if waiter.is_granted:
                return
            self._queue.remove(waiter)
        raise self._full()

    def _abandon(self, waiter: _Waiter) -> None:
        """The caller was interrupted while waiting: pass on a place that was granted meanwhile."""
        with self._lock:
            if not waiter.is_granted:
                if waiter in self._queue:  # it is not when its event loop was closed before its turn came
                    self._queue.remove(waiter)
                return
        self.release()

    def _full(self) -> BulkheadFull:
        return BulkheadFull(f"the bulkhead is full: {self.max_concurrent} in flight already")


class _Waiter:
    """One who stands in the queue."""

    __slots__ = ("_notify", "is_granted")

    def __init__(self, notify: Callable[[], object]) -> None:
        self._notify = notify
        self.is_granted = False

    def wake(self) -> bool:
        """Tell it that the place is its own; False when its event loop is gone, and the next in the queue is due."""
        try:
            self._notify()
        except RuntimeError:
            return False
        return True
