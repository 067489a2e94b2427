"""The handling of a crawl's pages without a worker, and sites that answer when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holdfast.clock import new_id
from holdfast.crawl.book import Book
from holdfast.crawl.domains import Domains
from holdfast.crawl.fetched import Fetched
from holdfast.crawl.frontier import Frontier
from holdfast.crawl.handling import Handling
from holdfast.crawl.pace import PaceSettings
from holdfast.crawl.page import Page
from holdfast.crawl.rules import Parsed
from holdfast.crawl.scope import Scope
from holdfast.ports import Clock, Delivery
from holdfast.runtime.crawl_origins import PagePayload, encode_page
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock

Answer = Callable[[str], Awaitable[Fetched]]


def answered(url: str, status: int = 200, body: bytes = b"<h1>x</h1>", **headers: str) -> Fetched:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Fetched(
        url=url,
        final_url=url,
        status=status,
        headers=named,
        body=body,
        elapsed_s=0.0,
        first_byte_s=0.0,
        fetched_at=0.0,
        content_type="text/html",
        charset="",
    )


async def fine(url: str) -> Fetched:
    return answered(url)


class Site:
    """In place of a fetcher: answers when it is told to, so that every moment in between can be looked at."""

    def __init__(self, answer: Answer = fine, robots: Answer = fine) -> None:
        self.answer, self.robots = answer, robots
        self.asked: list[str] = []
        self.sent: list[Mapping[str, str]] = []
        """The headers of the user's own, of each request."""

    async def get(self, url: str, *, headers: Mapping[str, str], **_: object) -> Fetched:
        self.asked.append(url)
        self.sent.append(headers)
        return await (self.robots if url.endswith("/robots.txt") else self.answer)(url)


class Crawl:
    """The handling of a crawl's pages, without a worker."""

    def __init__(self, site: Site, *, robots: bool = False, clock: Clock | None = None, **pace: Any) -> None:
        self.store = MemoryStore()
        self.clock = clock or ManualClock(auto=False)
        self.book = Book(self.store, "shop")
        settings = PaceSettings(**({"per_domain": 4} | pace))
        self.domains = Domains("shop", settings, self.clock, hold_of=lambda _: None, on_forgotten=lambda _: None)
        self.is_ours = True
        self.parse: Callable[[Page], Awaitable[Parsed]] | None = None
        self.handling = Handling(
            domains=self.domains,
            fetcher=site,  # type: ignore[arg-type]
            frontier=Frontier(self.store, "shop", self.clock),
            book=self.book,
            scope=Scope(seeds=["https://a.org/"]),
            parse=self._parse,
            sink=None,
            agent="Holdfast/1" if robots else None,
            headers={"Authorization": "Bearer 1", "Accept-Language": "en"},
            most_redirects=3,
            clock=self.clock,
            store=self.store,
            crawl="shop",
            store_now=self.clock.monotonic,
            is_ours=lambda _: self.is_ours,
        )

    async def _parse(self, page: Page) -> Parsed:
        return Parsed() if self.parse is None else await self.parse(page)

    def begin(self, url: str) -> asyncio.Task[Any]:
        """Claim a page and run it."""
        delivery = page_of(url)
        self.handling.claimed([delivery])
        return asyncio.ensure_future(self.handling.run(None, delivery))  # type: ignore[arg-type]

    def places(self) -> tuple[int, int, int]:
        all_of_them = [self.domains.get(name) for name in ("a.org", "b.org")]
        return (
            sum(one.claimed for one in all_of_them),
            sum(one.pace.in_flight for one in all_of_them),
            sum(one.pages for one in all_of_them),
        )


def page_of(url: str) -> Delivery:
    domain = url.split("/")[2]
    payload = encode_page(PagePayload(url=url))
    return Delivery(
        id=new_id(), token=b"t" * 16, attempt=1, task="crawl:shop", queue="crawl:shop", payload=payload, project=domain
    )


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251 - lets the others run


class Gate:
    """Requests that wait until the test says how they end."""

    def __init__(self) -> None:
        self.open: list[asyncio.Future[Fetched]] = []

    async def __call__(self, url: str) -> Fetched:
        future: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
        self.open.append(future)
        return await future
