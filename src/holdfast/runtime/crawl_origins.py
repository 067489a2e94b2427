"""Which records of a store are pages of a crawl, what their payload says, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from holdfast.runtime.stored_origin import stored_origin
from holdfast.types import JobRecord

QUEUE: Final = "crawl:"
"""The queue of a crawl's pages, and their task, is this and its name."""
GATE: Final = "crawl"
"""The gate of every page: no worker but a crawl's own may claim it."""


class PagePayload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the payload of a page says; its URL is canonical."""

    url: str
    depth: int = 0
    """How many links away from a seed it was found first."""
    referrer: str = ""
    """The page that it was found on; empty for a seed."""
    data: Mapping[str, Any] = {}
    """What its link was given along."""
    priority: int = 0
    redirects: tuple[str, ...] = ()
    """The pages that have led here, one redirect after the other."""
    stored: bool = False
    """Parse the page that is kept with its dead letter, and do not fetch it."""
    stored_attempt: int = 0
    """With `stored`: only this attempt does so, and what is replayed later is fetched; 0 is every attempt."""


class PageOrigin(Struct, frozen=True):
    """Which page a letter is."""

    kind: Literal["page"]
    crawl: str
    url: str
    domain: str
    depth: int
    referrer: str = ""


encode_page: Final = msgspec.json.Encoder().encode
decode_page: Final = msgspec.json.Decoder(PagePayload).decode


def queue_of(crawl: str) -> str:
    """The queue, and the task, of a crawl's pages."""
    return QUEUE + crawl


def page_origin(record: JobRecord) -> PageOrigin | None:
    """Which page this record is; None where it is none."""
    page = stored_origin(record, QUEUE, decode_page)
    if page is None:
        return None
    crawl = record.queue.removeprefix(QUEUE)
    return PageOrigin("page", crawl, page.url, record.project, page.depth, page.referrer)
