"""Pages that were given up, as a crawl leaves them in its store."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.crawl.fetched import Fetched
from holdfast.crawl.frontier import Found, new_page
from holdfast.crawl.kept import pack
from holdfast.crawl.urls import domain_of
from holdfast.errors import BadStatus, PageChanged
from holdfast.policy.classify import classify
from holdfast.ports import Note, Store
from holdfast.testing.store_suite import steps
from holdfast.types import Change

CRAWL = "shop"


def bad_status(url: str, status: int = 404) -> BadStatus:
    return BadStatus(f"{url}: answered {status}", url=url, cause=f"{domain_of(url)}: {status}", status=status)


def changed(url: str, selector: str = ".price") -> PageChanged:
    return PageChanged(f"{url}: nothing matches {selector}", url=url, cause=f"{domain_of(url)}: no {selector}")


async def give_up(
    store: Store,
    url: str,
    error: Exception,
    *,
    crawl: str = CRAWL,
    attempts: int = 1,
    kept: Fetched | dict[str, Any] | None = None,
    **found: Any,
) -> str:
    """The page is a dead letter after so many attempts, all with this error; its id."""
    job = new_page(crawl, Found(url, **found))
    await store.enqueue([job])
    failure = classify(error)
    for number in range(1, attempts + 1):
        (delivery,) = await steps.claim(store, queues=(job.queue,), limit=1)
        assert delivery.id == job.id
        if kept is not None:
            page = pack(kept, 1.0) if isinstance(kept, Fetched) else kept
            note = Note(id=job.id, token=delivery.token, checkpoint=msgspec.json.encode(page))
            assert await store.note(note)
        change = Change.RETRY if number < attempts else Change.BURY
        attempt = steps.failed_attempt(
            delivery,
            outcome=change,
            failure_type=failure.type,
            severity=failure.severity,
            error_name=failure.error_name,
            message=failure.message,
            fingerprint=failure.fingerprint,
        )
        assert await steps.settle(store, delivery, change, attempt=attempt)
    return job.id
