"""Which of the links that are found belong to a crawl."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from holdfast.crawl.patterns import Pattern, any_of
from holdfast.crawl.urls import canonical, domain_of
from holdfast.errors import ConfigError
from holdfast.policy import bounds

__all__ = ["LONGEST_PATH", "MOST_PARAMETERS", "MOST_REPEATS", "MOST_SEGMENTS", "Pattern", "Reason", "Scope"]

Reason = Literal["", "other domain", "denied", "too deep", "too long", "looks like a trap"]
"""Why a link is not followed; "" where it is."""

LONGEST_PATH: Final = 1_500
"""Path and query of a link together may have so many characters."""
MOST_SEGMENTS: Final = 50
MOST_PARAMETERS: Final = 30
MOST_REPEATS: Final = 3
"""So often may one segment be in a path; links that lead ever deeper repeat theirs."""
_FEWEST_SLASHES_OF_TRAPS: Final = 2 + MOST_REPEATS + 1  # two of them are the scheme's


class Scope:
    """The rules of one crawl: a value, which never changes.

    `seeds`: where it begins. Without `allow`, all of their domains is wanted, over http and https alike, and nothing of
    others. `allow`: patterns. One of a host alone (`*.example.org`) adds domains. Once one has a path, only what
    matches such a one is wanted: `/shop/**` in the crawl's domains, `https://example.org/shop/**` where it says.
    `deny`: patterns of what is not wanted, whatever else says so. `max_depth`: how many links a page may be away from a
    seed; None: any number.
    """

    __slots__ = (
        "_allow",
        "_deny",
        "_is_added",
        "_is_allowed",
        "_is_allowed_here",
        "_is_denied",
        "_is_narrowed",
        "domains",
        "max_depth",
    )

    def __init__(
        self,
        *,
        seeds: str | Iterable[str] = (),
        allow: str | Iterable[str | Pattern] = (),
        deny: str | Iterable[str | Pattern] = (),
        max_depth: int | None = None,
    ) -> None:
        self._allow = _patterns("allow", allow)
        self._deny = _patterns("deny", deny)
        self.domains = frozenset(_domain("seeds", seed) for seed in ([seeds] if isinstance(seeds, str) else seeds))
        self.max_depth = None if max_depth is None else bounds.whole("max_depth", max_depth, low=0)
        self._is_denied = any_of(self._deny)
        self._is_added = any_of(one for one in self._allow if not one.has_path)
        self._is_allowed = any_of(one for one in self._allow if one.has_path and one.has_host)
        self._is_allowed_here = any_of(one for one in self._allow if not one.has_host)
        self._is_narrowed = any(one.has_path for one in self._allow)

    def refuses(self, url: str, depth: int = 0) -> Reason:
        """Why this canonical URL, so many links away from a seed, is not wanted; "" where it is."""
        if self.max_depth is not None and depth > self.max_depth:
            return "too deep"
        if len(url) > LONGEST_PATH and len(url) - url.index("/", len("https://")) > LONGEST_PATH:
            return "too long"
        domain = url.split("/", 3)[2]  # domain_of, without the call: this is asked for every link
        if (self._is_narrowed or domain not in self.domains) and (refusal := self._refuses_place(url, domain)):
            return refusal
        if self._is_denied is not None and self._is_denied(url):
            return "denied"
        if (url.count("/") >= _FEWEST_SLASHES_OF_TRAPS or url.count("&") >= MOST_PARAMETERS) and _is_trap(url):
            return "looks like a trap"
        return ""

    def _refuses_place(self, url: str, domain: str) -> Reason:
        is_here = domain in self.domains or (self._is_added is not None and bool(self._is_added(url)))
        if not self._is_narrowed:
            return "" if is_here else "other domain"
        if is_here and self._is_allowed_here is not None and self._is_allowed_here(url):
            return ""
        if self._is_allowed is not None and self._is_allowed(url):
            return ""
        return "denied" if is_here else "other domain"

    def with_domain(self, domain: str) -> Scope:
        """The same rules with one domain more: such as the one that a seed redirects to."""
        return self.with_domains((domain,))

    def with_domains(self, domains: Iterable[str]) -> Scope:
        """The same rules with these domains too."""
        added = set(domains) - self.domains
        if not added:
            return self
        for domain in added:
            if domain not in {_domain("domain", f"{scheme}://{domain}/") for scheme in ("http", "https")}:
                raise ConfigError(f"domain={domain!r}: must be the domain of a canonical URL")
        widened = Scope(allow=self._allow, deny=self._deny, max_depth=self.max_depth)
        widened.domains = self.domains | added
        return widened


def _patterns(field: str, texts: str | Iterable[str | Pattern]) -> tuple[Pattern, ...]:
    given = texts if isinstance(texts, Iterable) and not isinstance(texts, str) else [texts]
    return tuple(one if isinstance(one, Pattern) else Pattern(one, field=field) for one in given)


def _domain(field: str, url: str) -> str:
    known = canonical(url) if isinstance(url, str) else None
    if known is None:
        raise ConfigError(f"{field}={url!r}: must be an http or https URL, such as https://example.org/")
    return domain_of(known)


def _is_trap(url: str) -> bool:
    before, _, query = url.partition("?")
    if query.count("&") >= MOST_PARAMETERS:
        return True
    segments = before.split("/")[3:]
    if not segments[-1]:
        segments.pop()
    if len(segments) > MOST_SEGMENTS:
        return True
    distinct = set(segments)
    if len(segments) - len(distinct) < MOST_REPEATS:
        return False  # neither has room: most paths end here
    return any(segments.count(one) > MOST_REPEATS for one in distinct) or _goes_round(segments)


def _goes_round(segments: list[str]) -> bool:
    """Whether some segments in a row come three times in a row: a/b/a/b/a/b."""
    for period in range(2, len(segments) // 3 + 1):
        run = 0
        for segment, later in zip(segments, segments[period:], strict=False):
            run = run + 1 if segment == later else 0
            if run == 2 * period:
                return True
    return False
