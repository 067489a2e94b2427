"""A rate limiter for plain calls."""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left
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
        self.max_wait = None if max_wait is None else bounds.length("max_wait", max_wait)
        self._clock = clock or SystemClock()
        self._monotonic = self._clock.monotonic
        self._buckets = Keyed(lambda key: _Bucket(), self._retire)

    @classmethod
    def parse(cls, rate: str, *, max_wait: float | None = None, clock: Clock | None = None) -> RateLimiter:
        """A limiter from a rate as people write it: "100/minute", "5/10s", "2/second"."""
        return cls.of(Rate.parse(rate), max_wait=max_wait, clock=clock)

    @classmethod
    def of(cls, rate: Rate, *, max_wait: float | None = None, clock: Clock | None = None) -> RateLimiter:
        """A limiter with a rate that was made before."""
        return cls(rate.max_calls, rate.time_window, burst=rate.burst, max_wait=max_wait, clock=clock)

    def allow(self, key: str = "") -> bool:
        """Take one start if it may be had now; never waits, and never overtakes those who do."""
        bucket = self._buckets.things.get(key) or self._buckets[key]
        with bucket.lock:
            if not bucket.is_retired:
                return bucket.starts.take(self.rate, self._monotonic(), len(bucket.queue)) == 0.0
        return self.allow(key)  # it was forgotten in the very moment, so there is a new one

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

    def __repr__(self) -> str:
        return f"<RateLimiter {self.rate.max_calls} per {self.rate.time_window:g} s>"

    def _waits(self, key: str) -> Generator[float, None, None]:
        """The waits that a caller must make, one by one, until it has its start.

        `max_wait` is asked once: whoever is let into the queue gets a start, even if those ahead oversleep.
        """
        bucket, ticket, wait = self._join(key)
        try:
            if self.max_wait is not None and wait > self.max_wait:
                name = f" for {key!r}" if key else ""
                raise RateLimitExceeded(f"rate limit{name}: the next start is in {wait:.3g} s", wait)
            while wait > 0.0:
                yield wait
                with bucket.lock:
                    ahead = bisect_left(bucket.queue, ticket)
                    wait = bucket.starts.take(self.rate, self._monotonic(), ahead)
        finally:
            with bucket.lock:
                bucket.queue.remove(ticket)

    def _join(self, key: str) -> tuple[_Bucket, int, float]:
        """Stand in the queue of a key, with a ticket; and how long to wait, zero for a start that was had at once."""
        bucket = self._buckets[key]
        with bucket.lock:
            if not bucket.is_retired:
                wait = bucket.starts.take(self.rate, self._monotonic(), len(bucket.queue))
                ticket = next(bucket.tickets)
                bucket.queue.append(ticket)
                return bucket, ticket, wait
        return self._join(key)

    def _retire(self, bucket: _Bucket) -> bool:
        with bucket.lock:
            bucket.is_retired = not bucket.queue and bucket.starts.is_idle(self.rate, self._monotonic())
            return bucket.is_retired


class _Bucket:
    """The starts of one key, the queue of those who wait for one, and the lock that guards both."""

    __slots__ = ("is_retired", "lock", "queue", "starts", "tickets")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.starts = Starts()
        self.tickets = itertools.count()
        self.queue: list[int] = []
        """The tickets of those who wait, in order. Each keeps room for all that are ahead of it."""
        self.is_retired = False
        """Whether it has been forgotten; a start that is taken here now would not be counted."""
