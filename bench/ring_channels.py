"""The peers of bench-ring that hand over one item at a time: a queue for each consumer.

At batches of 1 an item is an element, else a whole list. 1 → 3 puts every item into three queues; in A → B → C each
consumer puts it into the next one's queue.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import repeat
from queue import Queue, SimpleQueue
from typing import Any

import janus
from ring_load import Load, Run, Shape, Sums, check

CREDITS = 8

Put = Callable[[Any], object]
Get = Callable[[], Any]
Channel = tuple[Put, Get]
Open = Callable[[int], Channel]
"""A channel for as many items."""


# ---- channels


def open_queue(room: int) -> Channel:
    queue: Queue[Any] = Queue(room)
    return queue.put, queue.get


def open_simple_queue(room: int) -> Channel:
    """Without a bound: it has none."""
    queue: SimpleQueue[Any] = SimpleQueue()
    return queue.put, queue.get


def open_credits(room: int) -> Channel:
    """A SimpleQueue, bounded by a second one: each part of the room must come back before it is given out again."""
    part = max(1, room // CREDITS)
    queue: SimpleQueue[Any] = SimpleQueue()
    credits_: SimpleQueue[None] = SimpleQueue()
    for _ in range(room // part):
        credits_.put(None)
    room_left = taken = 0

    def put(item: Any) -> None:
        nonlocal room_left
        if not room_left:
            credits_.get()
            room_left = part
        room_left -= 1
        queue.put(item)

    def get() -> Any:
        nonlocal taken
        item = queue.get()
        taken += 1
        if taken == part:
            taken = 0
            credits_.put(None)
        return item

    return put, get


def open_deque(room: int) -> Channel:
    """What is written by hand: a deque, one lock, and a condition for each side, told only when it may be waiting."""
    items: deque[Any] = deque()
    lock = threading.Lock()
    filled, freed = threading.Condition(lock), threading.Condition(lock)

    def put(item: Any) -> None:
        with lock:
            while len(items) >= room:
                freed.wait()
            items.append(item)
            if len(items) == 1:
                filled.notify()

    def get() -> Any:
        with lock:
            while not items:
                filled.wait()
            if len(items) == room:
                freed.notify()
            return items.popleft()

    return put, get


def open_janus(room: int) -> Channel:
    """Its sync side at both ends."""
    queue: janus.Queue[Any] = janus.Queue(room)
    return queue.sync_q.put, queue.sync_q.get


# ---- shapes


def channel_run(open_channel: Open) -> Run:
    return partial(_run, open_channel)


def _run(open_channel: Open, shape: Shape, load: Load) -> float:
    channels = [open_channel(load.room) for _ in range(1 if shape == "1 → 1" else 3)]
    heads = channels[:1] if shape == "A → B → C" else channels
    sums = Sums(
        [
            partial(_relay, get, channels[number + 1][0], load)
            if shape == "A → B → C" and number + 1 < len(channels)
            else partial(_take, get, load)
            for number, (_, get) in enumerate(channels)
        ]
    )
    began = time.perf_counter()
    if len(heads) == 1:
        _put_to_one(heads[0][0], load)
    else:
        _put_to_three(*(put for put, _ in heads), load=load)
    totals = sums.wait()
    seconds = time.perf_counter() - began
    check(totals, load)
    return seconds


def _put_to_one(put: Put, load: Load) -> None:
    for _ in range(load.passes):
        for item in load.items:
            put(item)


def _put_to_three(first: Put, second: Put, third: Put, *, load: Load) -> None:
    for _ in range(load.passes):
        for item in load.items:
            first(item)
            second(item)
            third(item)


def _take(get: Get, load: Load) -> int:
    times = repeat(None, load.count // load.batch)
    total = 0
    if load.batch == 1:
        for _ in times:
            total += get()
    else:
        for _ in times:
            total += sum(get())
    return total


def _relay(get: Get, put: Put, load: Load) -> int:
    times = repeat(None, load.count // load.batch)
    total = 0
    if load.batch == 1:
        for _ in times:
            item = get()
            total += item
            put(item)
    else:
        for _ in times:
            item = get()
            total += sum(item)
            put(item)
    return total
