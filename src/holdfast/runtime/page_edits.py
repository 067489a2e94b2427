"""What an edit of a page's dead letter may change: what its link was given along, and never which page it is."""

from __future__ import annotations

from typing import Final

from holdfast.errors import Invalid
from holdfast.json_values import UNSTORABLE, why
from holdfast.runtime.crawl_origins import decode_page

FIXED: Final = ("url", "depth", "referrer")
"""What no edit may change: the page's id, its domain and whose turn it waits for were made of it."""


def check_page(stored: bytes, edited: bytes) -> None:
    """Invalid, in one line, where an edit cannot be read as a page, or is another page."""
    try:
        before, after = decode_page(stored), decode_page(edited)
    except UNSTORABLE as error:
        raise Invalid(f"the page cannot be read: {why(error)}") from error
    for name in FIXED:
        if getattr(before, name) != getattr(after, name):
            raise Invalid(f"the {name} of a page cannot be edited: it says which page it is")
