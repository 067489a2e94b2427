"""The store is away: when to try again, and what is said of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

from holdfast.clock import chance
from holdfast.errors import StoreAway
from holdfast.policy.backoff import Backoff
from holdfast.ports import Clock
from holdfast.types import Rng

_logger = logging.getLogger("holdfast.worker")

T = TypeVar("T")

Say = Callable[..., object]
"""Writes a line to a log, as its `log` does."""

AGAIN: Final = Backoff(initial_delay=0.2, multiplier=2.0, max_delay=5.0, min_delay=0.05)
"""The waits between tries: quick at first, soon up to 5 s, and spread by chance, so that no fleet comes all at once."""


class Outage:
    """What a worker knows of its store's outages; told once when one begins, and once when it is over.

    The parts of a worker find out by themselves, some over connections of their own. An outage is over when each part
    that had no answer has one again. From any thread.
    """

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        self._rng = rng
        self._lock = threading.Lock()
        self._tries: dict[str, int] = {}
        self._began_s = 0.0

    @property
    def is_on(self) -> bool:
        """Whether a part waits for an answer."""
        return bool(self._tries)

    def fails(self, part: str, error: BaseException, say: Say = _logger.log) -> float:
        """This part got no answer; how long it is to wait before it tries again."""
        with self._lock:
            is_first = not self._tries
            tries = self._tries[part] = self._tries.get(part, 0) + 1
            if is_first:
                self._began_s = self._clock.monotonic()
        if is_first:
            why = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
            said = "the store does not answer as it should (%s): %s; it is tried until it does"
            say(logging.ERROR, said, part, why)
        return AGAIN.delay(tries, rng=self._rng)

    def works(self, part: str, say: Say = _logger.log) -> None:
        """This part got an answer."""
        if part not in self._tries:
            return
        with self._lock:
            self._tries.pop(part, None)
            is_over = not self._tries
        if is_over:
            say(logging.WARNING, "the store answers again, after %.1f s", self._clock.monotonic() - self._began_s)

    def only(self, part: str) -> None:
        """The other parts do not ask any more: an outage is over when this one has an answer."""
        with self._lock:
            if self._tries:
                self._tries = {part: self._tries.get(part, 0)}


# ---------------------------------------------------------------- one call, through an outage


def insist_now(call: Callable[[], T], limit_s: float, clock: Clock, rng: Rng = chance) -> T:
    """Call until the store is there, for at most so long, and for as long as the last try takes; then StoreAway."""
    pauses = _pauses(clock.monotonic() + limit_s, clock, rng)
    while True:
        try:
            return call()
        except StoreAway as error:
            clock.sleep(_next(pauses, limit_s, error))


async def insist(call: Callable[[], Awaitable[T]], limit_s: float, clock: Clock, rng: Rng = chance) -> T:
    """The same for async code."""
    pauses = _pauses(clock.monotonic() + limit_s, clock, rng)
    while True:
        try:
            return await call()
        except StoreAway as error:
            await clock.asleep(_next(pauses, limit_s, error))


def _pauses(end_s: float, clock: Clock, rng: Rng) -> Iterator[float]:
    """The waits; the last one ends when the time is over, and is followed by one more try."""
    tries = 0
    while (left_s := end_s - clock.monotonic()) > 0.0:
        tries += 1
        yield min(left_s, AGAIN.delay(tries, rng=rng))


def _next(pauses: Iterator[float], limit_s: float, error: StoreAway) -> float:
    for pause_s in pauses:
        return pause_s
    if limit_s <= 0.0:
        raise error
    raise StoreAway(f"{error} (tried for {limit_s:g} s)") from error
