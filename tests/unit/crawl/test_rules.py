"""From a page to its items and links, where no handler has it."""

from __future__ import annotations

import pytest

from holdfast.crawl.rules import parse
from tests.unit.crawl.pages import page


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
    parsed = await parse(page('<a href="/next">', content_type=content_type), [], is_followed=is_followed)
    assert (len(parsed.links), parsed.items) == (links, ())
