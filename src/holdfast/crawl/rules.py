"""From a fetched page to its items and links: which handler has it, and what it must hold."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.crawl.challenges import Sign, is_suspect, told_by
from holdfast.crawl.page import Link, Page
from holdfast.crawl.patterns import Pattern
from holdfast.crawl.structure import check, check_fields
from holdfast.errors import PageChanged, Permanent
from holdfast.types import Discard, Snooze

Handler = Callable[[Page], Any]
"""What users write: a function of a page that yields, or returns, items and links."""

HTML: Final = ("text/html", "application/xhtml+xml", "")
"""Content types of what is taken for HTML; a site that says nothing of it sends that, mostly."""
_MOST_ITEMS: Final = 100_000
_MOST_LINKS: Final = 1_000_000
_BREATH: Final = 1_000
"""After so many items and links of one page the others have a turn."""


class Rule(Struct, frozen=True, kw_only=True, eq=False):
    """A handler, and which pages are its own."""

    pattern: Pattern
    handle: Handler
    expect: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    content_type: str | None = None


class Parsed(Struct, frozen=True):
    """What came of a page."""

    items: Sequence[Any] = ()
    links: Sequence[Link] = ()
    instead: Snooze | Discard | None = None
    """What the handler wants of the page instead: another time, or that it is left out."""


async def parse(page: Page, rules: Sequence[Rule], *, is_followed: bool) -> Parsed:
    """Run the handler whose pattern matches first; without one the page's links are followed, where that is wanted.

    A handler that yields or returns Snooze or Discard has the page fetched again later, or left out.

    PageChanged where the page is not what the handler expects, or a challenge or a login came in its place.
    """
    rule = next((rule for rule in rules if rule.pattern.matches(page.url)), None)
    if is_suspect(page.fetched):
        refuse_challenge(page, () if rule is None else rule.expect)
    if rule is None:
        return Parsed(links=list(page.links()) if is_followed and page.content_type in HTML else ())
    try:
        check(page, rule.expect, rule.content_type)
    except PageChanged:
        refuse_challenge(page, rule.expect)  # then that is why
        raise
    items: list[Any] = []
    links: list[Link] = []
    async with aclosing(_yielded(rule.handle(page))) as yielded:
        async for one in yielded:
            if isinstance(one, Snooze | Discard):
                return Parsed(instead=one)
            if isinstance(one, Link):
                _add(links, one, _MOST_LINKS, "links", page)
            else:
                item = _item(one, rule)
                if rule.fields:
                    check_fields(item if isinstance(item, Mapping) else msgspec.to_builtins(item), rule.fields, page)
                _add(items, item, _MOST_ITEMS, "items", page)
    return Parsed(items, links)


def _add(found: list[Any], one: Any, most: int, what: str, page: Page) -> None:
    if len(found) == most:
        raise Permanent(f"a handler yields more than {most:,} {what} for one page: {page.url}")
    found.append(one)


def refuse_challenge(page: Page, expect: Sequence[str]) -> None:
    """PageChanged where a challenge or a login came instead of the page."""
    has_expected = any(page.first(one) is not None for one in expect) if expect and page.content_type in HTML else None
    sign = told_by(page, has_expected=has_expected)
    if sign is not None:
        raise challenged(page.url, page.domain, sign)


def challenged(url: str, domain: str, sign: Sign) -> PageChanged:
    """The error for a page that a challenge or a login came instead of."""
    article = "a login" if sign.kind == "login" else f"a {sign.kind}"
    return PageChanged(f"{url}: {article} came instead, told by {sign.by}", url=url, cause=f"{domain}: {sign.kind}")


async def _yielded(value: Any) -> AsyncGenerator[Any, None]:
    """What a handler made, whatever kind of function it is."""
    if inspect.isawaitable(value):
        value = await value
    if value is None:
        return
    if isinstance(value, AsyncGenerator):
        async with aclosing(value):
            async for one in value:
                yield one
    elif isinstance(value, AsyncIterable):
        async for one in value:
            yield one
    elif isinstance(value, Iterable) and not isinstance(value, Mapping | str | bytes):
        for n, one in enumerate(value, start=1):
            yield one
            if n % _BREATH == 0:
                await asyncio.sleep(0)  # noqa: TID251 - lets other coroutines run
    else:
        yield value


def _item(value: Any, rule: Rule) -> Any:
    if isinstance(value, Mapping | Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return value
    name = getattr(rule.handle, "__qualname__", "handler")
    raise Permanent(
        f"{name} yielded a {type(value).__name__}: a handler yields items (dicts, dataclasses or Structs) and links"
    )
