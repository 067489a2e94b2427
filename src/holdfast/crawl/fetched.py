"""An answer to a request of a crawl, and what its status says."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from holdfast.crawl.urls import domain_of
from holdfast.errors import BadStatus
from holdfast.policy.retry_after import retry_after

_CHARSET: Final = re.compile(r";\s*charset\s*=\s*[\"']?([a-z0-9._:+\-]{1,40})", re.IGNORECASE)

_LONGEST_CONTENT_TYPE: Final = 1_000
_LONGEST_MEDIA_TYPE: Final = 100


class Fetched(Struct, frozen=True, kw_only=True):
    """An answer, whatever its status."""

    url: str
    """What was asked for."""
    final_url: str
    """What answered, after all redirects."""
    status: int
    headers: Mapping[str, str]
    """As they were sent, by name in small letters. Several of a name are joined with ", "; cookies with a new line."""
    body: bytes
    """Decompressed. Only of a page is it whole; of an error or a redirect it may be a part, as these count without."""
    elapsed_s: float
    """From the first request to the last byte, redirects included."""
    first_byte_s: float
    """From the last request to the first of its answer."""
    fetched_at: float
    redirects: tuple[str, ...] = ()
    """Where it was sent on to, one after the other; the last is `final_url`."""
    redirect_to: str = ""
    """Where a redirect leads that was not followed."""
    content_type: str = ""
    """Such as "text/html": in small letters, without parameters."""
    charset: str = ""
    """As the headers name it, in small letters."""


def refuse_status(fetched: Fetched) -> None:
    """Raise BadStatus for anything but 2xx, with `retry_after` in seconds where the headers have one."""
    status = fetched.status
    if 200 <= status <= 299:
        return
    where = "" if fetched.final_url == fetched.url else f", from {fetched.final_url}"
    raise BadStatus(
        f"{fetched.url}: status {status}{where}",
        url=fetched.url,
        cause=f"{domain_of(fetched.url)}: {status}",
        status=status,
        retry_after=retry_after(fetched.headers, status, now=fetched.fetched_at),
    )


def plain_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as `Fetched` has them; what is no text in them is marked as such."""
    plain: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        text = plain_text(value)
        if key in plain:
            text = plain[key] + ("\n" if key == "set-cookie" else ", ") + text
        plain[key] = text
    return plain


def plain_text(value: str) -> str:
    """A header's value, as aiohttp has it, where what is no text is marked as such: else it could not be stored."""
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@functools.lru_cache(maxsize=256)
def media_type(header: str) -> tuple[str, str]:
    """The media type and the charset of a Content-Type; both are short, whatever was sent."""
    named = _CHARSET.search(header, 0, _LONGEST_CONTENT_TYPE)
    kind = plain_text(header.partition(";")[0].strip().lower()[:_LONGEST_MEDIA_TYPE])
    return kind, named[1].lower() if named else ""
