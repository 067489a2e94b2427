"""What a ring of bench-ring keeps in memory: for each slot, and of elements that everybody has consumed."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Queue
from typing import Any
from weakref import ref

from jobs_bars import Bar, at_most
from jobs_rounds import say
from ring_holdfast import open_ring, register
from ring_load import BATCHES, ELEMENTS, SHAPES, SIZE, Shape, watched
from ring_lock import LockRing

from holdfast.ring import Consumer

IDLE_WITHIN_S = 5.0
"""Consumers that have finished their last element are asleep long before this."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes for each element that there is room for, and elements that are kept though all have consumed them."""

    empty: float
    full: dict[int, float]
    """By the batch they were produced in, the elements themselves not counted."""
    full_queue: dict[int, float]
    empty_lock_ring: float
    kept: int
    consumed: int


class _Element:
    __slots__ = ("__weakref__",)


class _Counter(Consumer[Any]):
    def __init__(self, count: int) -> None:
        self.left = count
        self.is_done = threading.Event()

    def consume(self, elements: Sequence[Any]) -> None:
        self.left -= len(elements)
        if not self.left:
            self.is_done.set()


class _Held(Consumer[Any]):
    """Keeps the first batch until it is let go."""

    def __init__(self) -> None:
        self.may_go = threading.Event()

    def consume(self, elements: Sequence[Any]) -> None:
        self.may_go.wait()


def measure_memory() -> Memory:
    say("memory")
    kept = consumed = 0
    with watched():
        gc.disable()  # letting go must be enough
        try:
            for shape in SHAPES:
                for batch in BATCHES:
                    kept += _kept(shape, batch)
                    consumed += ELEMENTS
        finally:
            gc.enable()
    tracemalloc.start()
    try:
        with watched():
            before = _traced()
            lock_ring = LockRing(SIZE)
            empty_lock_ring = (_traced() - before) / SIZE
            del lock_ring
            elements = list(range(SIZE))
            rings = {batch: _ring_bytes(elements, batch) for batch in BATCHES}
            queues = {batch: _queue_bytes(elements, batch) for batch in BATCHES}
    finally:
        tracemalloc.stop()
    empty = rings[1][0]
    return Memory(empty, {batch: full for batch, (_, full) in rings.items()}, queues, empty_lock_ring, kept, consumed)


def _kept(shape: Shape, batch: int) -> int:
    """Elements that live on when all have consumed them and the open ring is idle."""
    consumers = [_Counter(ELEMENTS) for _ in range(1 if shape == "1 → 1" else 3)]
    with open_ring() as ring:
        register(ring, shape, consumers)
        known: list[ref[_Element]] = []
        for _ in range(0, ELEMENTS, batch):
            elements = [_Element() for _ in range(batch)]
            known += map(ref, elements)
            ring.produce(elements)
        del elements
        for consumer in consumers:
            consumer.is_done.wait()
        until = time.monotonic() + IDLE_WITHIN_S
        while (alive := sum(one() is not None for one in known)) and time.monotonic() < until:
            time.sleep(0.01)
    return alive


def _ring_bytes(elements: Sequence[int], batch: int) -> tuple[float, float]:
    """For each element that it has room for: an empty ring, and a full one."""
    consumer = _Held()
    before = _traced()
    with open_ring() as ring:
        ring.register_consumer(consumer, name="held")
        empty = _traced() - before
        count = 0
        while count + batch <= SIZE and ring.try_produce(elements[count : count + batch]):
            count += batch
        full = _traced() - before
        consumer.may_go.set()
    return empty / SIZE, full / count


def _queue_bytes(elements: Sequence[int], batch: int) -> float:
    before = _traced()
    queue: Queue[Any] = Queue(SIZE // batch)
    for at in range(0, SIZE - batch + 1, batch):
        queue.put_nowait(elements[at] if batch == 1 else elements[at : at + batch])
    return (_traced() - before) / (queue.qsize() * batch)


def _traced() -> int:
    return tracemalloc.get_traced_memory()[0]


def memory_bars(memory: Memory) -> list[Bar]:
    text = f"of {memory.consumed:,} consumed elements, none is kept alive by an open ring"
    return [at_most(text, memory.kept, 0, "{:.0f} alive".format)]


def print_memory(memory: Memory) -> None:
    print(f"\n{f'bytes a slot, of {SIZE:,}':30}{'empty':>8}" + "".join(f"{f'full, by {one}':>16}" for one in BATCHES))
    print(
        f"  {'queue.Queue, lists by batch':28}{0:8.1f}" + "".join(f"{memory.full_queue[one]:16.1f}" for one in BATCHES)
    )
    print(f"  {'lock ring':28}{memory.empty_lock_ring:8.1f}" + f"{memory.empty_lock_ring:16.1f}" * len(BATCHES))
    print(f"  {'holdfast':28}{memory.empty:8.1f}" + "".join(f"{memory.full[one]:16.1f}" for one in BATCHES))
