"""Each fate as an answer: the bytes that are sent at once, or what is done to the connection instead."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, Protocol

from msgspec import Struct

from holdfast.ports import Clock
from holdfast.testing.site import pages
from holdfast.testing.site.fates import TRAPS, Fate

_HTML: Final = "text/html; charset=utf-8"
_CHUNK: Final = 65_536
_PAUSE_S: Final = 0.02
"""Between the beginning of an answer and the reset, so that the beginning is read before it."""
AWAY: Final = "127.0.0.2"


class Wire(Protocol):
    """A connection, as an answer sees it."""

    clock: Clock

    def write(self, data: bytes) -> None:
        """Send."""

    async def drain(self) -> None:
        """Wait until there is room for more; ends with the connection."""

    def reset(self) -> None:
        """Cut it, with RST."""

    def close(self) -> None:
        """End it, after what was sent."""

    async def forever(self) -> None:
        """Wait until the other side goes away."""


class Answer(Struct, frozen=True, kw_only=True):
    """What is sent or done."""

    status: int
    """0 where nothing is answered, or no whole answer."""
    data: bytes = b""
    act: Callable[[Wire], Coroutine[Any, Any, None]] | None = None
    """Done instead of sending the data."""
    delay_s: float = 0.0
    until: float = 0.0
    """The end of the Retry-After that it gives, by the monotonic clock."""


class Asked(Struct, frozen=True, kw_only=True):
    """A request for a page, with all that the answer may depend on."""

    page: int
    path: str
    host: int
    port: int


def response(
    status: int, body: bytes | str = b"", *, content_type: str = _HTML, headers: tuple[tuple[str, str], ...] = ()
) -> bytes:
    """A whole response with its length."""
    data = body.encode() if isinstance(body, str) else body
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(data)}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + data


def refusal(status: int, retry_after_s: float, clock: Clock, *, is_date: bool = False) -> Answer:
    """A 429 or 503 that says when to come again, in whole seconds or as a date; 0 says nothing."""
    headers: tuple[tuple[str, str], ...] = ()
    until = 0.0
    if retry_after_s > 0:
        now = clock.now()
        if is_date:
            end = math.ceil(now + retry_after_s)
            until = clock.monotonic() + end - now
            headers = (("Date", formatdate(now, usegmt=True)), ("Retry-After", formatdate(end, usegmt=True)))
        else:
            until = clock.monotonic() + math.ceil(retry_after_s)
            headers = (("Retry-After", str(math.ceil(retry_after_s))),)
    return Answer(status=status, data=response(status, _words(status), headers=headers), until=until)


def answer_of(fate: Fate, asked: Asked, made: pages.Pages) -> Answer:
    """What a fate does, where it is not refusing; refusals that end are counted by the server."""
    match fate.kind:
        case "not-found" | "gone" | "forbidden" | "error":
            return Answer(status=fate.status, data=response(fate.status, _words(fate.status)))
        case "silent":
            return Answer(status=0, act=lambda wire: wire.forever())
        case "reset" | "truncated" | "truncated-chunked":
            return Answer(status=0, act=_Cut(fate.kind, made.product(asked.page).encode()))
        case "endless":
            return Answer(status=0, act=_Endless(fate))
        case "huge":
            return Answer(status=200, act=_Huge(fate.size))
        case "gzip":
            packed = gzip.compress(made.product(asked.page).encode(), mtime=0)
            return Answer(status=200, data=response(200, packed, headers=(("Content-Encoding", "gzip"),)))
        case "gzip-bomb":
            return Answer(status=200, data=response(200, _bomb(fate.size), headers=(("Content-Encoding", "gzip"),)))
        case "wrong-charset":
            return Answer(status=200, data=response(200, made.product(asked.page).encode("cp1252")))
        case "changed":
            return Answer(status=200, data=response(200, made.changed(asked.page)))
        case "other-type":
            return Answer(status=200, data=response(200, b"%PDF-1.4\n%%EOF\n", content_type="application/pdf"))
        case "challenge":
            headers = (("Server", "cloudflare"), ("CF-Mitigated", "challenge"), ("CF-Ray", "0000000000000000-LHR"))
            return Answer(status=fate.status, data=response(fate.status, pages.challenge(), headers=headers))
        case "redirect" | "redirect-loop" | "redirect-chain" | "redirect-away" | "login":
            return _redirect(fate.status, _target(fate, asked, made))
        case _:
            extra = pages.trap_links(f"/{fate.kind}/{asked.page}") if fate.kind in TRAPS else ()
            return Answer(status=200, data=response(200, made.product(asked.page, extra=extra)), delay_s=fate.delay_s)


def hop(path: str) -> Answer:
    """A step of a redirect that leads nowhere: `/loop/<page>/<0 or 1>` or `/hop/<page>/<steps left>`."""
    _, area, page, step = path.split("/")
    left = int(step)
    if area == "loop":
        return _redirect(302, f"/loop/{page}/{1 - left % 2}")
    return _redirect(302, f"/hop/{page}/{left - 1}" if left > 0 else f"/hopped/{page}")


def _target(fate: Fate, asked: Asked, made: pages.Pages) -> str:
    match fate.kind:
        case "redirect-loop":
            return f"/loop/{asked.page}/0"
        case "redirect-chain":
            return f"/hop/{asked.page}/{fate.hops - 2}" if fate.hops > 1 else f"/hopped/{asked.page}"
        case "redirect-away":
            return f"http://{AWAY}:{asked.port}/p/{asked.page}"
        case "login":
            return f"/login?next={asked.path.partition('?')[0]}"
        case _:
            return made.href(fate.to, asked.host)


def _redirect(status: int, target: str) -> Answer:
    return Answer(status=status, data=response(status, _words(status), headers=(("Location", target),)))


def _words(status: int) -> str:
    return f"<!doctype html><title>{status}</title><h1>{HTTPStatus(status).phrase}</h1>\n"


def _bomb(size: int) -> bytes:
    """So many zeros, packed a thousandfold."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(min(size, 1_000_000))
    parts = []
    for start in range(0, size, len(block) or 1):
        parts.append(packer.compress(block[: size - start]))
    return b"".join(parts) + packer.flush()


