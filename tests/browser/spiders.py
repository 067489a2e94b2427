"""Crawls as their processes report them, and pages as they are given up, in a store that a server shows."""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

from holdfast import App
from holdfast.ports import CrawlReport
from tests.unit.crawled import begun, crawling, page, page_letter

T = TypeVar("T")
_LEASE_S: Final = 300.0


class Spiders:
    """Processes by their heartbeats alone: what they say of their crawls is made by hand.

    It has a thread of its own, since a loop is running on that of the tests, which is the browser's.
    """

    def __init__(self, url: str) -> None:
        self._app = App(url)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spiders")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.submit(self._app.close).result()
        self._thread.shutdown()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._thread.submit(lambda: self._app.bridge.run(call)).result()

    def begin(self, name: str, *seeds: str, **fields: Any) -> None:
        """What is stored of a crawl itself."""
        self._run(begun(self._app, name, *seeds, **fields))

    def add(self, name: str, *urls: str) -> None:
        """Pages that wait for their turn."""
        self._run(self._app.store.enqueue([page(name, url) for url in urls]))

    def report(self, *crawls: CrawlReport, pid: int = 7) -> None:
        """A heartbeat of a process: what it is at now."""
        self._run(crawling(self._app, *crawls, id=f"spider-{pid}", pid=pid, lease_s=_LEASE_S))

    def open_breaker(self, key: str) -> None:
        """Hold a breaker open."""
        self._run(self._app.breakers.aforce_open(key))

    def bury(self, crawl: str, url: str, site: str, **fields: Any) -> str:
        """A page that was given up; the id of its letter."""
        letter = page_letter(crawl, url, site, **fields)
        self._run(self._app.store.enqueue([letter]))
        return letter.id
