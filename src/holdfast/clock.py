"""The only reader of machine time and chance; a clock that is set by hand stands beside it for tests."""

from __future__ import annotations

import functools
import heapq
import itertools
import os
import random
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from holdfast.types import Rng

chance: Rng = random.random
"""The machine's chance."""


def new_secret() -> bytes:
    """16 bytes that nobody can guess."""
    return os.urandom(16)


class _Tokens:
    """A byte that says its kind, 8 that rise within the process, and 16 that nobody can guess."""

    def __init__(self) -> None:
        self.last = 0
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def __call__(self) -> bytes:
        """The next token."""
        with self._lock:
            self.last = number = max(self.last + 1, time.time_ns())
        return b"\1" + number.to_bytes(8, "big") + os.urandom(16)


new_token = _Tokens()
"""A new token for a lease, above every one that this process has made. The first byte of all of them is the same."""


class _Ids:
    """UUIDv7s that rise within the process, also when several are made in one millisecond or the clock steps back."""

    def __init__(self) -> None:
        self._ms = 0
        self._prefix = ""
        self._tail = 0
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """Chance of its own: a program that seeds `random` must not make the ids of another that does the same."""
        self._lock = threading.Lock()
        self._chance = random.Random(os.urandom(32)).getrandbits

    def __call__(self) -> str:
        """The next id."""
        ms = time.time_ns() // 1_000_000
        with self._lock:
            if ms > self._ms:
                self._begin(ms)
                tail = self._chance(73)
            else:
                tail = self._tail + 1 + self._chance(33)  # rising, and not to be guessed from a neighbour
                if tail >> 74:
                    self._begin(self._ms + 1)
                    tail = self._chance(73)
            self._tail = tail
            prefix = self._prefix
        return f"{prefix}{tail >> 62:03x}-{0x8000 | tail >> 48 & 0x3FFF:04x}-{tail & 0xFFFF_FFFF_FFFF:012x}"

    def _begin(self, ms: int) -> None:
        """48 bits of milliseconds and the version; 74 bits of chance and order follow."""
        self._ms = ms
        self._prefix = f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7"


new_id = _Ids()
"""A new UUIDv7, above every one that this process has made."""


def boot_time() -> tuple[str, float]:
    """The machine's boot, and the seconds since then: a clock that nobody sets, the same in every process."""
    return _boot_id(), time.clock_gettime(_BOOT_CLOCK)


@functools.cache
def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


# asyncio is imported where it is used: it costs 40 ms, and a program of plain sync calls never needs it.


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    async def asleep(self, seconds: float) -> None:
        """Wait without blocking the event loop."""
        import asyncio  # noqa: PLC0415

        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """A time limit around awaits, as `asyncio.timeout`."""
        import asyncio  # noqa: PLC0415

        return asyncio.timeout(seconds)

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Block until the event is set, or for at most so many seconds; say whether it is set."""
        return event.wait(seconds)


class ManualClock:
    """A clock that moves only when told to.

    `sleep` and `asleep` return at once and move the clock to the end of the sleep, and `sleeps` lists their lengths,
    so a test reads `assert clock.sleeps == [1.0, 3.0]`. With `auto=False` they wait until `advance` has come that far.
    Wall time starts at `start`, monotonic time at zero.
    """

    def __init__(self, start: float = 1_000_000_000.0, *, auto: bool = True) -> None:
        self._start = start
        self._elapsed = 0.0
        self._auto = auto
        self._moved = threading.Condition()
        self._timers: list[tuple[float, int, asyncio.AbstractEventLoop, asyncio.Timeout]] = []
        self._order = itertools.count()
        self.sleeps: list[float] = []

    def now(self) -> float:
        """Wall time, in seconds since 1970."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move forward, wake the sleepers whose time has come and end the time limits that are over."""
        if seconds < 0:
            raise ValueError(f"a clock does not go back: {seconds}")
        with self._moved:
            self._move_to(self._elapsed + seconds)

    def sleep(self, seconds: float) -> None:
        """Move the clock to the end of the sleep; with `auto=False`, block until somebody else has."""
        with self._moved:
            end = self._slept(seconds)
            self._moved.wait_for(lambda: self._elapsed >= end)

    async def asleep(self, seconds: float) -> None:
        """The same without blocking the event loop."""
        import asyncio  # noqa: PLC0415

        with self._moved:
            end = self._slept(seconds)
            timer = self._timer_at(end)
        try:
            async with timer:
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """A time limit around awaits that ends when this clock has moved so far."""
        with self._moved:
            return self._timer_at(None if seconds is None else self._elapsed + seconds)

    def _timer_at(self, instant: float | None) -> asyncio.Timeout:
        import asyncio  # noqa: PLC0415

        if instant is not None and instant <= self._elapsed:
            return asyncio.timeout(0)
        timer = asyncio.timeout(None)
        if instant is not None:
            heapq.heappush(self._timers, (instant, next(self._order), asyncio.get_running_loop(), timer))
        return timer

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Block until the event is set or this clock has moved so far; say whether the event is set."""
        end = float("inf") if seconds is None else self._elapsed + seconds
        while not event.wait(0.001):  # real time: an Event cannot tell this clock that it was set
            if self._elapsed >= end:
                return event.is_set()
        return True

    def _slept(self, seconds: float) -> float:
        self.sleeps.append(seconds)
        end = self._elapsed + seconds
        if self._auto:
            self._move_to(end)
        return end

    def _move_to(self, instant: float) -> None:
        self._elapsed = max(self._elapsed, instant)
        self._moved.notify_all()
        while self._timers and self._timers[0][0] <= self._elapsed:
            _, _, loop, timer = heapq.heappop(self._timers)
            if not loop.is_closed():
                loop.call_soon_threadsafe(_end, timer, loop)


def _end(timer: asyncio.Timeout, loop: asyncio.AbstractEventLoop) -> None:
    """Let a time limit end now, unless its block has been left."""
    try:
        timer.reschedule(loop.time())
    except RuntimeError:
        return  # the block was left (or never entered) before its time
