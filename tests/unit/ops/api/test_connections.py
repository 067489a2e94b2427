from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from holdfast.clock import SystemClock
from holdfast.ops.api import connections
from holdfast.ops.api.connections import PatientConnection, server_options
from holdfast.ops.api.serving import listen

CLOCK = SystemClock()
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def short(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Endless:
    """Answers until its client is gone."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await receive()
        gone = asyncio.ensure_future(receive())
        while not gone.done():
            await send({"type": "http.response.body", "body": bytes(1_000_000), "more_body": True})
        self.is_over.set()


@asynccontextmanager
async def served(app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> AsyncIterator[tuple[int, uvicorn.Config]]:
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, log_level="critical", **server_options())
    server = uvicorn.Server(config)
    running = asyncio.create_task(server._serve())
    while not server.started:
        await CLOCK.asleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1], config
    finally:
        server.should_exit = True
        server.force_exit = True
        await running


async def ends(reader: asyncio.StreamReader) -> bool:
    """Whether the other side closes it, soon."""
    try:
        async with CLOCK.timeout(10):
            return await reader.read() == b""
    except ConnectionError:
        return True


async def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_WITHIN_S", 0.1)
    async with served(short) as (port, _):
        silent, w1 = await asyncio.open_connection("127.0.0.1", port)
        slow, w2 = await asyncio.open_connection("127.0.0.1", port)
        w2.write(b"GET / HT")
        assert await ends(silent)
        assert await ends(slow)
        w1.close()
        w2.close()


async def test_bytes_alone_win_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_WITHIN_S", 0.2)
    async with served(short) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began = CLOCK.monotonic()
        writer.write(b"GET / HTTP/1.1\r\n")
        while not reader.at_eof() and CLOCK.monotonic() - began < 10:
            writer.write(b"X: y\r\n")
            await CLOCK.asleep(0.02)
            if writer.is_closing() or reader.exception() is not None:
                break
        assert CLOCK.monotonic() - began < 10
        writer.close()


async def test_after_an_answer_the_next_head_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_WITHIN_S", 0.3)
    async with served(short) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(HEAD)
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            await CLOCK.asleep(0.15)
        writer.write(b"GET /")
        assert await ends(reader)
        writer.close()


async def test_an_answer_that_is_under_way_is_not_cut_by_the_time_for_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_WITHIN_S", 0.1)

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await CLOCK.asleep(0.3)
        await short(scope, receive, send)

    async with served(slow) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_client_that_leaves_its_answer_unread_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_WITHIN_S", 0.1)
    app = Endless()
    async with served(app) as (port, _):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(HEAD)
        async with CLOCK.timeout(20):
            await app.is_over.wait()
        writer.close()


async def test_a_flood_of_slow_heads_pushes_out_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_WAITING", 5)
    monkeypatch.setattr(connections, "HEAD_WITHIN_S", 1000.0)
    async with served(short) as (port, config):
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        assert await ends(pairs[0][0])
        protocol = config.http_protocol_class
        assert issubclass(protocol, PatientConnection)
        assert len(protocol.waiting) <= 5
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        for _, one in [*pairs, (reader, writer)]:
            one.close()


def test_two_servers_do_not_share_their_connections() -> None:
    one, other = server_options()["http"], server_options()["http"]
    assert one.waiting is not other.waiting


async def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    def is_at_once(protocol: asyncio.Protocol, transport: asyncio.Transport) -> None:
        there: socket.socket = transport.get_extra_info("socket")
        found.set_result(there.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)

    found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    protocol = type("Protocol", (asyncio.Protocol,), {"connection_made": is_at_once})
    server = await asyncio.get_running_loop().create_server(protocol, sock=listen("127.0.0.1", 0))
    async with server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await found
        writer.close()
