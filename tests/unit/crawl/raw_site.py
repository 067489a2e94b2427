"""A web server of bytes: what it answers with need not be HTTP, and it counts who connects."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

from holdfast.addresses import AddressGuard, networks
from holdfast.clock import SystemClock
from holdfast.crawl.fetch import Fetcher, FetchLimits
from holdfast.testing import ManualClock

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]
AGENT: Final = "holdfast-tests/1.0 (+mailto:me@example.org)"
LOOPBACK: Final = ("127.0.0.0/8", "::1/128")


def answer(body: bytes = b"", status: int = 200, **headers: str) -> bytes:
    """An answer with its length; the names of headers have _ for -."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    length = "" if "Transfer_Encoding" in headers else f"Content-Length: {len(body)}\r\n"
    return f"HTTP/1.1 {status} Said\r\n{lines}{length}\r\n".encode("latin-1") + body


def redirect(to: str, status: int = 302) -> bytes:
    return answer(status=status, Location=to)


class RawSite:
    """Answers by path; one that is a function gets the connection, which is closed when it returns."""

    def __init__(
        self,
        pages: Mapping[str, Answer] | None = None,
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.pages = dict(pages or {})
        self.host = host
        self.asked: list[str] = []
        """The heads of all requests."""
        self.connections = 0
        self.scheme = "http" if tls is None else "https"
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._begin, self.host, 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, path: str = "/", host: str = "") -> str:
        return f"{self.scheme}://{host or self.host}:{self.port}{path}"

    @property
    def paths(self) -> list[str]:
        return [head.split(" ", 2)[1] for head in self.asked]

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
                found = self.pages.get(self.paths[-1], answer(status=404))
                if not isinstance(found, bytes):
                    return await found(writer)
                writer.write(found)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        finally:
            writer.close()


def sends(*parts: bytes) -> Answer:
    """These bytes, and the connection is closed."""

    async def send(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()

    return send


def stays_silent(*parts: bytes) -> Answer:
    """These bytes, and nothing more; the connection stays open."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(parts))
        await writer.wait_closed()

    return send


async def resets(writer: asyncio.StreamWriter) -> None:
    """The connection is reset."""
    raw: Any = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def breathe() -> None:
    """Whatever was sent has come."""
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251 - lets the others run


def pass_time(fetcher: Fetcher, clock: ManualClock, seconds: float) -> None:
    """So much later: those whose time is over are ended."""
    clock.advance(seconds)
    fetcher._time._deadlines._look()


@asynccontextmanager
async def fetching(
    *, allow: tuple[str, ...] = LOOPBACK, guard: AddressGuard | None = None, connections: int = 8, **options: Any
) -> AsyncIterator[Fetcher]:
    """A fetcher that may connect to this machine; options are those of FetchLimits, and `clock` and `verify_tls`."""
    own = {name: options.pop(name) for name in ("clock", "verify_tls") if name in options}
    async with Fetcher(
        user_agent=AGENT,
        limits=FetchLimits(**options),
        guard=guard or AddressGuard(networks("allow", allow)),
        connections=connections,
        **{"clock": SystemClock(), **own},
    ) as fetcher:
        yield fetcher
