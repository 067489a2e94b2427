"""Kept pages, parsed again: which dead letters a mended handler can do, without fetching anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, field

from holdfast.clock import new_id
from holdfast.crawl.fetch import refuse_status
from holdfast.crawl.kept import unpack
from holdfast.crawl.page import Page
from holdfast.errors import ConfigError, Invalid
from holdfast.policy import bounds
from holdfast.ports import Operation
from holdfast.redact import error_in_words
from holdfast.runtime.crawl_origins import decode_page, page_origin, queue_of
from holdfast.runtime.inbox import Inbox
from holdfast.runtime.payload import encode_result, merged
from holdfast.types import Change, JobRecord, JobState

if TYPE_CHECKING:
    from holdfast.crawl.crawler import Crawler

MOST: Final = 1_000
"""So many letters are tried, unless told otherwise."""

_PAGE: Final = 500
_FEW: Final = 20
"""Letters that are read in one go, each with its page."""
_PARSE_S: Final = 60.0
"""A handler that waits for longer has failed."""


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
    """Items that these give."""
    failing: tuple[StillFailing, ...] = ()
    missing: tuple[str, ...] = ()
    """Ids of letters without a kept page: a retry fetches them."""
    cut: tuple[str, ...] = ()
    """Ids of letters whose page was too large to be kept whole: half of it gives half its items. A retry fetches it."""
    gone: tuple[str, ...] = ()
    """Ids of what is no dead letter of this crawl, or none any more."""
    has_more: bool = False
    """Whether there are letters beyond the limit, which were not tried."""
    sent: int = 0
    """How many went back to the queue; `try_stored` sends none."""

    @property
    def total(self) -> int:
        """Letters that were looked at."""
        return len(self.passing) + len(self.failing) + len(self.missing) + len(self.cut)


async def try_stored(crawler: Crawler, which: str | Sequence[str], *, limit: int = MOST) -> Tried:
    """Run the crawler's handlers on the kept pages of a group's letters; nothing is fetched, stored or written.

    which: the fingerprint of a group, or the ids of letters. limit: so many of them at most, the newest [1,000].
    """
    return await _try(crawler, which, limit, is_sent=False)


async def replay_stored(crawler: Crawler, which: str | Sequence[str], *, limit: int = MOST) -> Tried:
    """The same; and those that pass go back to the queue, to be completed from the kept page by the crawl's next run.

    Their items get into its output once, as with any page. The others stay as they are. Killed halfway, it may be
    called again: what was sent is no dead letter any more. A letter that fails all the same is in the inbox again,
    and an ordinary retry fetches it anew.
    """
    return await _try(crawler, which, limit, is_sent=True)


class _Sorted(Struct):
    """Letters by what came of them, while they are tried."""

    passing: list[str] = field(default_factory=list)
    failing: list[StillFailing] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    items: int = 0


async def _try(crawler: Crawler, which: str | Sequence[str], limit: int, *, is_sent: bool) -> Tried:
    most = bounds.whole("limit", limit, low=1)
    store, replay = crawler.app.store, new_id()
    ids = await _ids(crawler, which, most + 1)
    tried, sent = _Sorted(), 0
    async for letters in _letters(crawler, ids[:most], tried):
        payloads: dict[str, bytes] = {}
        for letter in letters:
            if await _passes(crawler, letter, tried):
                payloads[letter.id] = _stored(letter)
        if is_sent and payloads:
            operation = Operation(change=Change.REPLAY, ids=list(payloads), payloads=payloads, replay=replay)
            sent += sum(one.is_done for one in await store.change(operation))
    return Tried(
        passing=tuple(tried.passing),
        items=tried.items,
        failing=tuple(tried.failing),
        missing=tuple(tried.missing),
        cut=tuple(tried.cut),
        gone=tuple(tried.gone),
        has_more=len(ids) > most,
        sent=sent,
    )


async def _ids(crawler: Crawler, which: str | Sequence[str], most: int) -> list[str]:
    """The letters that are meant, up to so many."""
    if not which:
        raise ConfigError(f"which={which!r}: must be the fingerprint of a group, or ids of letters")
    if not isinstance(which, str):
        return list(dict.fromkeys(which))[:most]
    inbox, task = Inbox(crawler.app.store), queue_of(crawler.name)
    ids: list[str] = []
    cursor = ""
    while True:
        page = await inbox.list(limit=min(_PAGE, most - len(ids)), cursor=cursor, task=task, group=which)
        ids += [one.id for one in page.items]
        cursor = page.cursor
        if not cursor or len(ids) >= most:
            return ids


async def _letters(crawler: Crawler, ids: Sequence[str], tried: _Sorted) -> AsyncIterator[list[JobRecord]]:
    """The letters of these ids with what is kept, a few at a time."""
    task = queue_of(crawler.name)
    for start in range(0, len(ids), _FEW):
        some = ids[start : start + _FEW]
        letters = []
        for id, record in zip(some, await crawler.app.store.get(some), strict=True):  # noqa: A001
            if record is None or record.queue != task or record.state is not JobState.DEAD_LETTER:
                tried.gone.append(id)
            else:
                letters.append(record)
        yield letters


async def _passes(crawler: Crawler, letter: JobRecord, tried: _Sorted) -> bool:
    """Whether the handlers can do its kept page, exactly as they would in a run; it is noted which way it went."""
    checkpoint = None if letter.notes is None else letter.notes.checkpoint
    if checkpoint is None:
        tried.missing.append(letter.id)
        return False
    try:
        async with crawler.app.clock.timeout(_PARSE_S):
            kept = _kept(checkpoint)
            if kept.get("is_cut"):
                tried.cut.append(letter.id)
                return False
            fetched = unpack(kept)
            page = Page(fetched, payload=decode_page(letter.payload), attempt=letter.attempt + 1)
            parsed = await crawler.parse(page)
            refuse_status(fetched)
            encode_result(parsed.items)
    except Exception as error:  # whatever a user's handler raises is why it does not pass
        origin = page_origin(letter)
        url = "" if origin is None else origin.url
        tried.failing.append(StillFailing(letter.id, url, error_in_words(error)))
        return False
    tried.passing.append(letter.id)
    tried.items += len(parsed.items)
    return True


def _kept(checkpoint: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(checkpoint, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the kept page cannot be read: {error}") from None


def _stored(letter: JobRecord) -> bytes:
    """Its payload, by which its next attempt, and none after that, takes the kept page."""
    return merged(letter.payload, msgspec.json.encode({"stored": True, "stored_attempt": letter.attempt + 1}))
