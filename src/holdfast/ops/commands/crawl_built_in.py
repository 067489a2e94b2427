"""A crawl without any code of the user's: `holdfast crawl https://example.org`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from holdfast.app import App
from holdfast.ops.commands.lazy import Unusable

if TYPE_CHECKING:
    from holdfast.crawl import Crawler, Page

_LONGEST_NAME: Final = 100
_NO_NAME: Final = re.compile(r"[^\w.\-]+")
_PORT: Final = re.compile(r":\d+$")


def built_in(app: App, urls: Sequence[str], options: Mapping[str, Any]) -> Crawler:
    """A crawler without any code of the user's."""
    from holdfast.crawl import Crawler  # noqa: PLC0415
    from holdfast.crawl.crawler import RETRY  # noqa: PLC0415
    from holdfast.crawl.trees import refuse_bad_selector  # noqa: PLC0415

    settings = dict(options)
    expect: tuple[str, ...] = settings.pop("expect")
    for selector in expect:
        refuse_bad_selector(selector)
    retries = settings.pop("retries")
    name = settings.pop("name") or (name_of(urls[0]) if urls else "")
    if not name:
        raise Unusable("crawl what? Give a URL, or the --name of a crawl to go on with, or --app with a crawler")
    crawler = Crawler(
        app,
        name=name,
        robots=not settings.pop("no_robots"),
        retry=RETRY if retries is None else replace(RETRY, max_retries=retries),
        **settings,
    )
    crawler.page("**", content_type=None)(about_page(expect))
    return crawler


def about_page(expect: tuple[str, ...]) -> Callable[[Page], Iterator[Any]]:
    """The handler of a crawl without code: what every HTML page has, and all of its links."""
    from holdfast.crawl.rules import HTML  # noqa: PLC0415
    from holdfast.crawl.structure import check  # noqa: PLC0415

    def about(page: Page) -> Iterator[Any]:
        if page.content_type not in HTML:
            return
        check(page, expect, None)
        links = list(page.links())
        yield {
            "url": page.url,
            "status": page.status,
            "title": page.text("title", default=""),
            "description": page.attr('meta[name="description" i]', "content", default=""),
            "depth": page.depth,
            "links": len(links),
            "bytes": len(page.body),
        }
        yield from links

    return about


def name_of(url: str) -> str:
    """What a crawl is called that nobody has named: the domain of its first URL."""
    from holdfast.crawl.urls import canonical, domain_of  # noqa: PLC0415

    place = canonical(url)
    if place is None:
        better = canonical(f"https://{url}") if "://" not in url else None
        raise Unusable(f"{url!r} is no URL of a page" + (f"; did you mean {better}?" if better else ""))
    domain = domain_of(place)
    port = _PORT.search(domain)
    host = domain[: port.start()] if port else domain
    return _NO_NAME.sub("-", host).strip("-")[: _LONGEST_NAME - 6] + (port[0] if port else "")
