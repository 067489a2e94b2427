"""Pages kept with their dead letters: a fetched page as a small JSON value, and back."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.crawl.fetched import Fetched
from holdfast.crawl.urls import canonical
from holdfast.errors import Invalid

MOST_BYTES: Final = 256 * 1024
"""A kept page takes no more, as JSON."""
MOST_BODY: Final = 10 * 1024 * 1024
"""No more of a body is kept, however well it can be compressed."""

_COMPRESSED: Final = 150 * 1024  # 200 KiB as base64
_CHUNK: Final = 16 * 1024
_LONGEST_HEADER: Final = 300
_LONGEST_URL: Final = 2_000
# Cookies and whatever else may be a secret of a session are not among them.
_HEADERS: Final = (
    "cf-mitigated",
    "content-language",
    "content-type",
    "date",
    "etag",
    "last-modified",
    "retry-after",
    "server",
    "x-datadome",
    "x-robots-tag",
)


class _Kept(Struct, frozen=True, kw_only=True):
    url: str
    final_url: str
    status: int
    headers: dict[str, str]
    content_type: str = ""
    charset: str = ""
    body: bytes
    """Compressed; base64 in JSON."""
    is_cut: bool = False
    fetched_at: float


def pack(fetched: Fetched, now: float) -> dict[str, Any]:
    """A page as a JSON value of at most 256 KiB; a body that does not fit is cut, which `is_cut` says.

    now: when it is kept, which counts as the time of fetching where that is not known.
    """
    body, is_cut = _compressed(fetched.body)
    kept = _Kept(
        url=fetched.url[:_LONGEST_URL],
        final_url=fetched.final_url[:_LONGEST_URL],
        status=fetched.status,
        headers={name: fetched.headers[name][:_LONGEST_HEADER] for name in _HEADERS if name in fetched.headers},
        content_type=fetched.content_type[:_LONGEST_HEADER],
        charset=fetched.charset[:_LONGEST_HEADER],
        body=body,
        is_cut=is_cut,
        fetched_at=fetched.fetched_at or now,
    )
    packed: dict[str, Any] = msgspec.to_builtins(kept)
    return packed


def unpack(value: Mapping[str, Any]) -> Fetched:
    """The page again; of one that was cut, what there is. Invalid where the value is none that `pack` makes."""
    try:
        kept = msgspec.convert(value, _Kept)
        body = zlib.decompressobj().decompress(kept.body, MOST_BODY)
    except (msgspec.ValidationError, zlib.error) as error:
        raise Invalid(f"the kept page cannot be read: {error}") from None
    if canonical(kept.url) is None or canonical(kept.final_url) is None:
        raise Invalid("the kept page cannot be read: it has no URL that a page could have")
    return Fetched(
        url=kept.url,
        final_url=kept.final_url,
        status=kept.status,
        headers=kept.headers,
        body=body,
        elapsed_s=0.0,
        first_byte_s=0.0,
        fetched_at=kept.fetched_at,
        content_type=kept.content_type,
        charset=kept.charset,
    )


def _compressed(body: bytes) -> tuple[bytes, bool]:
    """So much of the body's beginning as fits, compressed, and whether that is not all of it."""
    compressor = zlib.compressobj()
    parts: list[bytes] = []
    size = at = 0
    while at < min(len(body), MOST_BODY):
        before, end = compressor.copy(), _character_end(body, min(at + _CHUNK, MOST_BODY))
        part = compressor.compress(memoryview(body)[at:end]) + compressor.flush(zlib.Z_SYNC_FLUSH)
        if size + len(part) > _COMPRESSED:
            compressor = before
            break
        parts.append(part)
        size += len(part)
        at = end
    parts.append(compressor.flush())
    return b"".join(parts), at < len(body)


def _character_end(body: bytes, end: int) -> int:
    """`end`, or a little less so as not to part the bytes of one UTF-8 character."""
    for back in range(4):
        if end - back >= len(body) or body[end - back] & 0xC0 != 0x80:
            return end - back
    return end
