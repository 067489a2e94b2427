"""What a page of the site may do to those who ask for it, and what must come of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

from msgspec import Struct

Kind = Literal[
    "ok",
    "not-found",
    "gone",
    "forbidden",
    "error",
    "unavailable",
    "unavailable-after",
    "limited-seconds",
    "limited-date",
    "limited-silent",
    "slow",
    "silent",
    "reset",
    "truncated",
    "truncated-chunked",
    "endless",
    "gzip",
    "gzip-bomb",
    "wrong-charset",
    "huge",
    "redirect",
    "redirect-loop",
    "redirect-chain",
    "redirect-away",
    "calendar",
    "path-trap",
    "session-trap",
    "changed",
    "other-type",
    "challenge",
    "login",
    "disallowed",
]
"""The names of all fates, as `faults` and `/as/<kind>/…` take them."""

Outcome = Literal["page", "failure", "structural", "disallowed"]
"""What must come of a page: its item, in the end; a failed fetch; a page that is not what it was; no request at all."""


class Fate(Struct, frozen=True, kw_only=True):
    """What becomes of those who ask for a page; `SiteProcess.url_as` may set the numbers."""

    kind: Kind
    outcome: Outcome = "page"
    status: int = 200
    """What is answered, always or at first."""
    times: int = 0
    """So many requests are refused before it is fine; those that come before a Retry-After is over do not count."""
    retry_after_s: int = 0
    """What a refusal says."""
    delay_s: float = 0.0
    """The answer comes so much later; for "endless", the pause between its parts."""
    size: int = 0
    """Bytes of a huge page, of what a bomb unpacks to, of each part of an endless page."""
    hops: int = 0
    """How many redirects a chain has."""
    to: int = 0
    """The page that a redirect leads to."""


_MB: Final = 1_000_000

FATES: Final[Mapping[Kind, Fate]] = {
    fate.kind: fate
    for fate in (
        Fate(kind="ok"),
        Fate(kind="not-found", outcome="failure", status=404),
        Fate(kind="gone", outcome="failure", status=410),
        Fate(kind="forbidden", outcome="failure", status=403),
        Fate(kind="error", outcome="failure", status=500),
        Fate(kind="unavailable", status=503, times=2),
        Fate(kind="unavailable-after", status=503, times=1, retry_after_s=1),
        Fate(kind="limited-seconds", status=429, times=1, retry_after_s=1),
        Fate(kind="limited-date", status=429, times=1, retry_after_s=1),
        Fate(kind="limited-silent", status=429, times=1),
        Fate(kind="slow", delay_s=0.5),
        Fate(kind="silent", outcome="failure"),
        Fate(kind="reset", outcome="failure"),
        Fate(kind="truncated", outcome="failure"),
        Fate(kind="truncated-chunked", outcome="failure"),
        Fate(kind="endless", outcome="failure", delay_s=0.01, size=65_536),
        Fate(kind="gzip"),
        Fate(kind="gzip-bomb", outcome="failure", size=64 * _MB),
        Fate(kind="wrong-charset"),
        Fate(kind="huge", outcome="failure", size=32 * _MB),
        Fate(kind="redirect", status=302),
        Fate(kind="redirect-loop", outcome="failure", status=302),
        Fate(kind="redirect-chain", outcome="failure", status=302, hops=40),
        Fate(kind="redirect-away", outcome="failure", status=302),
        Fate(kind="calendar"),
        Fate(kind="path-trap"),
        Fate(kind="session-trap"),
        Fate(kind="changed", outcome="structural"),
        Fate(kind="other-type", outcome="structural"),
        Fate(kind="challenge", outcome="structural", status=403),
        Fate(kind="login", outcome="structural", status=302),
        Fate(kind="disallowed", outcome="disallowed"),
    )
}
"""Each kind with the values that it has where nothing else is said."""

if missing := set(get_args(Kind)) - FATES.keys():
    raise AssertionError(f"no fate for {missing}")

TRAPS: Final = frozenset[Kind]({"calendar", "path-trap", "session-trap"})
"""Pages that are fine themselves, and lead to ever more."""

SHOWS_ITS_LINKS: Final = frozenset[Kind](
    {
        "ok",
        "unavailable",
        "unavailable-after",
        "limited-seconds",
        "limited-date",
        "limited-silent",
        "slow",
        "gzip",
        "wrong-charset",
        *TRAPS,
    }
)
"""Pages that others may be found through: all others are leaves of the tree, so that nothing hangs on them."""
