"""A program that crawls: `python -m tests.faults.crawl_program SETTINGS`; it says at its end what became of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast import App, RetryPolicy
from holdfast.crawl import Crawler, Page
from tests.faults.workers import LEASE_S


class Settings(Struct, frozen=True, kw_only=True):
    """What the program is told."""

    store: str
    seeds: tuple[str, ...]
    out: str = ""
    concurrency: int = 32
    per_domain: int = 32
    rate: str | None = None
    allow: tuple[str, ...] = ()
    lease_s: float = LEASE_S
    """So that no test waits for twelve seconds."""
    summary: str = ""
    """A file for what became of it."""


def crawler_of(app: App, settings: Settings) -> Crawler:
    """The crawl of the fault tests."""
    crawler = Crawler(
        app,
        name="site",
        concurrency=settings.concurrency,
        per_domain=settings.per_domain,
        rate=settings.rate,
        allow=settings.allow,
        robots=False,
        allow_private=["127.0.0.1/32"],
        retry=RetryPolicy(max_retries=2, initial_delay=0.1, jitter=False),
    )
    crawler.settings = replace(crawler.settings, lease_s=settings.lease_s)

    @crawler.page("**", expect=["h1", ".price"])
    def product(page: Page) -> Iterator[Any]:
        yield {"url": page.url, "name": page.text("h1"), "price": page.text(".price")}
        yield from page.links()

    return crawler


def main() -> None:
    """Crawl to the end, or until told to stop."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    app = App(settings.store)
    summary = crawler_of(app, settings).run(*settings.seeds, out=settings.out or None)
    app.close()
    if settings.summary:
        Path(settings.summary).write_bytes(msgspec.json.encode(summary))


if __name__ == "__main__":
    main()
