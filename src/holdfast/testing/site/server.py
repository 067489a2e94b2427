"""The site on sockets: HTTP/1.1 with keep-alive and pipelining, read and written by hand to be quick."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from holdfast.clock import SystemClock
from holdfast.ports import Clock
from holdfast.testing.site.answers import AWAY, Answer, Wire, response
from holdfast.testing.site.host import Host, fate_of
from holdfast.testing.site.log import RequestLog
from holdfast.testing.site.pages import Pages
from holdfast.testing.site.plan import Site

_LOCAL: Final = "127.0.0.1"
_NO_LINGER: Final = struct.pack("ii", 1, 0)
_LONGEST_HEAD: Final = 65_536
_MOST_WAITING: Final = 262_144
"""A client that pipelines more bytes than this is not read from until some are answered."""
_FLUSH_S: Final = 0.05
_BIND_TRIES: Final = 20
_JSON: Final = "application/json"


class Connection(asyncio.Protocol):
    """One client: its requests are answered one after the other, in their order."""

    clock: Clock = SystemClock()

    def __init__(self, host: Host, inside: Callable[[str], bytes]) -> None:
        self._host = host
        self._inside = inside
        self._transport: asyncio.Transport | None = None
        self._waiting = b""
        self._body_left = 0
        self._is_busy = False
        self._is_last = False
        self._work: asyncio.Task[None] | asyncio.TimerHandle | None = None
        self._room: asyncio.Future[None] | None = None

    # ---- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what servers are handed
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """More of its requests."""
        self._waiting = self._waiting + data if self._waiting else data
        if not self._is_busy:
            self._go_on()
        elif len(self._waiting) > _MOST_WAITING and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """It has gone: what was being done for it ends."""
        self._transport = None
        if self._work is not None:
            self._work.cancel()
        self.resume_writing()
        if self._is_busy:
            self._is_busy = False
            self._host.finished()

    def pause_writing(self) -> None:
        """It takes no more for now."""
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """It takes more."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    # ---- requests

    def _go_on(self) -> None:
        while not self._is_busy and self._transport is not None and not self._transport.is_closing():
            if self._body_left:
                skipped = min(self._body_left, len(self._waiting))
                self._waiting = self._waiting[skipped:]
                self._body_left -= skipped
            end = self._waiting.find(b"\r\n\r\n")
            if self._body_left or end < 0:
                if len(self._waiting) > _LONGEST_HEAD:
                    self._refuse(431)
                return
            head, self._waiting = self._waiting[:end], self._waiting[end + 4 :]
            self._request(head)

    def _request(self, head: bytes) -> None:
        line, _, fields = head.partition(b"\r\n")
        parts = line.split(b" ")
        if len(parts) != 3 or not parts[1].startswith(b"/") or not parts[1].isascii():
            self._refuse(400)
            return
        method, target, version = parts
        path = target.decode("ascii")
        if not path.isprintable():
            self._refuse(400)
            return
        fields = fields.lower()
        self._is_last = version != b"HTTP/1.1" or b"connection: close" in fields
        if b"content-length:" in fields or b"transfer-encoding:" in fields:
            length = fields.partition(b"content-length:")[2].partition(b"\r\n")[0].strip()
            if b"transfer-encoding:" in fields or not length.isdigit():
                self._refuse(501)
                return
            self._body_left = int(length)
        if path.startswith("/_site/"):
            self._send(self._inside(path))
        elif method in {b"GET", b"HEAD"}:
            self._is_busy = True
            self._answer(self._host.ask(path), is_head=method == b"HEAD")
        else:
            self._send(response(405, headers=(("Allow", "GET, HEAD"),)))

    def _answer(self, answer: Answer, *, is_head: bool) -> None:
        loop = asyncio.get_running_loop
        if answer.act is not None and not is_head:
            self._work = loop().create_task(self._perform(answer))
            return
        data = answer.data[: answer.data.index(b"\r\n\r\n") + 4] if is_head and answer.data else answer.data
        if is_head and not data:
            data = response(200)
        if answer.delay_s:
            self._work = loop().call_later(answer.delay_s, self._finish, data)
        else:
            self._finish(data)

    async def _perform(self, answer: Answer) -> None:
        if answer.delay_s:
            await self.clock.asleep(answer.delay_s)
        if answer.act is not None:
            await answer.act(self)
        self._finish(b"")

    def _finish(self, data: bytes) -> None:
        was_called_back = self._work is not None
        self._work = None
        self._is_busy = False
        self._host.finished()
        if data:
            self._send(data)
        if was_called_back and self._transport is not None:
            self._transport.resume_reading()
            self._go_on()

    def _refuse(self, status: int) -> None:
        self._is_last = True
        self._send(response(status))

    def _send(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._transport.write(data)
        if self._is_last:
            self._transport.close()

    # ---- what an answer may do to it

    def write(self, data: bytes) -> None:
        """Send."""
        if self._transport is not None:
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until there is room for more; ends with the connection."""
        if self._room is not None:
            await self._room

    def reset(self) -> None:
        """Cut it, with RST."""
        if self._transport is not None:
            plug: socket.socket = self._transport.get_extra_info("socket")
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()

    def close(self) -> None:
        """End it, after what was sent."""
        if self._transport is not None:
            self._transport.close()

    async def forever(self) -> None:
        """Wait until the other side goes away, which cancels this."""
        await asyncio.get_running_loop().create_future()


if TYPE_CHECKING:
    _contract: type[Wire] = Connection


class SiteServer:
    """All hosts of a site, each on a port of its own on 127.0.0.1; what is redirected away is heard on 127.0.0.2."""

    def __init__(self, site: Site, log: RequestLog, *, port: int = 0) -> None:
        self._site = site
        self._log = log
        self._sockets = [_bound_pair(port + number if port else 0) for number in range(site.hosts)]
        self.ports: list[int] = [here.getsockname()[1] for here, _ in self._sockets]
        """Where the hosts listen."""
        self.bases = [f"http://{_LOCAL}:{one}" for one in self.ports]
        """Their URLs, without a path."""
        clock = SystemClock()
        made = Pages(site, self.bases)
        self._hosts = [
            Host(site, number, domain=f"{_LOCAL}:{one}", port=one, made=made, clock=clock)
            for number, one in enumerate(self.ports)
        ]
        plain = Site(pages=site.pages, seed=site.seed)
        self._away = [
            Host(plain, 0, domain=f"{AWAY}:{one}", port=one, made=Pages(plain, [f"http://{AWAY}:{one}"]), clock=clock)
            for one in self.ports
        ]
        for host in (*self._hosts, *self._away):
            host.write_to(log)
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        for (here, away), host, other in zip(self._sockets, self._hosts, self._away, strict=True):
            self._servers.append(await loop.create_server(self._factory(host), sock=here, backlog=1024))
            if away is not None:
                self._servers.append(await loop.create_server(self._factory(other), sock=away))
        if self._log.is_buffered:
            loop.call_later(_FLUSH_S, self._flush)

    def close(self) -> None:
        """Listen no more, and write what waits."""
        for server in self._servers:
            server.close()
        self._log.close()

    def _factory(self, host: Host) -> Callable[[], Connection]:
        return lambda: Connection(host, self._inside)

    def _flush(self) -> None:
        self._log.flush()
        asyncio.get_running_loop().call_later(_FLUSH_S, self._flush)

    def _inside(self, path: str) -> bytes:
        """What `/_site/…` answers; none of it is in the log."""
        what, _, query = path.removeprefix("/_site/").partition("?")
        settings = dict(parse_qsl(query))
        try:
            match what:
                case "stats":
                    self._log.flush()
                    return _json([host.stats() for host in self._hosts])
                case "log":
                    self._log.flush()
                    return response(200, self._log.path.read_bytes(), content_type="text/plain")
                case "outage":
                    fate = fate_of(settings.get("kind", ""), settings)
                    self._hosts[int(settings.get("host", "0"))].suffer(fate)
                    return _json([])
                case "heal":
                    for host in self._hosts:
                        host.suffer(None)
                    return _json([])
                case _:
                    return response(404)
        except (ValueError, IndexError) as error:
            return response(400, f"{error}\n", content_type="text/plain")


def _json(value: Any) -> bytes:
    return response(200, msgspec.json.encode(value), content_type=_JSON)


def _bound_pair(port: int) -> tuple[socket.socket, socket.socket | None]:
    """A socket on 127.0.0.1, and one on 127.0.0.2 with the same port where the machine has that address."""
    for _ in range(_BIND_TRIES):
        here = _bound(_LOCAL, port)
        try:
            return here, _bound(AWAY, here.getsockname()[1])
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return here, None
            here.close()  # somebody has that port over there: take another
    raise OSError(errno.EADDRINUSE, f"no port is free on both {_LOCAL} and {AWAY}")


def _bound(address: str, port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((address, port))
    except OSError:
        found.close()
        raise
    return found


async def serve(site: Site, log: Path, *, port: int, is_buffered: bool, ready: Callable[[SiteServer], None]) -> None:
    """Serve until cancelled; `ready` is called once it listens."""
    server = SiteServer(site, RequestLog(log, is_buffered=is_buffered), port=port)
    try:
        await server.start()
        ready(server)
        await asyncio.get_running_loop().create_future()
    finally:
        server.close()
