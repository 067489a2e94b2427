"""The body of an answer: put together and decompressed piece by piece, and never larger than allowed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from holdfast.crawl.urls import domain_of
from holdfast.errors import FetchFailed, PageRefused

ACCEPTED: Final = "gzip, deflate"
"""What is offered to sites. No br: few versions of its package can be told to stop in the middle of a bomb."""

_PIECE: Final = 65_536
_MOST_STAGES: Final = 2
_MOST_MEMBERS: Final = 1_000
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP, _ZLIB, _RAW = zlib.MAX_WBITS | 16, zlib.MAX_WBITS, -zlib.MAX_WBITS
_KINDS: Final = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}


class Body:
    """What has come of a body, at most `max_bytes` as it is sent and as it is read.

    url: named by what is raised: PageRefused for what is too large or in an encoding that nobody offered, FetchFailed
        for what is cut or damaged.
    encodings: the Content-Encoding header.
    """

    __slots__ = ("_url", "_max_bytes", "_stages", "_sent", "_parts")

    def __init__(self, url: str, encodings: str, max_bytes: int) -> None:
        self._url = url
        self._max_bytes = max_bytes
        self._sent = 0
        self._parts: list[bytes] = []
        self._stages = self._stages_of(encodings) if encodings else ()

    def add(self, chunk: bytes) -> None:
        """Take the next bytes as they were sent. What makes it too large is taken first, and then refused."""
        self._sent += len(chunk)
        if not self._stages:
            self._parts.append(chunk)
        if self._sent > self._max_bytes:
            raise self._too_large()
        if self._stages:
            self._decompress(chunk)

    def _decompress(self, chunk: bytes) -> None:
        pieces: Iterable[bytes] = (chunk,)
        for stage in self._stages:
            pieces = stage.decoded(pieces)
        try:
            self._parts.extend(pieces)
        except zlib.error as error:
            raise self._damaged("corrupt body", "its compressed body is damaged") from error

    def end(self) -> None:
        """Nothing more comes; FetchFailed where that is in the middle."""
        if any(stage.is_open for stage in self._stages):
            raise self._damaged("truncated", "its compressed body stops in the middle")

    def so_far(self) -> bytes:
        """What there is, whole or not; of what was refused as too large, a little more than `max_bytes`."""
        parts = self._parts
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def expect(self, length: int | None) -> None:
        """Refuse a body that says itself that it is too large, before any of it has come."""
        if length is not None and length > self._max_bytes:
            raise self._too_large()

    def _stages_of(self, encodings: str) -> tuple[_Stage, ...]:
        """What undoes the encodings: the one that was applied last comes first."""
        names = [
            name for name in (part.strip().lower() for part in encodings.split(",")) if name not in {"", "identity"}
        ]
        unknown = [name for name in names if name not in _KINDS]
        if unknown or len(names) > _MOST_STAGES:
            what = f"in {unknown[0][:40]!r}, which was not offered" if unknown else f"encoded {len(names)} times"
            raise PageRefused(
                f"{self._url}: its body is {what}", url=self._url, cause=f"{domain_of(self._url)}: content encoding"
            )
        return tuple(_Stage(_KINDS[name], self._grown) for name in reversed(names))

    def _grown(self, size: int, members: int) -> None:
        """Told by each stage what it has made: all are bounded, those that feed another one as well."""
        if size > self._max_bytes or members > _MOST_MEMBERS:
            raise self._too_large()

    def _too_large(self) -> PageRefused:
        return PageRefused(
            f"{self._url}: its body is larger than max_bytes={self._max_bytes}",
            url=self._url,
            cause=f"{domain_of(self._url)}: too large",
        )

    def _damaged(self, cause: str, what: str) -> FetchFailed:
        return FetchFailed(f"{self._url}: {what}", url=self._url, cause=f"{domain_of(self._url)}: {cause}")


class _Stage:
    """One encoding, undone in pieces of bounded size."""

    __slots__ = ("_kind", "_grown", "_stream", "_held", "_is_over", "_size", "_members")

    def __init__(self, kind: str, grown: Callable[[int, int], None]) -> None:
        self._kind = kind
        self._grown = grown
        self._stream: zlib._Decompress | None = None
        self._held = b""
        self._is_over = False
        self._size = 0
        self._members = 0

    @property
    def is_open(self) -> bool:
        """Whether more must come; nothing at all is a whole body as well."""
        return self._stream is not None or (bool(self._held) and not self._members)

    def decoded(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces that these bytes stand for."""
        for chunk in chunks:
            data = self._held + chunk if self._held else chunk
            self._held = b""
            is_full = False
            while (data or is_full) and not self._is_over:
                if self._stream is None:
                    if len(data) < 2:  # it takes two to tell what begins here
                        self._held = data
                        break
                    self._begin(data)
                    continue
                piece, data = self._step(self._stream, data)
                is_full = len(piece) == _PIECE and self._stream is not None  # more may wait inside, its input all read
                if piece:
                    yield piece
                    self._size += len(piece)
                    self._grown(self._size, self._members)

    def _begin(self, head: bytes) -> None:
        """A stream begins with these bytes; or, after a whole one, what is no part of the body."""
        if self._kind == "gzip":
            if self._members and not head.startswith(_GZIP_MAGIC):
                self._is_over = True  # padding after the last member, which is left as browsers leave it
                return
            window = _GZIP
        else:
            is_zlib = head[0] & 0x0F == zlib.DEFLATED and int.from_bytes(head[:2], "big") % 31 == 0
            window = _ZLIB if is_zlib else _RAW  # some servers leave out the wrapper that the standard asks for
        self._stream = zlib.decompressobj(window)
        self._members += 1
        self._grown(self._size, self._members)

    def _step(self, stream: zlib._Decompress, data: bytes) -> tuple[bytes, bytes]:
        """The next piece, and what of the data is left for the steps that follow."""
        piece = stream.decompress(data, _PIECE)
        if not stream.eof:
            return piece, stream.unconsumed_tail
        self._stream = None
        self._is_over = self._kind != "gzip"
        return piece, stream.unused_data
