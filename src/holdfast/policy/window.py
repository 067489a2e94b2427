"""Sliding windows: how many of the latest calls failed, and how many were slow."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from msgspec import Struct

_SLICES = 10


class Totals(Struct, frozen=True):
    """What a window holds."""

    calls: int = 0
    failures: int = 0
    slow: int = 0


class Window(Protocol):
    """The latest calls, by number or by time."""

    def add(self, now: float, *, failed: bool, slow: bool) -> None:
        """Count one call that ended at this instant."""

    def totals(self, now: float) -> Totals:
        """The sums over what is still inside the window at this instant."""


class CountWindow:
    """The last `size` calls."""

    __slots__ = ("_calls", "_failures", "_size", "_slow")

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: deque[tuple[bool, bool]] = deque()
        self._failures = 0
        self._slow = 0

    def add(self, now: float, *, failed: bool, slow: bool) -> None:
        """Count one call; the oldest falls out when the window is full."""
        del now  # a count window does not age
        if len(self._calls) == self._size:
            old_failed, old_slow = self._calls.popleft()
            self._failures -= old_failed
            self._slow -= old_slow
        self._calls.append((failed, slow))
        self._failures += failed
        self._slow += slow

    def totals(self, now: float) -> Totals:
        """The sums over the last `size` calls."""
        del now
        return Totals(len(self._calls), self._failures, self._slow)


class TimeWindow:
    """The calls of the last `length_s` seconds, in ten slices.

    A slice is dropped as a whole, as soon as its oldest call may have left the window: nothing older than `length_s`
    is ever counted, and a call is counted for at least nine tenths of that time.
    """

    __slots__ = ("_length_s", "_slice_s", "_slices")

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._slice_s = length_s / _SLICES
        self._slices: deque[list[float]] = deque()  # each: when it began, calls, failures, slow

    def add(self, now: float, *, failed: bool, slow: bool) -> None:
        """Count one call in the slice of this instant."""
        self._drop(now)
        if not self._slices or now - self._slices[-1][0] >= self._slice_s:
            self._slices.append([now, 0, 0, 0])
        current = self._slices[-1]
        current[1] += 1
        current[2] += failed
        current[3] += slow

    def totals(self, now: float) -> Totals:
        """The sums over the slices that are wholly inside the window."""
        calls = failures = slow = 0.0
        for began_at, some, failed, slowed in self._slices:
            if now - began_at < self._length_s:
                calls, failures, slow = calls + some, failures + failed, slow + slowed
        return Totals(int(calls), int(failures), int(slow))

    def _drop(self, now: float) -> None:
        while self._slices and now - self._slices[0][0] >= self._length_s:
            self._slices.popleft()
