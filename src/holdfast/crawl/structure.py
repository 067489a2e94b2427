"""What is expected of pages and items, and the error for those that are not like that (any more)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.crawl.page import Page
from holdfast.crawl.trees import refuse_bad_selector

__all__ = ["check", "check_fields", "refuse_bad_selector"]


def check(page: Page, expect: Sequence[str], content_type: str | None) -> None:
    """PageChanged where the page is of another content type, or for the first selector that matches nothing.

    XHTML passes for text/html, and so does a page without any content type.
    """
    if became := _became(page, content_type):
        raise page.changed(became, became)
    for selector in expect:
        if page.first(selector) is None:
            raise page.changed(f"nothing matches {selector}", f"no {selector}", selector=selector)


def _became(page: Page, content_type: str | None) -> str:
    found = page.content_type
    if content_type is None or found in ("", content_type):  # a site that says nothing of it has changed nothing
        return ""
    wanted = content_type.lower()
    if found == wanted or (wanted == "text/html" and found == "application/xhtml+xml"):
        return ""
    return f"{wanted} became {found}"


def check_fields(item: Mapping[str, Any], fields: Sequence[str], page: Page) -> None:
    """PageChanged for the first field that an item does not have, or that is None or ""."""
    for field in fields:
        value = item.get(field)
        if value is None or (isinstance(value, str) and not value):
            raise page.changed(f"an item has no {field}", f"no field {field}")