# ---- what is done to a connection


class _Cut(Struct, frozen=True):
    """Sends the first half of a page, and ends."""

    kind: str
    body: bytes

    async def __call__(self, wire: Wire) -> None:
        half = self.body[: len(self.body) // 2]
        if self.kind == "truncated-chunked":
            wire.write(_chunked_head() + b"%x\r\n%b" % (len(self.body), half))
        else:
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {_HTML}\r\nContent-Length: {len(self.body)}\r\n\r\n"
            wire.write(head.encode("ascii") + half)
        if self.kind == "reset":
            await wire.clock.asleep(_PAUSE_S)
            wire.reset()
        else:
            wire.close()


class _Endless(Struct, frozen=True):
    """Sends chunks as long as somebody takes them."""

    fate: Fate

    async def __call__(self, wire: Wire) -> None:
        wire.write(_chunked_head())
        size = max(1, self.fate.size)  # a chunk of none would be the end
        chunk = b"%x\r\n%b\r\n" % (size, b"<p>more</p>\n".ljust(size)[:size])
        while True:
            wire.write(chunk)
            await wire.drain()
            await wire.clock.asleep(self.fate.delay_s)


class _Huge(Struct, frozen=True):
    """Sends a whole page that is much too long."""

    size: int

    async def __call__(self, wire: Wire) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {_HTML}\r\nContent-Length: {self.size}\r\n\r\n"
        wire.write(head.encode("ascii"))
        block = b"<p>much more of it</p>\n" * (_CHUNK // 23)
        for start in range(0, self.size, len(block)):
            wire.write(block[: self.size - start])
            await wire.drain()


def _chunked_head() -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {_HTML}\r\nTransfer-Encoding: chunked\r\n\r\n".encode("ascii")
