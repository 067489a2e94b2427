"""A site as a pure function of its settings: which pages there are, how they are linked, what becomes of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.testing.site.fates import FATES, SHOWS_ITS_LINKS, Fate, Kind

REDIRECTS: Final = (301, 302, 303, 307, 308)
_BRANCHES: Final = 6
"""How many pages hang on one that leads on."""
_NAV: Final = 4
_TRIES: Final = 32
_MASK: Final = (1 << 64) - 1
_FATE, _WAIT, _LINKS, _TARGET = range(4)
"""What chance is asked for: one question's answer says nothing about another's."""


class Burst(Struct, frozen=True, kw_only=True):
    """More than so many requests to one host are refused with 429 and a Retry-After."""

    per_second: int = 0
    """Starts within any second; 0 is no limit."""
    at_once: int = 0
    """Requests under way at the same time; 0 is no limit."""
    retry_after_s: int = 1

    def __post_init__(self) -> None:
        for field in ("per_second", "at_once", "retry_after_s"):
            bounds.whole(f"burst.{field}", getattr(self, field), low=0)


class Site(Struct, frozen=True, kw_only=True, dict=True):
    """Linked pages, numbered from 0, that can all be found from page 0; the same settings make the same site.

    Page n is on host `n % hosts`. The pages below `hosts` are the hosts' home pages and always fine. `faults` gives
    each kind of fate its share of the pages, such as `{"not-found": 0.02, "limited-date": 0.1}`; `host_faults` does
    so for single hosts, by number, instead.
    """

    pages: int = 5000
    seed: int = 1
    hosts: int = 1
    faults: Mapping[Kind, float] = {}
    host_faults: Mapping[int, Mapping[Kind, float]] = {}
    links: int = 8
    """Links to pages anywhere, besides those of the tree and the four that every page has."""
    latency_s: float = 0.0
    """Every answer comes so much later, which makes it visible how many are under way at once."""
    retry_after_s: tuple[int, int] = (1, 2)
    """Each page that says Retry-After has one within these bounds, whole seconds."""
    slow_s: float = 0.5
    """How long slow pages take."""
    burst: Burst | None = None
    crawl_delay_s: float = 0.0
    """What robots.txt asks for; 0 says nothing."""
    robots_status: int = 200
    """What is answered to robots.txt; it disallows `/private/`, where the pages with the fate "disallowed" are."""

    def __post_init__(self) -> None:
        bounds.whole("pages", self.pages, low=1)
        bounds.whole("hosts", self.hosts, low=1)
        bounds.whole("links", self.links, low=0)
        for field in ("latency_s", "slow_s", "crawl_delay_s"):
            bounds.length(field, getattr(self, field))
        if self.hosts > self.pages:
            raise ConfigError(f"hosts={self.hosts}: must be at most the number of pages, {self.pages}")
        low, high = self.retry_after_s
        if not 0 <= low <= high:
            raise ConfigError(f"retry_after_s={self.retry_after_s!r}: must be two whole numbers, the larger one last")
        for host, faults in ((-1, self.faults), *self.host_faults.items()):
            _check(faults, "faults" if host < 0 else f"host_faults[{host}]")
            if host >= self.hosts:
                raise ConfigError(f"host_faults[{host}]: there are {self.hosts} hosts, numbered from 0")

    # ---- one page

    def host_of(self, page: int) -> int:
        """The number of the host that a page is on."""
        return page % self.hosts

    def path(self, page: int) -> str:
        """Where a page is on its host."""
        if page < self.hosts:
            return "/"
        return f"/private/{page}" if self.plan(page).kind == "disallowed" else f"/p/{page}"

    def plan(self, page: int) -> Fate:
        """What becomes of those who ask for a page."""
        if not 0 <= page < self.pages:
            raise IndexError(f"page {page}: there are {self.pages}, numbered from 0")
        faults = self._faults_of(page)
        kind = self._kind(page, faults) if faults and page >= self.hosts else "ok"
        fate = FATES[kind]
        if fate.retry_after_s:
            low, high = self.retry_after_s
            return replace(fate, retry_after_s=low + self._chance(page, _WAIT) % (high - low + 1))
        if kind == "slow":
            return replace(fate, delay_s=self.slow_s)
        if kind == "redirect":
            status = REDIRECTS[self._chance(page, _WAIT) % len(REDIRECTS)]
            return replace(fate, status=status, to=self._target(page))
        return fate

    def item(self, page: int) -> dict[str, str]:
        """What a parser must find on a page whose outcome is its item, by CSS class; `name` is its h1."""
        if (fate := self.plan(page)).kind == "redirect":
            return self.item(fate.to)
        name = "Crème brûlée" if fate.kind == "wrong-charset" else "Product"
        number = self._chance(page, _TARGET)
        return {
            "name": f"{name} {page}",
            "price": f"{number % 900 + 100}.{number >> 20 & 63:02d}",
            "sku": f"SKU-{number >> 32:08X}",
        }

    def links_of(self, page: int) -> list[int]:
        """The pages that one leads to, some of them more than once."""
        found = list(range(min(_NAV, self.pages)))
        if (rank := self._rank(page)) is not None:
            found += self._live[_BRANCHES * rank + 1 : _BRANCHES * (rank + 1) + 1]
            found += self._leaves[rank :: len(self._live)]
        chance = self._chance(page, _LINKS)
        for _ in range(self.links):
            found.append(chance % self.pages)
            chance = mixed(chance)
        return found

    # ---- all pages

    def pages_with(self, kind: Kind) -> list[int]:
        """The pages with that fate."""
        return [page for page in range(self.pages) if self.plan(page).kind == kind]

    def items(self) -> dict[int, dict[str, str]]:
        """The items of all pages whose outcome is an item."""
        return {page: self.item(page) for page in range(self.pages) if self.plan(page).outcome == "page"}

    @cached_property
    def _live(self) -> Sequence[int]:
        """The pages that others hang on, in the order of the tree."""
        if not self.faults and not self.host_faults:
            return range(self.pages)
        return [page for page in range(self.pages) if self.plan(page).kind in SHOWS_ITS_LINKS]

    @cached_property
    def _ranks(self) -> dict[int, int]:
        return {page: rank for rank, page in enumerate(self._live)}

    @cached_property
    def _leaves(self) -> list[int]:
        """The others: each hangs on one that leads on."""
        return [] if isinstance(self._live, range) else sorted(set(range(self.pages)).difference(self._live))

    def _rank(self, page: int) -> int | None:
        return page if isinstance(self._live, range) else self._ranks.get(page)

    def _faults_of(self, page: int) -> Mapping[Kind, float]:
        return self.host_faults.get(self.host_of(page), self.faults)

    def _kind(self, page: int, faults: Mapping[Kind, float]) -> Kind:
        left = self._chance(page, _FATE) / (_MASK + 1)
        for kind, share in faults.items():
            left -= share
            if left < 0:
                return kind
        return "ok"

    def _target(self, page: int) -> int:
        """A page of the same host that is plainly fine; its home page, where no other is soon found."""
        host, faults = self.host_of(page), self._faults_of(page)
        chance = self._chance(page, _TARGET)
        for _ in range(_TRIES):
            chance = mixed(chance)
            other = chance % self.pages
            if other >= self.hosts and self.host_of(other) == host and self._kind(other, faults) == "ok":
                return other
        return host

    def _chance(self, page: int, question: int) -> int:
        """64 bits that depend on the seed, the page and the question, and on nothing else."""
        return mixed(mixed(self.seed & _MASK) ^ (page << 3 | question))


def mixed(number: int) -> int:
    """64 bits that look like chance, the same for the same number (the finish of SplitMix64)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _MASK
    return number ^ number >> 31


def _check(faults: Mapping[Kind, float], field: str) -> None:
    for kind, share in faults.items():
        if kind not in FATES:
            raise ConfigError(f"{field}: no fate is called {kind!r}; there are {', '.join(FATES)}")
        bounds.number(f"{field}[{kind}]", share, high=1.0)
    if (total := sum(faults.values())) > 1 + 1e-9:
        raise ConfigError(f"{field}: the shares make {total:g}, more than all pages")
