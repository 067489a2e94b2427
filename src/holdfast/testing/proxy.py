"""A TCP proxy that does to connections what networks do: slow them down, cut them, swallow them, lose a reply."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast.clock import SystemClock, chance

if TYPE_CHECKING:
    from holdfast.types import Rng

Direction = Literal["requests", "replies"]
_CHUNK: Final = 65_536
_UNDER_WAY: Final = 64
"""Chunks at most, each way of a connection; more are not read."""
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Traffic(Struct, kw_only=True):
    """What a proxy has seen, and what it has done."""

    connections: int = 0
    """Accepted ones."""
    requests_bytes: int = 0
    """Passed on to the server."""
    replies_bytes: int = 0
    """Passed on to clients."""
    resets: int = 0
    """Connections that were cut."""
    replies_dropped: int = 0


class _Drop(Struct):
    """Which reply is to be lost next."""

    left: int
    to: bytes | None
    then: Literal["reset", "silence"]


class _Arrival(Struct):
    """Bytes under way, and when they are there."""

    chunk: bytes
    due_s: float


class _Link:
    """One client's connection and its twin to the server."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self.writers = list(writers)
        self.has_asked = False
        """Whether a request went out since the last reply."""
        self.tail = b""
        """The end of what was asked, as a pattern may be cut by the edge of a chunk."""
        self.doom: Literal["reset", "silence"] | None = None
        """What happens to it once the reply it waits for is here."""
        self.is_silent = False


