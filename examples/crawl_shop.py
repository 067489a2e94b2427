"""A shop's products into a file, each once: stop it by Ctrl-C, kill it by -9, start it again, and it goes on.

    pip install 'holdfast[crawl]'
    python -m holdfast.testing.site --pages 2000 --port 8077 --faults changed=0.01,not-found=0.01    # a shop to try
    python crawl_shop.py http://127.0.0.1:8077/ --allow-private
    holdfast crawl retry shop --url sqlite:///shop.db    # what was given up goes back, to be fetched by the next run
    python crawl_shop.py http://127.0.0.1:8077/ --allow-private --mended

A product is a page with a name and a price. A page without a price is given up and kept; all of them are one cause.
`--mended` stands for the handler after you have looked at such a page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from holdfast import App, HoldfastError
from holdfast.crawl import Crawler, Link, Page, Progress

PRICE: Final = ".price"
MENDED: Final = ".price, [data-testid=amount]"
"""The same where the shop has a new layout."""


class Product(Struct):
    """What is written of a page."""

    url: str
    name: str
    price: str
    sku: str


def shop(app: App, *, price: str, **settings: Any) -> Crawler:
    """A crawler of shops whose products have an h1, and a price where this selector says."""
    crawler = Crawler(app, name="shop", **settings)

    @crawler.page("/**", expect=["h1", price], fields=["name", "price"])
    def product(page: Page) -> Iterator[Product | Link]:
        yield Product(page.url, page.text("h1"), page.text(price), page.text(".sku", default=""))
        yield from page.links()

    return crawler


def tell(progress: Progress) -> None:
    """How far it is."""
    held = "".join(f", {domain} rests for {left_s:.0f} s" for domain, left_s in progress.held.items())
    print(f"{progress.done} done, {progress.pending} pending, {progress.dead} given up{held}", flush=True)


def main() -> None:
    """Crawl, or go on."""
    parser = argparse.ArgumentParser(description="A shop's products into a file, each once.")
    parser.add_argument("url", nargs="+", help="where to begin")
    parser.add_argument("--out", default="products.jsonl", help="a .jsonl or .db file [products.jsonl]")
    parser.add_argument("--store", default="sqlite:///shop.db", help="where the crawl is remembered")
    parser.add_argument("--rate", help="requests a domain, such as 2/second")
    parser.add_argument("--user-agent", help="who asks, and how to reach you")
    parser.add_argument("--allow-private", action="store_true", help="for a shop on this machine")
    parser.add_argument("--mended", action="store_true", help="know the shop's other layout, too")
    given = parser.parse_args()
    try:
        app = App(given.store)
        crawler = shop(
            app,
            price=MENDED if given.mended else PRICE,
            rate=given.rate,
            user_agent=given.user_agent,
            allow_private=given.allow_private,
        )
        summary = crawler.run(*given.url, out=given.out, on_progress=tell)
    except HoldfastError as error:
        sys.exit(str(error))
    what = "finished" if summary.is_finished else "stopped: run it again to go on"
    print(f"{what}; {summary.done} pages done, {summary.dead} given up, {summary.items_here} items in this run")
    for group in app.dead_letters.groups(task=f"crawl:{crawler.name}") if summary.dead else ():
        print(f"  {group.count} × {group.error_name}: {group.message}")
    app.close()


if __name__ == "__main__":
    main()
