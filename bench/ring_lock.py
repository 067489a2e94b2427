"""A peer of bench-ring: a plain ring that locks every put and every take, as the classic Python disruptor works.

A slot for each element, a cursor for each consumer, one lock, and a condition each for those who wait for elements and
for room. Consumers get all that is there, up to a limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from ring_load import SIZE, Load, Shape, Sums, check

MOST = 1_000
"""Elements that a consumer gets at a time: as many as ours gets by default."""


class LockRing:
    """The size is a power of two; consumers are registered before the first element."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: list[Any] = [None] * size
        self._head = 0
        self._cursors: list[int] = []
        self._before: list[int | None] = []
        lock = threading.Lock()
        self._lock = lock
        self._filled = threading.Condition(lock)
        self._freed = threading.Condition(lock)

    def register(self, after: int | None = None) -> int:
        """A new consumer's number; it gets what the one it comes after has finished."""
        self._cursors.append(0)
        self._before.append(after)
        return len(self._cursors) - 1

    def produce(self, elements: Sequence[Any]) -> None:
        done = 0
        while done < len(elements):
            with self._lock:
                while not (room := self._size - self._head + min(self._cursors)):
                    self._freed.wait()
                at = self._head % self._size
                count = min(room, len(elements) - done, self._size - at)
                self._slots[at : at + count] = elements[done : done + count]
                self._head += count
                done += count
                self._filled.notify_all()

    def take(self, number: int) -> list[Any]:
        before = self._before[number]
        with self._lock:
            cursor = self._cursors[number]
            while not (ready := (self._head if before is None else self._cursors[before]) - cursor):
                self._filled.wait()
            at = cursor % self._size
            return self._slots[at : at + min(ready, MOST)]

    def finish(self, number: int, count: int) -> None:
        """The slots of as many elements are free, or the next consumer's."""
        with self._lock:
            self._cursors[number] += count
            if number in self._before:
                self._filled.notify_all()
            self._freed.notify_all()


def run_lock_ring(shape: Shape, load: Load) -> float:
    ring = LockRing(SIZE)
    numbers = [ring.register()]
    for _ in range(0 if shape == "1 → 1" else 2):
        numbers.append(ring.register(numbers[-1] if shape == "A → B → C" else None))
    sums = Sums([partial(_consume, ring, number, load.count) for number in numbers])
    produce = ring.produce
    began = time.perf_counter()
    for _ in range(load.passes):
        if load.batch == 1:
            for element in load.items:
                produce([element])
        else:
            for elements in load.items:
                produce(elements)
    totals = sums.wait()
    seconds = time.perf_counter() - began
    check(totals, load)
    return seconds


def _consume(ring: LockRing, number: int, count: int) -> int:
    total = 0
    while count:
        elements = ring.take(number)
        total += sum(elements)
        count -= len(elements)
        ring.finish(number, len(elements))
    return total
