"""The way of URLs into the store, where each is a job: a page of its crawl, once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from holdfast.clock import chance
from holdfast.crawl.urls import domain_of, page_id
from holdfast.ports import Clock, Enqueued, Store
from holdfast.runtime.crawl_origins import PagePayload, encode_page, queue_of
from holdfast.runtime.outage import insist
from holdfast.runtime.page_gates import gates_of
from holdfast.types import NewJob

SEEN: Final = 100_000
"""So many URLs are remembered as known, so that most links need no look into the store; about 20 MB."""

_BATCH: Final = 500
_PATIENCE_S: Final = 60.0


class Found(Struct, frozen=True):
    """A URL to be fetched, and what is known of it."""

    url: str
    """Canonical, and in the scope of the crawl."""
    depth: int = 0
    referrer: str = ""
    priority: int = 0
    data: Mapping[str, Any] = {}
    redirects: tuple[str, ...] = ()


def new_page(crawl: str, found: Found) -> NewJob:
    """The job of a page; its id is made of the crawl and the URL, so that the same page is one job."""
    domain = domain_of(found.url)
    queue = queue_of(crawl)
    payload = PagePayload(
        url=found.url,
        depth=found.depth,
        referrer=found.referrer,
        data=found.data,
        priority=found.priority,
        redirects=found.redirects,
    )
    return NewJob(
        id=page_id(crawl, found.url),
        task=queue,
        queue=queue,
        payload=encode_page(payload),
        priority=found.priority,
        project=domain,
        gates=gates_of(crawl, domain),
    )


class _Batch:
    """Pages that go to the store in one call. Whoever comes first sends it; if it fails, or is cancelled, the next."""

    def __init__(self) -> None:
        self.jobs: list[NewJob] = []
        self.answers: Sequence[Enqueued] | None = None
        self.sending = asyncio.Lock()


class Frontier:
    """URLs of one crawl on their way into the store. Used from one event loop."""

    def __init__(self, store: Store, crawl: str, clock: Clock, *, most_pages: int | None = None) -> None:
        self._store = store
        self._crawl = crawl
        self._clock = clock
        self._most = most_pages
        self._counting = asyncio.Lock()
        self._sending = asyncio.Lock()
        self._next = _Batch()
        self._seen: dict[str, None] = {}
        self.known = 0
        """Pages of the crawl that are in the store, as far as this process knows."""
        self.found = 0
        """URLs that were new here."""
        self.left_out = 0
        """URLs that were not taken, as the crawl has as many pages as it may."""

    def is_new(self, url: str) -> bool:
        """Whether it is worth a look into the store: False, where it is known to be there."""
        return url not in self._seen

    async def add(self, found: Iterable[Found]) -> int:
        """Put the new ones of these into the store, and say how many there were; durable on return.

        Sent twice, it changes nothing the second time. A store that is away is waited for, a minute at most.
        """
        wanted = [one for one in found if one.url not in self._seen]
        new = start = 0
        while start < len(wanted):
            if self._most is None:
                part = wanted[start : start + _BATCH]
                new += await self._send(part)
            else:
                async with self._counting:  # or several at a time would each take the last places
                    part = wanted[start : start + max(0, min(_BATCH, self._most - self.known))]
                    if not part:
                        self.left_out += len(wanted) - start
                        break
                    new += await self._send(part)
            start += len(part)
        return new

    async def _send(self, part: Sequence[Found]) -> int:
        batch = self._next
        at = len(batch.jobs)
        batch.jobs += [new_page(self._crawl, one) for one in part]
        answers = (await self._sent(batch))[at : at + len(part)]
        new = sum(answer.is_new for answer in answers)
        self.known += new
        self.found += new
        self._remember(part)
        return new

    async def _sent(self, batch: _Batch) -> Sequence[Enqueued]:
        """The store's answer to a batch; it goes when the one before it is answered, and until then others join it."""
        async with batch.sending:
            if batch.answers is None:
                async with self._sending:
                    if batch is self._next:
                        self._next = _Batch()
                    jobs = batch.jobs
                    batch.answers = await insist(lambda: self._store.enqueue(jobs), _PATIENCE_S, self._clock, chance)
        return batch.answers

    def _remember(self, found: Iterable[Found]) -> None:
        seen = self._seen
        for one in found:
            seen[one.url] = None
        while len(seen) > SEEN:
            del seen[next(iter(seen))]
