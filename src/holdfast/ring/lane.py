"""A consumer's place in a ring: how far it is, what it has in hand, and what has been counted of it."""

from __future__ import annotations

import threading
from _thread import allocate_lock
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from holdfast.ports import BATCH_BOUNDS_S, ConsumerReport

if TYPE_CHECKING:
    import asyncio

_BUCKETS: Final = len(BATCH_BOUNDS_S) + 1


class Errand(Struct, eq=False):
    """Elements that a consumer is to handle by themselves, beside those of the ring: a dead letter's."""

    elements: list[Any]
    future: Future[None]


class Lane:
    """Everything here is changed by its own consumer's loop, except for the bell and the errands."""

    def __init__(self, name: str, after: Sequence[Lane], batch_size: int) -> None:
        self.name = name
        self.after = tuple(after)
        self.followers: list[Lane] = []
        self.batch_size = batch_size
        self.bell: Bell = ThreadBell()
        self.is_asleep = False
        self.has_ended = False
        self.errands: deque[Errand] = deque()
        self.is_errand_turn = False
        """Whether it had one of these last; then the ring's elements are next."""
        # How far it is: under the ring's lock.
        self.done = 0
        """Elements that it has finished, or skipped, since the ring began."""
        self.piece = 0
        """The piece in which the next one is."""
        # What it has in hand.
        self.end = 0
        self.next_piece = 0
        self.is_hasty = False
        """Whether it takes several batches at a time, where that is simple."""
        self.ahead: list[list[Any]] = []
        """Those that follow the one in hand, last first."""
        self.begun_s: float | None = None
        """When it began its batch, by the monotonic clock."""
        self.doing = ""
        # Where its source is.
        self.offset: int | None = None
        """The offset of the first element in hand, where the source has offsets."""
        self.skip_to: int | None = None
        """Elements with a lower offset were done before the ring began."""
        # What has been counted.
        self.batch = 0
        self.batches = 0
        self.processed = 0
        self.batch_s = 0.0
        self.slowest_s = 0.0
        self.batch_le = [0] * _BUCKETS
        self.errors = 0
        self.retries = 0
        self.given_up = 0
        self.dead_letters = 0
        self.saved_offset: int | None = None
        self.checkpoint_error = ""

    def finish(self, batches: int, elements: int, took_s: float, slowest_s: float, quick: int) -> None:
        """Batches are finished, handled or given up: the one in hand, and those that were ahead of it.

        quick: how many of them took at most the first of the bounds; of the others `count_slow` was told.
        """
        self.begun_s = None
        self.end = self.done + elements
        self.next_piece += batches - 1
        self.batches += batches
        self.processed += elements
        self.batch_s += took_s
        self.batch_le[0] += quick
        if slowest_s > self.slowest_s:  # noqa: PLR1730 - see loops.py
            self.slowest_s = slowest_s

    def count_slow(self, took_s: float) -> None:
        """A batch took so long; it is counted by the bounds of batch times."""
        self.batch_le[bisect_left(BATCH_BOUNDS_S, took_s)] += 1

    def report(self, produced: int, now_s: float, rate_per_s: float, stuck_after_s: float) -> ConsumerReport:
        """How it is doing; from any thread."""
        begun_s = self.begun_s
        running_s = 0.0 if begun_s is None else max(now_s - begun_s, 0.0)
        return ConsumerReport(
            name=self.name,
            after=tuple(lane.name for lane in self.after),
            processed=self.processed,
            lag=max(produced - self.done, 0),
            batches=self.batches,
            batch=self.batch,
            rate_per_s=rate_per_s,
            batch_s=self.batch_s,
            slowest_s=self.slowest_s,
            batch_le=tuple(self.batch_le),
            errors=self.errors,
            retries=self.retries,
            given_up=self.given_up,
            dead_letters=self.dead_letters,
            running_s=running_s,
            doing=self.doing,
            is_stuck=running_s > stuck_after_s,
            offset=self.saved_offset,
            checkpoint_error=self.checkpoint_error,
        )


class ThreadBell:
    """Wakes a consumer that has a thread of its own. Ringing it twice is ringing it once."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake it; under the ring's lock."""
        if self._lock.locked():
            self._lock.release()

    def wait(self) -> None:
        """Sleep until it is rung, or was rung since the last sleep."""
        self._lock.acquire()


class Alarm(threading.Event):
    """An event for one who waits, once, and whom an interrupt does no harm.

    One that comes to `Event.wait` as it takes its lock again lets go of a lock that is not its own: `set` then raises
    in whoever holds it, which here is a consumer.
    """

    def __init__(self) -> None:
        super().__init__()
        self._once = allocate_lock()
        self._once.acquire()

    def is_set(self) -> bool:
        """Whether it was set, and nobody has waited for it since."""
        return not self._once.locked()

    def set(self) -> None:
        """Wake whoever waits; under the ring's lock."""
        if self._once.locked():
            self._once.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until it is set, or for at most so many seconds; say whether it was."""
        return self._once.acquire(timeout=-1 if timeout is None else timeout)


class LoopBell:
    """Wakes a consumer that is a task on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
        self._loop = loop
        self._event = event

    def ring(self) -> None:
        """Wake it; under the ring's lock."""
        with suppress(RuntimeError):  # the loop is closed, and its consumer gone with it
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        """Sleep until it is rung."""
        await self._event.wait()
        self._event.clear()


Bell = ThreadBell | LoopBell
