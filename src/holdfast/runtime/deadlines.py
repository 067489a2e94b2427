"""Every time limit of a worker under one timer."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

from holdfast.ports import Clock

T = TypeVar("T")

_FEWEST = 1_000


class Deadlines(Generic[T]):
    """Tells `on_due` of each thing whose deadline has come, on the event loop; what is over is forgotten in time."""

    def __init__(self, clock: Clock, on_due: Callable[[T], None], is_over: Callable[[T], bool]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._is_over = is_over
        self._most = _FEWEST
        self._loop = asyncio.get_running_loop()
        self._heap: list[tuple[float, int, T]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, thing: T, deadline_s: float) -> None:
        """Tell of it at this instant of the monotonic clock; from the event loop."""
        if len(self._heap) >= self._most:
            self._heap = [entry for entry in self._heap if not self._is_over(entry[2])]
            heapq.heapify(self._heap)
            self._most = max(_FEWEST, 2 * len(self._heap))
        heapq.heappush(self._heap, (deadline_s, next(self._order), thing))
        if self._heap[0][2] is thing:
            self._set()

    def add_threadsafe(self, thing: T, deadline_s: float) -> None:
        """The same from any thread."""
        self._loop.call_soon_threadsafe(self.add, thing, deadline_s)

    def close(self) -> None:
        """Tell of nothing more."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_s = max(0.0, self._heap[0][0] - self._clock.monotonic())
        self._timer = self._loop.call_later(wait_s, self._look)

    def _look(self) -> None:
        self._timer = None
        now_s = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now_s:
            self._on_due(heapq.heappop(self._heap)[2])
        if self._heap:
            self._set()
