"""One host of the site: which answer a request gets, what is refused for now, and what is written down of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl

from msgspec import Struct
from msgspec.structs import replace

from holdfast.policy import bounds
from holdfast.ports import Clock
from holdfast.testing.site import pages
from holdfast.testing.site.answers import Answer, Asked, answer_of, hop, refusal, response
from holdfast.testing.site.fates import FATES, TRAPS, Fate
from holdfast.testing.site.log import RequestLog
from holdfast.testing.site.plan import Site


class _Refusals(Struct):
    """How often a page was refused, and until when it is."""

    count: int = 0
    until: float = 0.0


class Stats(Struct, kw_only=True):
    """What a host has been asked, as `/_site/stats` shows it."""

    domain: str
    requests: int = 0
    distinct: int = 0
    """Pages of the plan that were asked for; neither traps nor robots.txt count."""
    in_flight: int = 0


class Host:
    """Answers what is asked of one host. Knows no sockets: connections ask it, and tell it when they have finished."""

    def __init__(self, site: Site, number: int, *, domain: str, port: int, made: pages.Pages, clock: Clock) -> None:
        self._site = site
        self._number = number
        self._domain = domain
        self._port = port
        self._made = made
        self._clock = clock
        self._log: RequestLog | None = None
        self._plain: dict[str, Answer] = {}
        """Answers that are always the same, by path."""
        self._refused: dict[str, _Refusals] = {}
        self._starts: deque[float] = deque()
        self._seen: set[str] = set()
        self._requests = 0
        self._in_flight = 0
        self._outage: Fate | None = None

    def write_to(self, log: RequestLog) -> None:
        """Write every request down from now on."""
        self._log = log

    def stats(self) -> Stats:
        """What it has been asked so far."""
        return Stats(domain=self._domain, requests=self._requests, distinct=len(self._seen), in_flight=self._in_flight)

    def suffer(self, fate: Fate | None) -> None:
        """Give all pages this fate from now on; None gives each its own again."""
        self._outage = fate

    def ask(self, path: str) -> Answer:
        """The answer to one request, which is under way until `finished`."""
        now = self._clock.monotonic()
        self._requests += 1
        self._in_flight += 1
        what = "ok"
        if self._site.burst is not None and self._is_burst(now):
            answer, what = refusal(429, self._site.burst.retry_after_s, self._clock), "burst"
        elif self._outage is None and (plain := self._plain.get(path)) is not None:
            answer = plain
        else:
            answer, what = self._answer(path)
        if self._log is not None:
            self._log.add(now, self._domain, path, answer.status, what, self._in_flight, answer.until)
        return answer

    def finished(self) -> None:
        """One request less is under way."""
        self._in_flight -= 1

    def _is_burst(self, now: float) -> bool:
        burst = self._site.burst
        assert burst is not None  # noqa: S101 - asked for by the caller
        while self._starts and self._starts[0] <= now - 1:
            self._starts.popleft()
        self._starts.append(now)
        return bool(
            (burst.per_second and len(self._starts) > burst.per_second)
            or (burst.at_once and self._in_flight > burst.at_once)
        )

    # ---- what a path means

    def _answer(self, path: str) -> tuple[Answer, str]:
        """The answer, and the word for it in the log."""
        bare, _, query = path.partition("?")
        area, _, rest = bare.lstrip("/").partition("/")
        try:
            if area == "as":
                return self._as_asked(path, rest, query)
            if area in TRAPS:
                return Answer(status=200, data=response(200, self._made.trap(bare, pages.trap_links(path)))), area
            if area in {"loop", "hop"}:
                return hop(bare), area
            if area == "hopped":
                return self._decided(FATES["ok"], self._asked(int(rest), path))
            if bare == "/login":
                return Answer(status=200, data=response(200, pages.login())), "login"
            if bare == "/robots.txt":
                status = self._site.robots_status
                text = pages.robots(self._site) if status == 200 else ""
                return Answer(status=status, data=response(status, text, content_type="text/plain")), "robots"
            if (page := self._page(area, rest)) is not None:
                self._seen.add(bare)
                return self._decided(self._outage or self._site.plan(page), self._asked(page, path))
        except (ValueError, IndexError):
            pass  # a path that only looks like one of ours
        return Answer(status=404, data=response(404)), "unknown"

    def _page(self, area: str, rest: str) -> int | None:
        """The page that a path is, if it is one of this host."""
        if not area:
            return self._number
        if area not in {"p", "private"} or not rest.isascii() or not rest.isdigit():
            return None
        page = int(rest)
        is_ours = page < self._site.pages and self._site.path(page) == f"/{area}/{rest}"
        return page if is_ours and self._site.host_of(page) == self._number else None

    def _as_asked(self, path: str, rest: str, query: str) -> tuple[Answer, str]:
        """`/as/<kind>/<anything>?delay_s=…`: a page with the fate that its path names."""
        fate = fate_of(rest.partition("/")[0], dict(parse_qsl(query)))
        return self._decided(fate, self._asked(self._number, path))

    def _asked(self, page: int, path: str) -> Asked:
        return Asked(page=page, path=path, host=self._number, port=self._port)

    # ---- what a fate means now

    def _decided(self, fate: Fate, asked: Asked) -> tuple[Answer, str]:
        if fate.times or (self._outage is not None and fate.status in {429, 503}):
            found = self._refusal(fate, asked.path)
            if found is not None:
                return found
        answer = answer_of(fate, asked, self._made)
        if self._site.latency_s:
            answer = replace(answer, delay_s=answer.delay_s + self._site.latency_s)
        if fate.kind == "ok" and self._outage is None:
            self._plain[asked.path] = answer
        return answer, fate.kind

    def _refusal(self, fate: Fate, path: str) -> tuple[Answer, str] | None:
        """The refusal that a page has left, if it has one; None when it is fine now."""
        state = self._refused.setdefault(path, _Refusals())
        now, is_date = self._clock.monotonic(), fate.kind == "limited-date"
        if now < state.until:
            answer = refusal(fate.status, state.until - now, self._clock, is_date=is_date)
            state.until = answer.until
            return answer, "early"
        if state.count >= fate.times and self._outage is None:
            return None
        answer = refusal(fate.status, fate.retry_after_s, self._clock, is_date=is_date)
        state.count += 1
        state.until = answer.until
        return answer, fate.kind


def fate_of(kind: str, settings: Mapping[str, str]) -> Fate:
    """The fate of that name, with what a query says of it; ValueError where there is none such."""
    for name, fate in FATES.items():
        if name == kind:
            return replace(
                fate, **{name: _SETTABLE[name](value) for name, value in settings.items() if name in _SETTABLE}
            )
    raise ValueError(f"no fate is called {kind!r}")


def _count(text: str) -> int:
    return bounds.whole("a setting in a path", int(text), low=0)


def _length(text: str) -> float:
    return bounds.length("a setting in a path", float(text))


_SETTABLE: Final[Mapping[str, Callable[[str], float]]] = {
    "status": _count,
    "times": _count,
    "retry_after_s": _count,
    "delay_s": _length,
    "size": _count,
    "hops": _count,
    "to": _count,
}
