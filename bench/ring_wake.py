"""Wake-up latency of bench-ring: from an element's production to its consumer, which sleeps, at one a millisecond."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from queue import Queue
from statistics import median
from typing import TYPE_CHECKING

from jobs_bars import Bar, at_most
from jobs_rounds import say
from jobs_timing import percentile
from ring_holdfast import open_ring
from ring_load import SIZE, watched

if TYPE_CHECKING:
    from collections.abc import Iterator

PACE_S = 0.001
FIRST = 20
"""Elements at the beginning of a round that are not counted: threads are only just there."""
LIMIT_US = 300.0
LIMIT_TIMES = 2.0
OURS = "holdfast"
CONDITION = "bare Condition"

Note = Callable[[int], None]
"""Called by the consumer with the instant at which an element was produced."""
Send = Callable[[int], object]
Link = Callable[[Note], AbstractContextManager[Send]]


@contextmanager
def _condition(note: Note) -> Iterator[Send]:
    box: deque[int] = deque()
    condition = threading.Condition(threading.Lock())

    def consume() -> None:
        while True:
            with condition:
                while not box:
                    condition.wait()
                sent = box.popleft()
            if not sent:
                return
            note(sent)

    def send(instant: int) -> None:
        with condition:
            box.append(instant)
            condition.notify()

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    yield send
    send(0)
    thread.join()


@contextmanager
def _queue(note: Note) -> Iterator[Send]:
    queue: Queue[int] = Queue(SIZE)

    def consume() -> None:
        while sent := queue.get():
            note(sent)

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    yield queue.put
    queue.put(0)
    thread.join()


@contextmanager
def _holdfast(note: Note) -> Iterator[Send]:
    def consume(elements: Sequence[int]) -> None:
        for sent in elements:
            note(sent)

    with open_ring() as ring:
        ring.register_consumer(consume, name="consumer")
        produce = ring.produce
        yield lambda instant: produce([instant])


LINKS: Mapping[str, Link] = {CONDITION: _condition, "queue.Queue": _queue, OURS: _holdfast}


@dataclass(slots=True)
class Wakes:
    """Microseconds, a list for each round."""

    rounds: dict[str, list[list[float]]] = field(default_factory=dict)

    def percentile(self, name: str, percent: int) -> float:
        """The median of the rounds: a burst of somebody else's work is not theirs."""
        return median(percentile(times, percent) for times in self.rounds[name])

    def worst(self, name: str) -> float:
        return max(max(times) for times in self.rounds[name])


def measure_wakes(rounds: int, count: int) -> Wakes:
    wakes = Wakes()
    for turn in range(rounds):
        say(f"round {turn + 1} of {rounds}: wake-ups")
        names = list(LINKS)
        for name in names[turn % 3 :] + names[: turn % 3]:
            with watched():
                wakes.rounds.setdefault(name, []).append(_times_us(LINKS[name], count))
    return wakes


def _times_us(link: Link, count: int) -> list[float]:
    times: list[float] = []
    now = time.perf_counter_ns
    with link(lambda sent: times.append((now() - sent) / 1e3)) as send:
        due = time.perf_counter()
        for _ in range(FIRST + count):
            due += PACE_S
            time.sleep(max(0.0, due - time.perf_counter()))
            send(now())
    return times[FIRST:]


def wake_bars(wakes: Wakes) -> list[Bar]:
    ours, bare = (wakes.percentile(name, 99) for name in (OURS, CONDITION))
    return [
        at_most(f"wake-up: p99 ≤ {LIMIT_US:g} µs", ours, LIMIT_US, "{:.0f} µs".format),
        at_most(f"wake-up: p99 ≤ {LIMIT_TIMES:g} × a bare Condition's", ours / bare, LIMIT_TIMES, "{:.2f}".format),
    ]


def print_wakes(wakes: Wakes) -> None:
    print(f"\n{'wake-up, one a millisecond, µs':34}{'p50':>8}{'p99':>8}{'worst':>9}{'p99 × Condition':>18}")
    for name in LINKS:
        half, most = (wakes.percentile(name, percent) for percent in (50, 99))
        times = most / wakes.percentile(CONDITION, 99)
        print(f"  {name:32}{half:8.0f}{most:8.0f}{wakes.worst(name):9.0f}{times:18.2f}")
