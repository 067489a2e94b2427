"""What everybody reads out of a page, and the line it makes: the crawlers differ, the parser does not."""

from __future__ import annotations

import json
from urllib.parse import urljoin

from selectolax.lexbor import LexborHTMLParser


def read(body: bytes, url: str) -> tuple[dict[str, str], list[str]]:
    """A page's item, and where it leads."""
    tree = LexborHTMLParser(body)
    name, price = tree.css_first("h1"), tree.css_first(".price")
    assert name is not None, url
    assert price is not None, url
    hrefs = (link.attributes["href"] for link in tree.css("a[href]"))
    origin = url[: url.index("/", 8)]  # urljoin costs more than all the parsing: a bare loop would do without it
    links = [origin + href if href.startswith("/") else urljoin(url, href) for href in hrefs if href]
    return {"name": name.text(), "price": price.text()}, links


def line(item: dict[str, str]) -> str:
    """An item in a file of JSON lines."""
    return json.dumps(item) + "\n"
