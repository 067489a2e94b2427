"""From a page to its items and links: without a handler, and with one that yields too much, or for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast.crawl import rules as module
from holdfast.crawl.page import Link, Page
from holdfast.crawl.patterns import Pattern
from holdfast.crawl.rules import Handler, Parsed, Rule, parse
from holdfast.errors import Permanent
from tests.unit.crawl.pages import page

pytestmark = pytest.mark.anyio


async def parsed(handle: Handler, **options: Any) -> Parsed:
    return await parse(page("<h1>x</h1>"), [Rule(pattern=Pattern("**"), handle=handle, **options)], is_followed=True)


@pytest.mark.parametrize(("what", "one"), [("links", Link("https://a.org/")), ("items", {"a": 1})])
async def test_a_handler_that_yields_too_much_fails_its_page(
    monkeypatch: pytest.MonkeyPatch, what: str, one: object
) -> None:
    monkeypatch.setattr(module, f"_MOST_{what.upper()}", 10)

    def some(n: int) -> Handler:
        return lambda _: [one] * n

    assert len(getattr(await parsed(some(10)), what)) == 10
    with pytest.raises(Permanent, match=f"more than 10 {what}"):
        await parsed(some(11))


async def test_a_handler_that_yields_for_ever_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BREATH", 10)

    def endless(_: Page) -> Iterator[Any]:
        while True:
            yield {"a": 1}

    parsing = asyncio.ensure_future(parsed(endless))
    await asyncio.sleep(0)  # noqa: TID251 - it begins
    parsing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await parsing


async def test_an_async_handler_is_closed_at_once_when_what_it_yields_is_refused() -> None:
    closed: list[str] = []

    async def handle(_: Page) -> AsyncIterator[Any]:
        try:
            yield "no item"
        finally:
            closed.append("closed")

    with pytest.raises(Permanent):
        await parsed(handle)
    assert closed == ["closed"]


@pytest.mark.parametrize(
    ("content_type", "is_followed", "links"),
    [
        ("text/html; charset=utf-8", True, 1),
        ("application/xhtml+xml", True, 1),
        ("", True, 1),
        ("text/plain", True, 0),
        ("application/pdf", True, 0),
        ("text/html", False, 0),
    ],
)
async def test_the_links_of_html_are_followed_and_of_what_does_not_say_what_it_is(
    content_type: str, is_followed: bool, links: int
) -> None:
    found = await parse(page('<a href="/next">', content_type=content_type), [], is_followed=is_followed)
    assert (len(found.links), found.items) == (links, ())
