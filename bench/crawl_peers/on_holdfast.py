"""Holdfast, in memory or on a SQLite file, with its own output file and its own way to ask for elements."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import App
from holdfast.crawl import Crawler, Page


def crawl(url: str, out: str, concurrency: int, state: str = "", *, is_adaptive: bool = True) -> None:
    app = App(f"sqlite:///{state}" if state else "memory://")
    crawler = Crawler(
        app,
        name="products",
        concurrency=concurrency,
        per_domain=concurrency,
        is_adaptive=is_adaptive,
        robots=False,
        allow_private=True,
    )

    @crawler.page(f"{url}**")
    def product(page: Page) -> Iterator[object]:
        yield {"name": page.text("h1"), "price": page.text(".price")}
        yield from page.links("a")

    crawler.run(url, out=out)
