"""When the next request to one domain may start: a pure machine of separate clocks, and of what its answers say.

The configured clocks     at most `rate` starts in any window, `min_delay_s` between two starts, `per_domain` in flight
The clock of robots.txt   its crawl-delay between two starts, and one request in flight
The clock of a rest       nothing starts until `held_until_s`, which refusals (429, 503 with Retry-After) set
What was learnt           a limit of requests in flight, and an interval between starts (adapting.py)

All must have passed, and none is lengthened by another. After a rest one request, the probe, goes ahead; once it is
answered well, the others follow.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from enum import Enum
from typing import Final

from msgspec import Struct

from holdfast.crawl.adapting import FIRST_LIMIT, Tempo
from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.policy.limiter import Rate, Starts
from holdfast.policy.retry_after import bounded

RESTS_S: Final = (30.0, 60.0, 120.0, 240.0, 300.0)
"""How long a domain rests that refuses without saying for how long, by bursts of refusals in a row."""

HOPELESS_BURSTS: Final = 10
"""After so many bursts in a row, waiting has not helped."""

_LEAST_REST_S: Final = 1.0  # "Retry-After: 0" would have us ask as fast as it refuses
_QUIET_S: Final = 300.0


class Outcome(Enum):
    """How a request ended, as far as the pace of its domain cares."""

    OK = "ok"
    OTHER = "other"
    """The site answered well, but not with a page: 404 and the like."""
    REFUSED = "refused"
    """429, or 503 with Retry-After."""
    FAILED = "failed"
    """5xx, the network, a time limit."""


# Reading a member from its class costs 100 ns on Python 3.11, and these are read for every request.
_OK: Final = Outcome.OK
_OTHER: Final = Outcome.OTHER
_REFUSED: Final = Outcome.REFUSED


class PaceSettings(Struct, frozen=True, kw_only=True):
    """How a crawl may ask any one domain.

    per_domain: most requests in flight.
    rate: at most so many starts in any window; None does not count them.
    min_delay_s: between two starts.
    is_adaptive: whether limit and interval follow the answers, within the other settings.
    slow_s: answers quicker than this never count as slow [0.5, below which people do not call a page slow].
    """

    per_domain: int
    rate: Rate | None = None
    min_delay_s: float = 0.0
    is_adaptive: bool = True
    slow_s: float = 0.5

    def __post_init__(self) -> None:
        bounds.whole("per_domain", self.per_domain, low=1)
        if self.rate is not None and not isinstance(self.rate, Rate):
            raise ConfigError(f"rate={self.rate!r}: must be a Rate or None")
        bounds.length("min_delay_s", self.min_delay_s)
        if not isinstance(self.is_adaptive, bool):
            raise ConfigError(f"is_adaptive={self.is_adaptive!r}: must be True or False")
        bounds.length("slow_s", self.slow_s)

    @property
    def first_room(self) -> int:
        """The room of a domain that was never asked."""
        if self.min_delay_s > 0.0:
            return 1
        most = min(self.per_domain, FIRST_LIMIT) if self.is_adaptive else self.per_domain
        return most if self.rate is None else min(most, self.rate.burst)


class Pace:
    """The clocks of one domain. `now_s` is monotonic time in seconds; nothing here waits, and nothing is locked."""

    __slots__ = (
        "held_until_s",
        "in_flight",
        "refusals",
        "why",
        "_active_s",
        "_crawl_delay_s",
        "_gap_s",
        "_is_probing",
        "_last_start_s",
        "_most",
        "_rate",
        "_settings",
        "_starts",
        "_tempo",
    )

    def __init__(self, settings: PaceSettings, now_s: float) -> None:
        self.in_flight = 0
        self.held_until_s = -math.inf
        """Nothing starts before this instant. It stays where it was when it has passed."""
        self.refusals = 0
        """Bursts of refusals in a row, without a good answer in between."""
        self.why = ""
        """What the latest rest is for; empty once a request was answered well after it."""
        self._settings = settings
        self._tempo = Tempo(settings.per_domain, settings.slow_s) if settings.is_adaptive else None
        self._rate = settings.rate
        self._starts = Starts()
        self._crawl_delay_s = 0.0
        self._last_start_s = -math.inf
        self._active_s = now_s
        self._is_probing = False
        self._most = 1
        self._gap_s = 0.0
        self._weigh()

    @property
    def limit(self) -> float:
        """Most requests in flight that the answers so far allow."""
        return self._tempo.limit if self._tempo is not None else float(self._settings.per_domain)

    @property
    def interval_s(self) -> float:
        """Seconds between two starts, by whichever clock asks for most; zero where none does. The rate is not in it."""
        return self._gap_s

    @property
    def is_hopeless(self) -> bool:
        """Whether it has refused so often in a row that its pages should fail, and not wait for ever."""
        return self.refusals >= HOPELESS_BURSTS

    # ---- may it start?

    def room(self, now_s: float) -> int:
        """How many requests may start at this instant."""
        room = self._most - self.in_flight
        if room <= 0 or now_s < self.held_until_s:
            return 0
        if self._gap_s > 0.0:
            if now_s < self._last_start_s + self._gap_s:
                return 0
            room = 1
        rate, starts = self._rate, self._starts
        if rate is None:
            return room
        return bisect_left(range(room), 1, key=lambda ahead: starts.wait(rate, now_s, ahead) > 0.0)

    def opens_in_s(self, now_s: float) -> float | None:
        """Seconds until it has room by time alone; None if it has room, or must wait for a request to end."""
        if self.in_flight >= self._most:
            return None
        opens_s = max(self.held_until_s, self._last_start_s + self._gap_s)
        if self._rate is not None:
            opens_s = max(opens_s, now_s + self._starts.wait(self._rate, now_s))
        if opens_s <= now_s:
            return None
        wait_s = opens_s - now_s
        while now_s + wait_s < opens_s:  # rounded down: whoever waits so long would come too early
            wait_s = math.nextafter(wait_s, math.inf)
        return wait_s

    def is_idle(self, now_s: float) -> bool:
        """Whether it may be thrown away: nothing is in flight, no clock runs, and nothing learnt is worth keeping."""
        if self.in_flight or now_s < max(self.held_until_s, self._last_start_s + self._gap_s):
            return False
        if self._rate is not None and not self._starts.is_idle(self._rate, now_s):
            return False
        is_as_new = not self._is_probing and (self._tempo is None or self._tempo.is_as_new)
        return is_as_new or now_s - max(self._active_s, self.held_until_s) >= _QUIET_S

    # ---- what happens

    def started(self, now_s: float, n: int = 1) -> None:
        """So many requests begin at this instant; the caller has asked for `room` first."""
        self.in_flight += n
        self._last_start_s = now_s
        if self._rate is not None:
            for _ in range(n):
                self._starts.add(self._rate, now_s)

    def released(self, now_s: float) -> None:
        """A request did not begin after all, or nobody will say how it ended. Its start stays counted, to be safe."""
        self._active_s = now_s
        if self.in_flight > 0:
            self.in_flight -= 1

    def ended(
        self, now_s: float, *, began_s: float, outcome: Outcome, took_s: float, retry_after_s: float | None = None
    ) -> None:
        """A request that began at `began_s` has ended. `retry_after_s` counts from now."""
        in_flight = self.in_flight
        self.released(now_s)
        tempo = self._tempo
        if outcome is _REFUSED:
            self._refused(now_s, began_s, bounded(retry_after_s))
        elif outcome is _OK or outcome is _OTHER:
            if self._is_probing and began_s >= self.held_until_s:
                self._is_probing, self.refusals, self.why = False, 0, ""
                self._weigh()
            if tempo is not None and tempo.answered(now_s, began_s, took_s, in_flight, is_timed=outcome is _OK):
                self._weigh()
        elif tempo is not None and tempo.failed(now_s, began_s):
            self._weigh()

    def filled(self) -> None:
        """There was no room for a page that could have begun."""
        if self._tempo is not None:
            self._tempo.filled()

    def crawl_delay(self, seconds: float | None) -> None:
        """What robots.txt says: seconds between two starts; None or zero when it says nothing."""
        self._crawl_delay_s = bounded(seconds) or 0.0
        self._weigh()

    def hold(self, until_s: float, why: str, *, refusals: int = 0) -> None:
        """Rest until then, as a store remembers it, after so many bursts of refusals; a longer rest is kept."""
        self.refusals = max(self.refusals, refusals)
        self._rest(until_s, why)

    def _refused(self, now_s: float, began_s: float, retry_after_s: float | None) -> None:
        # Nothing starts during a rest, so what began before its end began before the refusal that set it: one burst.
        is_new = began_s >= self.held_until_s
        self.refusals += is_new
        if retry_after_s is None:
            rest_s, why = RESTS_S[min(max(self.refusals, 1), len(RESTS_S)) - 1], "refused"
        else:
            rest_s, why = max(retry_after_s, _LEAST_REST_S), "Retry-After"
        # A probe comes after the rest that was asked for: that it is refused says nothing about limit or interval.
        if is_new and self._tempo is not None and not self._is_probing:
            self._tempo.refused(now_s, began_s, rest_s)
        if is_new or retry_after_s is not None:
            self._rest(now_s + rest_s, why)

    def _rest(self, until_s: float, why: str) -> None:
        if until_s > self.held_until_s:
            self.held_until_s, self.why = until_s, why
        self._is_probing = True
        self._weigh()

    def _weigh(self) -> None:
        """Work out anew what is read for every request."""
        settings, tempo = self._settings, self._tempo
        is_single = self._is_probing or self._crawl_delay_s > 0.0
        self._most = 1 if is_single else settings.per_domain if tempo is None else int(tempo.limit)
        interval_s = 0.0 if tempo is None else tempo.interval_s
        self._gap_s = max(settings.min_delay_s, self._crawl_delay_s, interval_s)
