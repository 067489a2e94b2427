"""Between threads and coroutines in bench-ring: janus and ours, from one to the other and back. No bars."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import janus
from jobs_rounds import say
from ring_holdfast import Sum, open_ring
from ring_load import Load, Sums, check, load_of, watched

from holdfast.ring import Consumer

BATCHES = (1, 100)
TO_LOOP, FROM_LOOP = "thread → coroutine", "coroutine → thread"


class _AsyncSum(Consumer[Any]):
    """Sums what it gets, on the loop."""

    def __init__(self, count: int) -> None:
        self.total = 0
        self.is_done = asyncio.Event()
        self._left = count

    async def consume(self, elements: Sequence[Any]) -> None:
        self.total += sum(elements)
        self._left -= len(elements)
        if not self._left:
            self.is_done.set()


async def _janus_to_loop(load: Load) -> float:
    queue: janus.Queue[Any] = janus.Queue(load.room)
    put, get = queue.sync_q.put, queue.async_q.get
    total = 0
    began = time.perf_counter()
    producer = _thread(partial(_put_all, put, load))
    for _ in range(load.count // load.batch):
        item = await get()
        total += item if load.batch == 1 else sum(item)
    seconds = time.perf_counter() - began
    producer.join()
    await queue.aclose()
    check([total], load)
    return seconds


async def _janus_from_loop(load: Load) -> float:
    queue: janus.Queue[Any] = janus.Queue(load.room)
    put, get = queue.async_q.put, queue.sync_q.get
    began = time.perf_counter()
    sums = Sums([partial(_sum_all, get, load)])
    for _ in range(load.passes):
        for item in load.items:
            await put(item)
    totals = await asyncio.to_thread(sums.wait)
    seconds = time.perf_counter() - began
    await queue.aclose()
    check(totals, load)
    return seconds


async def _ring_to_loop(load: Load) -> float:
    consumer = _AsyncSum(load.count)
    async with open_ring() as ring:
        ring.register_consumer(consumer, name="consumer")
        produce = ring.produce
        put = (lambda element: produce([element])) if load.batch == 1 else produce
        began = time.perf_counter()
        producer = _thread(partial(_put_all, put, load))
        await consumer.is_done.wait()
        seconds = time.perf_counter() - began
        producer.join()
    check([consumer.total], load)
    return seconds


async def _ring_from_loop(load: Load) -> float:
    consumer = Sum()
    async with open_ring() as ring:
        ring.register_consumer(consumer, name="consumer")
        began = time.perf_counter()
        for _ in range(load.passes):
            for item in load.items:
                await ring.aproduce([item] if load.batch == 1 else item)
        await ring.aclose()
        seconds = time.perf_counter() - began
    check([consumer.total], load)
    return seconds


def _thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def _put_all(put: Callable[[Any], object], load: Load) -> None:
    for _ in range(load.passes):
        for item in load.items:
            put(item)


def _sum_all(get: Callable[[], Any], load: Load) -> int:
    total = 0
    for _ in range(load.count // load.batch):
        item = get()
        total += item if load.batch == 1 else sum(item)
    return total


RUNS: Mapping[tuple[str, str], Callable[[Load], Awaitable[float]]] = {
    ("janus", TO_LOOP): _janus_to_loop,
    ("holdfast", TO_LOOP): _ring_to_loop,
    ("janus", FROM_LOOP): _janus_from_loop,
    ("holdfast", FROM_LOOP): _ring_from_loop,
}


@dataclass(slots=True)
class Bridges:
    """Elements a second, by name, direction and batch."""

    rounds: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)


def measure_bridges(rounds: int) -> Bridges:
    bridges = Bridges()
    for turn in range(rounds):
        say(f"round {turn + 1} of {rounds}: threads and coroutines")
        for batch in BATCHES:
            load = load_of(batch, 1 if batch == 1 else 10)
            for (name, way), run in RUNS.items():
                with watched():
                    seconds = asyncio.run(_timed(run, load))
                bridges.rounds.setdefault((name, way, batch), []).append(load.count / seconds)
    return bridges


async def _timed(run: Callable[[Load], Awaitable[float]], load: Load) -> float:
    return await run(load)


def print_bridges(bridges: Bridges) -> None:
    print(
        f"\n{'1 → 1, elements a second':28}"
        + "".join(f"{f'{way}, by {one}':>28}" for way in (TO_LOOP, FROM_LOOP) for one in BATCHES)
    )
    for name in ("janus", "holdfast"):
        rates = [median(bridges.rounds[name, way, one]) for way in (TO_LOOP, FROM_LOOP) for one in BATCHES]
        print(f"  {name:26}" + "".join(f"{rate:28,.0f}" for rate in rates))
