"""Kept pages, parsed again: which dead letters a mended handler can do, without fetching anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from holdfast.crawl.crawler import Crawler

MOST: Final = 1_000
"""So many letters are tried, unless told otherwise."""


class StillFailing(Struct, frozen=True):
    """A letter whose kept page the handlers still cannot do."""

    id: str
    url: str
    error: str
    """What was raised, in one line."""


class Tried(Struct, frozen=True, kw_only=True):
    """What the handlers make of kept pages."""

    passing: tuple[str, ...] = ()
    """Ids of the letters that they can do now."""
    items: int = 0
    """Items that these would give."""
    failing: tuple[StillFailing, ...] = ()
    missing: tuple[str, ...] = ()
    """Ids of letters without a kept page: a retry fetches them."""
    cut: tuple[str, ...] = ()
    """Ids of letters whose page was too large to be kept whole, so that nothing of it may be stored: the same."""
    has_more: bool = False
    """Whether the group has letters beyond the limit, which were not tried."""
    sent: int = 0
    """How many went back to the queue; `try_stored` sends none."""

    @property
    def total(self) -> int:
        """Letters that were looked at."""
        return len(self.passing) + len(self.failing) + len(self.missing) + len(self.cut)


async def try_stored(crawler: Crawler, which: str | Sequence[str], *, limit: int = MOST) -> Tried:
    """Run the crawler's handlers on the kept pages of a group's letters; nothing is fetched, stored or written.

    which: the fingerprint of a group, or the ids of letters. What is no dead letter of the crawl is not looked at.
    limit: the newest letters of the group, at most so many [1,000].
    """
    raise NotImplementedError


async def replay_stored(crawler: Crawler, which: str | Sequence[str], *, limit: int = MOST) -> Tried:
    """The same; and those that pass go back to the queue, to be completed from the kept page by the crawl's next run.

    Their items get into its output once, as with any page. The others stay as they are. Killed halfway, it may be
    called again: what was sent is no dead letter any more. A letter that fails all the same is in the inbox again,
    and is fetched anew by an ordinary retry.
    """
    raise NotImplementedError
