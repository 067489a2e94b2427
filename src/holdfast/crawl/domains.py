"""The domains that a process of a crawl has met: their pace, their robots.txt, and what came of their pages."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from holdfast.crawl.pace import Outcome, Pace, PaceSettings
from holdfast.crawl.robots import Robots
from holdfast.ports import Clock, DomainReport
from holdfast.runtime.page_gates import domain_gate, share_of

_MOST_IDLE: Final = 2_000
"""So many domains are remembered of which nothing was learnt, and that rest for nothing."""
_MOST: Final = 20_000
"""Beyond so many, also what was learnt of a domain is forgotten; about 40 MB."""
_MOST_NAMED: Final = 2_000
"""A claim names so many domains, beside those with something in flight: each costs time with every claim."""
_ABOUT_S: Final = 0.01
_A_WHILE_S: Final = 60.0
_REPORTED: Final = 30
_LATELY: Final = 0.2


class Hold(Struct, frozen=True):
    """A rest that a domain has asked for, as others remember it; in monotonic time."""

    until_s: float
    why: str
    refusals: int = 0


class RobotsFile:
    """What is known of one robots.txt. A domain has one for http, and one for https."""

    __slots__ = ("fetching", "robots", "until_s")

    def __init__(self) -> None:
        self.robots: Robots | None = None
        self.until_s = 0.0
        """Until when that holds."""
        self.fetching: asyncio.Future[None] | None = None
        """Is done once the request for it has ended, however it did."""


class Domain:
    """One domain of a crawl, in one process."""

    __slots__ = (
        "broken_until_s",
        "claimed",
        "failed",
        "fetched",
        "freed",
        "gate",
        "latency_s",
        "name",
        "pace",
        "pages",
        "refused",
        "robots",
        "share",
        "shut_until_s",
    )

    def __init__(self, crawl: str, name: str, pace: Pace) -> None:
        self.name = name
        self.gate = domain_gate(crawl, name)
        self.share = share_of(name)
        self.pace = pace
        self.claimed = 0
        """Pages that were claimed, and whose request has not begun."""
        self.pages = 0
        """Pages that are being handled, from before their request until they are parsed."""
        self.shut_until_s = 0.0
        """Until then it has no room, whoever asks; what ends earlier sets it back."""
        self.freed = asyncio.Event()
        """Set when a request has ended, for those who wait for room."""
        self.robots: dict[str, RobotsFile] = {}
        """By scheme."""
        self.broken_until_s = -math.inf
        """Until when its breaker is open, as of the last look; not later than now where it is not."""
        self.fetched = 0
        self.failed = 0
        self.refused = 0
        self.latency_s: float | None = None

    @property
    def is_asked(self) -> bool:
        """Whether a request is in flight, or about to be."""
        return self.claimed > 0 or self.pace.in_flight > 0

    def room(self, now_s: float) -> int:
        """How many more pages may be claimed now: none, while the first one asks for robots.txt."""
        if now_s < self.shut_until_s or self._is_asking_robots():
            return 0
        room = self.pace.room(now_s) - self.claimed
        if room > 0:
            return room
        wait_s = self.pace.opens_in_s(now_s)
        if wait_s is None:
            self.pace.filled()
        else:
            self.shut_until_s = now_s + wait_s
        return 0

    def opens_in_s(self, now_s: float) -> float | None:
        """Seconds until it has room by time alone; None where that is not what it lacks."""
        if self.claimed:
            return None
        left_s = self.shut_until_s - now_s
        return left_s if left_s > 0.0 else self.pace.opens_in_s(now_s)

    def is_too_soon(self, now_s: float) -> bool:
        """Whether it may not be asked now because of when it was asked last; of a rest the store knows.

        Not where that is for long: the other domains of its share would wait with it.
        """
        wait_s = self.pace.opens_in_s(now_s)
        return wait_s is not None and wait_s <= _A_WHILE_S and now_s + wait_s > self.pace.held_until_s + _ABOUT_S

    @contextmanager
    def handling(self) -> Iterator[None]:
        """A page of it is being handled: it is not forgotten meanwhile."""
        self.pages += 1
        try:
            yield
        finally:
            self.pages -= 1

    def robots_of(self, url: str) -> RobotsFile:
        """The robots.txt that speaks for a URL."""
        scheme = url.partition(":")[0]
        found = self.robots.get(scheme)
        if found is None:
            found = self.robots[scheme] = RobotsFile()
        return found

    def obey(self, file: RobotsFile, robots: Robots, until_s: float) -> None:
        """This is what it says, until then."""
        file.robots, file.until_s = robots, until_s
        delays = [one.robots.crawl_delay_s or 0.0 for one in self.robots.values() if one.robots is not None]
        self.pace.crawl_delay(max(delays))
        self.shut_until_s = 0.0

    def hold(self, hold: Hold, now_s: float) -> None:
        """Rest, as others remember that it wants to; a longer rest is kept."""
        if hold.until_s > max(now_s, self.pace.held_until_s):
            self.pace.hold(hold.until_s, hold.why, refusals=hold.refusals)

    def released(self, now_s: float) -> None:
        """A request was given up by us, which says nothing of the site."""
        self.pace.released(now_s)
        self.shut_until_s = 0.0
        self.freed.set()

    def ended(
        self, now_s: float, *, began_s: float, outcome: Outcome, took_s: float, retry_after_s: float | None = None
    ) -> None:
        """A request has ended so."""
        self.pace.ended(now_s, began_s=began_s, outcome=outcome, took_s=took_s, retry_after_s=retry_after_s)
        self.shut_until_s = 0.0
        if outcome is Outcome.REFUSED:
            self.refused += 1
        elif outcome is Outcome.FAILED:
            self.failed += 1
        else:
            self.fetched += 1
            before = self.latency_s
            self.latency_s = took_s if before is None else before + _LATELY * (took_s - before)
        self.freed.set()

    def forget_flights(self, now_s: float) -> None:
        """Nothing is claimed or in flight any more."""
        self.claimed = 0
        while self.pace.in_flight:
            self.pace.released(now_s)
        self.shut_until_s = 0.0
        self.freed.set()

    def report(self, now_s: float) -> DomainReport:
        """How it is doing."""
        held_until_s, why = max((self.pace.held_until_s, self.pace.why), (self.broken_until_s, "its breaker is open"))
        held_s = max(0.0, held_until_s - now_s)
        return DomainReport(
            domain=self.name,
            in_flight=self.pace.in_flight,
            fetched=self.fetched,
            failed=self.failed,
            refused=self.refused,
            latency_s=self.latency_s,
            interval_s=self.pace.interval_s,
            held_s=held_s,
            why=why if held_s > 0.0 else "",
        )

    def _is_asking_robots(self) -> bool:
        return any(file.fetching is not None for file in self.robots.values())


class Domains:
    """All of them, each made when it is first met. Those that rest for nothing are forgotten when they are many."""

    def __init__(
        self,
        crawl: str,
        settings: PaceSettings,
        clock: Clock,
        *,
        hold_of: Callable[[str], Hold | None],
        on_forgotten: Callable[[str], None],
    ) -> None:
        """hold_of: the rest that a domain has asked for, as far as anybody knows. on_forgotten: is told of each."""
        self._crawl = crawl
        self._settings = settings
        self._first_room = settings.first_room
        self._clock = clock
        self._hold_of = hold_of
        self._on_forgotten = on_forgotten
        self._all: dict[str, Domain] = {}
        """The one that was met last comes last."""
        self._busy: dict[str, Domain] = {}
        """Those whose room may be smaller than that of one which was never met."""
        self._sweep_at = _MOST_IDLE

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, name: str) -> bool:
        return name in self._all

    @property
    def named(self) -> int:
        """How many a claim has to name."""
        return len(self._busy)

    def get(self, name: str) -> Domain:
        """The domain of this name."""
        domain = self._all.pop(name, None)
        if domain is None:
            if len(self._all) >= self._sweep_at:
                self._forget_idle()
            domain = self._made(name)
        self._all[name] = domain
        self._busy[name] = domain
        return domain

    def caps(self) -> dict[str, int]:
        """How many pages may be claimed of each that is busy."""
        now_s = self._clock.monotonic()
        caps = {}
        for domain in list(self._busy.values()):
            room = 0 if now_s < domain.shut_until_s else domain.room(now_s)
            caps[domain.gate] = room
            is_as_new = room >= self._first_room or len(self._busy) > _MOST_NAMED
            if is_as_new and not domain.is_asked:
                del self._busy[domain.name]
        return caps

    def opens_in_s(self) -> float | None:
        """Seconds until the first of them has room by time alone."""
        now_s = self._clock.monotonic()
        waits = [domain.opens_in_s(now_s) for domain in self._busy.values()]
        return min((wait for wait in waits if wait is not None), default=None)

    def busy_shares(self) -> set[int]:
        """The shares of which something is in flight, or would be asked too soon by a process that asks it next."""
        now_s = self._clock.monotonic()
        return {one.share for one in self._busy.values() if one.is_asked or one.is_too_soon(now_s)}

    def forget_flights(self) -> None:
        """Nothing is in flight any more: the worker that had it has ended."""
        now_s = self._clock.monotonic()
        for domain in self._all.values():
            domain.forget_flights(now_s)

    @property
    def in_flight(self) -> int:
        """Requests that are under way; from any thread."""
        return sum(domain.pace.in_flight for domain in list(self._busy.values()))

    def held(self) -> int:
        """How many are asked nothing now."""
        now_s = self._clock.monotonic()
        domains = list(self._all.values())
        return sum(max(one.pace.held_until_s, one.broken_until_s) > now_s for one in domains)

    def note_open_breakers(self, left_s: Mapping[str, float]) -> None:
        """Whose breakers are open, and for how many seconds still."""
        now_s = self._clock.monotonic()
        for name, domain in self._all.items():
            domain.broken_until_s = now_s + left_s[name] if name in left_s else -math.inf

    def reports(self) -> tuple[DomainReport, ...]:
        """Those that are held, then the busiest; from any thread."""
        now_s = self._clock.monotonic()
        reports = [domain.report(now_s) for domain in list(self._all.values())]
        reports.sort(key=lambda one: (-(one.held_s > 0.0), -one.in_flight, -one.fetched, one.domain))
        return tuple(reports[:_REPORTED])

    def _made(self, name: str) -> Domain:
        now_s = self._clock.monotonic()
        domain = Domain(self._crawl, name, Pace(self._settings, now_s))
        hold = self._hold_of(name)
        if hold is not None:
            domain.hold(hold, now_s)
        return domain

    def _forget_idle(self) -> None:
        """Those that were not met for longest go first; it is not looked again before as many have come."""
        now_s = self._clock.monotonic()
        is_crowded = len(self._all) >= _MOST
        for name, domain in list(self._all.items()):
            if len(self._all) <= _MOST_IDLE // 2:
                break
            if name in self._busy or domain.is_asked or domain.pages:
                continue
            if domain.pace.is_idle(now_s) or (is_crowded and self._is_dispensable(domain, now_s)):
                del self._all[name]
                self._on_forgotten(name)
        self._sweep_at = max(_MOST_IDLE, len(self._all) + _MOST_IDLE // 2)

    def _is_dispensable(self, domain: Domain, now_s: float) -> bool:
        """Whether no clock of it runs, or others remember the one that does."""
        wait_s = domain.pace.opens_in_s(now_s)
        if wait_s is None:
            return True
        hold = self._hold_of(domain.name)
        return hold is not None and hold.until_s >= now_s + wait_s - _ABOUT_S
