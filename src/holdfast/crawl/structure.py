"""What is expected of pages and items, and the error for those that are not like that (any more)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.crawl.challenges import is_suspect, told_by
from holdfast.crawl.page import HTML, Page
from holdfast.crawl.trees import refuse_bad_selector

__all__ = ["check", "check_fields", "refuse_bad_selector", "refuse_challenge"]


def check(page: Page, expect: Sequence[str], content_type: str | None) -> None:
    """PageChanged where a challenge or a login came instead of the page, or where it is not as expected.

    That is: of another content type, or without a selector, of which the first that matches nothing is named. XHTML
    passes for text/html, and so does a page without any content type.
    """
    became = _became(page, content_type)
    missing = None if became else next((selector for selector in expect if page.first(selector) is None), None)
    if became or missing is not None or is_suspect(page.fetched):
        _refuse_other(page, expect)
    if became:
        raise page.changed(became, became)
    if missing is not None:
        raise page.changed(f"nothing matches {missing}", f"no {missing}", selector=missing)


def refuse_challenge(page: Page) -> None:
    """PageChanged where a challenge or a login came instead of the page: for answers of an error status."""
    if is_suspect(page.fetched):
        _refuse_other(page, ())


def _became(page: Page, content_type: str | None) -> str:
    found = page.content_type
    if content_type is None or found in ("", content_type):  # a site that says nothing of it has changed nothing
        return ""
    wanted = content_type.lower()
    if found == wanted or (wanted == "text/html" and found == "application/xhtml+xml"):
        return ""
    return f"{wanted} became {found}"


def _refuse_other(page: Page, expect: Sequence[str]) -> None:
    has_expected = None
    if expect and page.content_type in HTML:
        has_expected = any(page.first(selector) is not None for selector in expect)
    if sign := told_by(page, has_expected=has_expected):
        raise page.changed(f"a {sign.kind} page came instead, told by {sign.by}", sign.kind)


def check_fields(item: Mapping[str, Any], fields: Sequence[str], page: Page) -> None:
    """PageChanged for the first field that an item does not have, or that is None or ""."""
    for field in fields:
        value = item.get(field)
        if value is None or (isinstance(value, str) and not value):
            raise page.changed(f"an item has no {field}", f"no field {field}")
