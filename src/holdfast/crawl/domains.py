"""The domains that a process of a crawl has met: their pace, their robots.txt, and what came of their pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.crawl.frontier import domain_gate, share_of
from holdfast.crawl.pace import Outcome, Pace, PaceSettings
from holdfast.crawl.robots import Robots
from holdfast.ports import Clock, DomainReport

_MOST_IDLE: Final = 2_000
"""So many domains are remembered that have nothing in flight and rest for nothing."""
_REPORTED: Final = 30
_LATELY: Final = 0.2


class Domain:
    """One domain of a crawl, in one process."""

    __slots__ = (
        "claimed",
        "failed",
        "fetched",
        "freed",
        "gate",
        "is_fetching_robots",
        "latency_s",
        "name",
        "pace",
        "refused",
        "robots",
        "robots_until_s",
        "share",
    )

    def __init__(self, crawl: str, name: str, pace: Pace) -> None:
        self.name = name
        self.gate = domain_gate(crawl, name)
        self.share = share_of(name)
        self.pace = pace
        self.claimed = 0
        """Pages that were claimed, and whose request has not begun."""
        self.freed = asyncio.Event()
        """Set when a request has ended, for those who wait for room."""
        self.robots: Robots | None = None
        self.robots_until_s = 0.0
        self.is_fetching_robots: asyncio.Future[None] | None = None
        self.fetched = 0
        self.failed = 0
        self.refused = 0
        self.latency_s: float | None = None

    def room(self, now_s: float) -> int:
        """How many more pages may be claimed now."""
        return max(0, self.pace.room(now_s) - self.claimed)

    def ended(
        self, now_s: float, *, began_s: float, outcome: Outcome, took_s: float, retry_after_s: float | None = None
    ) -> None:
        """A request has ended so."""
        self.pace.ended(now_s, began_s=began_s, outcome=outcome, took_s=took_s, retry_after_s=retry_after_s)
        if outcome is Outcome.REFUSED:
            self.refused += 1
        elif outcome is Outcome.FAILED:
            self.failed += 1
        else:
            self.fetched += 1
            before = self.latency_s
            self.latency_s = took_s if before is None else before + _LATELY * (took_s - before)
        self.freed.set()

    def report(self, now_s: float) -> DomainReport:
        """How it is doing."""
        held_s = max(0.0, self.pace.held_until_s - now_s)
        return DomainReport(
            domain=self.name,
            in_flight=self.pace.in_flight,
            fetched=self.fetched,
            failed=self.failed,
            refused=self.refused,
            latency_s=self.latency_s,
            interval_s=self.pace.interval_s,
            held_s=held_s,
            why=self.pace.why if held_s > 0.0 else "",
        )


class Domains:
    """All of them, each made when it is first met. Those that rest for nothing are forgotten when they are many."""

    def __init__(self, crawl: str, settings: PaceSettings, clock: Clock, on_forgotten: Callable[[str], None]) -> None:
        self._crawl = crawl
        self._settings = settings
        self._first_room = settings.first_room
        self._clock = clock
        self._on_forgotten = on_forgotten
        self._all: dict[str, Domain] = {}
        self._busy: dict[str, Domain] = {}
        """Those whose room may be smaller than that of one which was never met."""

    def __len__(self) -> int:
        return len(self._all)

    def get(self, name: str) -> Domain:
        """The domain of this name."""
        domain = self._all.get(name)
        if domain is None:
            if len(self._all) >= _MOST_IDLE + len(self._busy):
                self._forget_idle()
            pace = Pace(self._settings, self._clock.monotonic())
            domain = self._all[name] = Domain(self._crawl, name, pace)
        self._busy[name] = domain
        return domain

    def caps(self) -> dict[str, int]:
        """How many pages may be claimed of each that is busy."""
        now_s = self._clock.monotonic()
        caps = {}
        for domain in list(self._busy.values()):
            room = domain.room(now_s)
            if room >= self._first_room and not domain.pace.in_flight:
                del self._busy[domain.name]
            caps[domain.gate] = room
        return caps

    def opens_in_s(self) -> float | None:
        """Seconds until the first of them has room by time alone."""
        now_s = self._clock.monotonic()
        waits = [domain.pace.opens_in_s(now_s) for domain in self._busy.values() if not domain.claimed]
        return min((wait for wait in waits if wait is not None), default=None)

    def busy_shares(self) -> set[int]:
        """The shares of which something is in flight, or about to be."""
        return {one.share for one in self._busy.values() if one.claimed or one.pace.in_flight}

    def forget_flights(self) -> None:
        """Nothing is in flight any more: the worker that had it has ended."""
        now_s = self._clock.monotonic()
        for domain in self._all.values():
            domain.claimed = 0
            while domain.pace.in_flight:
                domain.pace.released(now_s)
            domain.freed.set()

    @property
    def in_flight(self) -> int:
        """Requests that are under way; from any thread."""
        return sum(domain.pace.in_flight for domain in list(self._busy.values()))

    def held(self) -> int:
        """How many are asked nothing now."""
        now_s = self._clock.monotonic()
        return sum(domain.pace.held_until_s > now_s for domain in list(self._all.values()))

    def reports(self) -> tuple[DomainReport, ...]:
        """Those that are held, then the busiest; from any thread."""
        now_s = self._clock.monotonic()
        reports = [domain.report(now_s) for domain in list(self._all.values())]
        reports.sort(key=lambda one: (-(one.held_s > 0.0), -one.in_flight, -one.fetched, one.domain))
        return tuple(reports[:_REPORTED])

    def _forget_idle(self) -> None:
        now_s = self._clock.monotonic()
        for name in list(self._idle(now_s)):
            del self._all[name]
            self._on_forgotten(name)

    def _idle(self, now_s: float) -> Iterator[str]:
        for name, domain in self._all.items():
            if name not in self._busy and not domain.claimed and domain.pace.is_idle(now_s):
                yield name
