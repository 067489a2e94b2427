"""A rate limiter for plain calls."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing

from holdfast.clock import SystemClock
from holdfast.errors import RateLimitExceeded
from holdfast.policy import bounds
from holdfast.policy.limiter import Rate, Starts
from holdfast.ports import Clock
from holdfast.runtime.guards.keyed import Keyed


class RateLimiter:
    """Never more than `max_calls` starts in any `time_window` seconds, for each key apart.

    burst [max_calls]: how many of them may start at once; the rest are spread evenly.
    max_wait [None]: the longest that `acquire` waits, in seconds; None is as long as it takes.
    """

    def __init__(
        self,
        max_calls: int,
        time_window: float,
        *,
        burst: int | None = None,
        max_wait: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.rate = Rate(max_calls, time_window) if burst is None else Rate(max_calls, time_window, burst)
        self.max_wait = None if max_wait is None else bounds.number("max_wait", max_wait)
        self._clock = clock or SystemClock()
        self._buckets = Keyed(lambda key: _Bucket(self.rate), self._is_idle)

    @classmethod
    def parse(cls, rate: str, *, max_wait: float | None = None, clock: Clock | None = None) -> RateLimiter:
        """A limiter from a rate as people write it: "100/minute", "5/10s", "2/second"."""
        parsed = Rate.parse(rate)
        return cls(parsed.max_calls, parsed.time_window, max_wait=max_wait, clock=clock)

    def allow(self, key: str = "") -> bool:
        """Take one start if it may be had now; never waits."""
        bucket = self._buckets.things.get(key) or self._buckets[key]
        return bucket.take(self._clock.monotonic()) == 0.0

    def acquire(self, key: str = "") -> None:
        """Wait for one start and take it; RateLimitExceeded at once when that would take longer than `max_wait`."""
        if not self.allow(key):
            with closing(self._waits(key)) as waits:
                for seconds in waits:
                    self._clock.sleep(seconds)

    async def aacquire(self, key: str = "") -> None:
        """The same without blocking the event loop."""
        if not self.allow(key):
            with closing(self._waits(key)) as waits:
                for seconds in waits:
                    await self._clock.asleep(seconds)

    def _waits(self, key: str) -> Generator[float, None, None]:
        """The waits that a caller must make, one by one, until it has its start."""
        bucket = self._buckets[key]
        waited = 0.0
        wait = bucket.take(self._clock.monotonic())
        bucket.join()
        try:
            while wait > 0.0:
                if self.max_wait is not None and waited + wait > self.max_wait:
                    name = f" for {key!r}" if key else ""
                    raise RateLimitExceeded(f"rate limit{name}: the next start is in {wait:.3g} s", wait)
                yield wait
                waited += wait
                wait = bucket.take_in_turn(self._clock.monotonic())
        finally:
            bucket.leave()

    def _is_idle(self, bucket: _Bucket) -> bool:
        return bucket.is_idle(self._clock.monotonic())


class _Bucket:
    """The starts of one key, behind a lock, and how many wait for one."""

    __slots__ = ("_lock", "_rate", "_starts", "_waiting")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._starts = Starts()
        self._waiting = 0
        self._lock = threading.Lock()

    def take(self, now: float) -> float:
        """Start now and return zero, or return the seconds to wait, after those who wait already."""
        with self._lock:
            return self._starts.take(self._rate, now, self._waiting)

    def take_in_turn(self, now: float) -> float:
        """The same for one who has waited."""
        with self._lock:
            return self._starts.take(self._rate, now)

    def join(self) -> None:
        with self._lock:
            self._waiting += 1

    def leave(self) -> None:
        with self._lock:
            self._waiting -= 1

    def is_idle(self, now: float) -> bool:
        with self._lock:
            return not self._waiting and self._starts.is_idle(self._rate, now)
