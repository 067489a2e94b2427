"""What people who run an app ask about the crawls in its store; every method has an a… twin for async code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.errors import NotFound
from holdfast.ports import Exchange
from holdfast.runtime.crawls import CrawlView, crawl_views

if TYPE_CHECKING:
    from holdfast.app.app import App


class CrawlDesk:
    """The crawls that this app's store knows of, whether or not a process is on them."""

    def __init__(self, app: App) -> None:
        self._app = app

    def list(self) -> Sequence[CrawlView]:
        """Every crawl, by name: what is stored of it, and what its processes said with their last heartbeats."""
        return self._app.bridge.run(self.alist())

    async def alist(self) -> Sequence[CrawlView]:
        """The same for async code."""
        reply = await self._app.store.exchange(Exchange())
        return crawl_views(await self._app.store.stats(), reply.values)

    def get(self, name: str) -> CrawlView:
        """The crawl of this name; NotFound where there is none."""
        return self._app.bridge.run(self.aget(name))

    async def aget(self, name: str) -> CrawlView:
        """The same for async code."""
        for view in await self.alist():
            if view.name == name:
                return view
        raise NotFound(f"there is no crawl {name!r}")
