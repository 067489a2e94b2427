"""The site's pages as bytes: products with a name, a price and links, and those that look like something else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from holdfast.testing.site.plan import Site, mixed

_WORDS: Final = (
    "harbour rope anchor tide sail kelp granite lantern mooring gull current hull reef shore storm calm drift net "
    "buoy compass deck ebb ferry galley helm island jetty keel locker mast north oar pier quay rudder starboard"
).split()
_MONTHS: Final = 12


class Pages:
    """Renders the pages of a site whose hosts have these base URLs."""

    def __init__(self, site: Site, bases: Sequence[str]) -> None:
        self._site = site
        self._bases = bases

    def product(self, page: int, *, extra: Iterable[str] = ()) -> str:
        """A page with h1, .price, .sku, text, and links; `extra` are hrefs that come besides."""
        item = self._site.item(page)
        return _document(
            item["name"],
            f'<p>Price: <span class="price">{item["price"]}</span> <span class="sku">{item["sku"]}</span></p>'
            f"{_text(page)}{self._list(page, extra)}",
        )

    def changed(self, page: int) -> str:
        """The same product after a new layout: nothing has the class `price`."""
        item = self._site.item(page)
        return _document(
            item["name"],
            f'<div data-testid="amount">{item["price"]}</div><div class="ref">{item["sku"]}</div>'
            f"{_text(page)}{self._list(page, ())}",
        )

    def trap(self, path: str, hrefs: Iterable[str]) -> str:
        """A page of a trap, which could be a product, and leads to more like it."""
        links = "".join(f'<li><a href="{escape(href)}">more</a></li>' for href in hrefs)
        return _document(
            f"More of {escape(path)}",
            f'<p>Price: <span class="price">1.00</span> <span class="sku">SKU-0</span></p><ul>{links}</ul>',
        )

    def _list(self, page: int, extra: Iterable[str]) -> str:
        host = self._site.host_of(page)
        hrefs = [self.href(target, host) for target in self._site.links_of(page)]
        items = "".join(f'<li><a href="{href}">to {href}</a></li>' for href in (*hrefs, *map(escape, extra)))
        return f'<ul class="links">{items}</ul>'

    def href(self, page: int, host: int) -> str:
        """The link to a page from a page of that host."""
        path = self._site.path(page)
        there = self._site.host_of(page)
        return path if there == host else f"{self._bases[there]}{path}"


def challenge() -> str:
    """What a wall in front of a site shows instead of the page."""
    return (
        '<!doctype html><html lang="en"><head><title>Just a moment...</title>'
        '<meta name="robots" content="noindex,nofollow"></head><body><h1>Checking your browser</h1>'
        '<form id="challenge-form" action="/?__cf_chl_f_tk=0" method="POST">'
        '<div class="cf-turnstile" data-sitekey="0x0"></div></form>'
        "<noscript>Enable JavaScript and cookies to continue</noscript></body></html>"
    )


def login() -> str:
    """What is shown to those who have no account."""
    return (
        '<!doctype html><html lang="en"><head><title>Sign in</title></head><body><h1>Sign in</h1>'
        '<form action="/login" method="post"><input type="text" name="user">'
        '<input type="password" name="password"><button>Sign in</button></form></body></html>'
    )


def robots(site: Site) -> str:
    """The site's robots.txt."""
    delay = f"Crawl-delay: {site.crawl_delay_s:g}\n" if site.crawl_delay_s else ""
    return f"User-agent: *\nDisallow: /private/\n{delay}"


def trap_links(path: str) -> list[str]:
    """Where a page of a trap, or a page with one, leads to: ever more."""
    bare = path.partition("?")[0]
    area, _, rest = bare.lstrip("/").partition("/")
    page, _, rest = rest.partition("/")
    if area == "calendar":
        year, month = (int(part) for part in (rest or "2024/1").split("/"))
        months = [year * _MONTHS + month - 1 + step for step in (-1, 1)]
        return [f"/calendar/{page}/{when // _MONTHS}/{when % _MONTHS + 1}" for when in months]
    if area == "path-trap":
        return [f"{bare.rstrip('/')}/a/b/"]
    number = mixed(hash_of(path))
    return [f"/session-trap/{page}?sid={mixed(number + step):016x}" for step in (1, 2)]


def hash_of(text: str) -> int:
    """A number that is the same for the same text in every process."""
    number = 0
    for char in text:
        number = mixed(number ^ ord(char))
    return number


def _document(title: str, body: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
        f"<body><h1>{title}</h1>\n{body}\n</body></html>\n"
    )


def _text(page: int) -> str:
    """One or two paragraphs, of 1 to 2.5 KB together."""
    chance = mixed(page + 1)
    paragraphs = []
    for _ in range(1 + chance % 2):
        words = []
        for _ in range(160 + chance % 60):
            chance = mixed(chance)
            words.append(_WORDS[chance % len(_WORDS)])
        paragraphs.append(f"<p>{' '.join(words)}.</p>\n")
    return "".join(paragraphs)