class FaultProxy:
    """A TCP proxy on loopback in a thread of its own, between a program under test and its server.

    Give the program `proxy.port` instead of the server's. `latency_s`, `jitter_s`, `bytes_per_second` and
    `reset_probability` may be set at any time and hold for every connection. It knows no protocol: a reply is what
    comes back after something was sent. `rng` decides jitter and resets.
    """

    def __init__(self, host: str, port: int, *, rng: Rng = chance) -> None:
        self.upstream = (host, port)
        """The server; when it is changed, as in a failover, new connections go to the new one."""
        self._rng = rng
        self._clock = SystemClock()
        self.latency_s = 0.0
        """Each chunk of bytes is late by so much, both ways."""
        self.jitter_s = 0.0
        """And by up to so much more."""
        self.bytes_per_second: float | None = None
        """How much passes each way of a connection; None is no limit."""
        self.reset_probability = 0.0
        """How likely a chunk of bytes cuts its connection instead of passing."""
        self._traffic = Traffic()
        self._drop: _Drop | None = None
        self._held: set[Direction] = set()
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket = _bound(0)
        self._port: int = self._socket.getsockname()[1]
        self._server: asyncio.Server | None = None
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(
            target=asyncio.run, args=(self._main(started),), name="fault-proxy", daemon=True
        )
        self._thread.start()
        self._loop = started.result()

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return self._port

    @property
    def traffic(self) -> Traffic:
        """What it has seen and done so far."""
        return replace(self._traffic)

    # ---- faults

    def reset(self) -> None:
        """Cut every open connection now, with RST."""
        self._do(self._reset_all())

    def refuse(self) -> None:
        """Refuse new connections until `heal`; open ones live on."""
        self._do(self._refuse())

    def blackhole(self, direction: Literal["both", "requests", "replies"] = "both") -> None:
        """Let nothing pass, and tell nobody: connections are accepted and stay open. `heal` delivers what was held."""
        ways: tuple[Direction, ...] = ("requests", "replies") if direction == "both" else (direction,)
        self._do(self._hold(ways))

    def drop_reply(self, nth: int = 1, *, to: bytes | None = None, then: Literal["reset", "silence"] = "reset") -> None:
        """Let the server do what it is asked, and lose its reply: the n-th from now on, or the n-th to a request with
        these bytes in it. The connection is then cut, or nothing passes on it any more.
        """
        if nth < 1:
            raise ValueError(f"nth={nth}: count from 1")
        self._do(self._lose(_Drop(nth, to, then)))

    def heal(self) -> None:
        """End every fault, and deliver what was held; connections that have lost bytes are cut."""
        self._do(self._heal())

    def close(self) -> None:
        """Cut everything, and end."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # ---- on its own thread

    async def _main(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        self._ended = asyncio.Event()
        self._healed = asyncio.Event()
        await self._listen()
        started.set_result(asyncio.get_running_loop())
        await self._ended.wait()
        await self._refuse()
        self._socket.close()
        await self._reset_all()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, sock=self._socket)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _refuse(self) -> None:
        """Stop listening, and keep the port."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._socket = _bound(self._port)

    async def _hold(self, ways: tuple[Direction, ...]) -> None:
        self._held.update(ways)

    async def _lose(self, drop: _Drop) -> None:
        self._drop = drop

    async def _heal(self) -> None:
        self.latency_s = self.jitter_s = self.reset_probability = 0.0
        self.bytes_per_second = None
        self._drop = None
        self._held.clear()
        self._healed.set()
        self._healed = asyncio.Event()
        for link in [link for link in self._links if link.is_silent]:
            self._cut(link)
        if self._server is None:
            await self._listen()

    async def _reset_all(self) -> None:
        for link in list(self._links):
            self._cut(link)

    def _cut(self, link: _Link) -> None:
        if link not in self._links:
            return
        self._links.remove(link)
        self._traffic.resets += 1
        for writer in link.writers:
            plug: socket.socket = writer.get_extra_info("socket")
            if plug.fileno() >= 0:
                plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._traffic.connections += 1
        link = _Link(writer)
        self._links.add(link)
        await self._passage("requests")
        try:
            there, to_server = await asyncio.open_connection(*self.upstream)
        except OSError:
            self._cut(link)
            return
        link.writers.append(to_server)
        if link not in self._links:  # cut while the server was called
            to_server.transport.abort()
            return
        await asyncio.gather(
            self._pump(link, reader, to_server, "requests"), self._pump(link, there, writer, "replies")
        )
        self._links.discard(link)
        for one in link.writers:
            one.close()

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction
    ) -> None:
        """Pass on what comes, until its end."""
        judge: Callable[[_Link, bytes], bool] = self._asks if way == "requests" else self._answers
        arrived: asyncio.Queue[_Arrival | None] = asyncio.Queue(_UNDER_WAY)
        reading = asyncio.create_task(self._read(reader, arrived))
        try:
            while arrival := await arrived.get():
                await self._until_due(arrival)
                await self._passage(way)
                if self._rng() < self.reset_probability:
                    self._cut(link)
                if link not in self._links:
                    return
                if judge(link, arrival.chunk):
                    writer.write(arrival.chunk)
                    await writer.drain()
            await self._passage(way)
            if not await reading:
                self._cut(link)
                return
            if link.is_silent:
                await self._healed.wait()  # and is cut by then: its end must not pass either
            writer.write_eof()
        except OSError:
            self._cut(link)
        finally:
            reading.cancel()

    async def _read(self, reader: asyncio.StreamReader, arrived: asyncio.Queue[_Arrival | None]) -> bool:
        """Note what comes, and when it is due: several chunks may be under way. Whether its end was an orderly one."""
        is_orderly = True
        try:
            while chunk := await reader.read(self._chunk_size()):
                late_s = self.latency_s + self.jitter_s * self._rng()
                await arrived.put(_Arrival(chunk, self._clock.monotonic() + late_s))
        except OSError:
            is_orderly = False
        await arrived.put(None)
        return is_orderly

    def _asks(self, link: _Link, chunk: bytes) -> bool:
        """Whether what a client sends may pass."""
        if link.is_silent:
            return False
        link.has_asked = True
        self._traffic.requests_bytes += len(chunk)
        drop = self._drop
        if drop is not None and drop.to is not None:
            seen = link.tail + chunk
            if drop.to in seen:
                self._is_next(link, drop)
                seen = b""
            link.tail = seen[-len(drop.to) :]
        return True

    def _answers(self, link: _Link, chunk: bytes) -> bool:
        """Whether what the server sends may pass."""
        if link.is_silent:
            return False
        if link.has_asked and self._drop is not None and self._drop.to is None:
            self._is_next(link, self._drop)
        link.has_asked = False
        if link.doom is None:
            self._traffic.replies_bytes += len(chunk)
            return True
        self._traffic.replies_dropped += 1
        link.is_silent = True
        if link.doom == "reset":
            self._cut(link)
        return False

    def _is_next(self, link: _Link, drop: _Drop) -> None:
        """One more that it could be."""
        drop.left -= 1
        if drop.left == 0:
            self._drop = None
            link.doom = drop.then

    async def _passage(self, way: Direction) -> None:
        """Wait until bytes may pass this way."""
        while way in self._held:
            await self._healed.wait()

    async def _until_due(self, arrival: _Arrival) -> None:
        """Wait out its way; and behind those before it, on a narrow one."""
        pause_s = max(0.0, arrival.due_s - self._clock.monotonic())
        if self.bytes_per_second is not None:
            pause_s += len(arrival.chunk) / self.bytes_per_second
        if pause_s > 0:
            await self._clock.asleep(pause_s)

    def _chunk_size(self) -> int:
        """On a slow link a tenth of a second's worth."""
        return _CHUNK if self.bytes_per_second is None else max(1, min(_CHUNK, int(self.bytes_per_second / 10)))


def _bound(port: int) -> socket.socket:
    """A socket that has a port and does not listen: calls are refused, and nobody else can have it."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", port))
    return found
