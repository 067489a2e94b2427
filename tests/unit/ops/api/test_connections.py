from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from holdfast.clock import SystemClock
from holdfast.ops.api import connections
from holdfast.ops.api.connections import PatientConnection, out_of_descriptors, server_options
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
    assert one.slow is not other.slow
    assert one.opened is not other.opened


# ---------------------------------------------------------------- descriptors

PARTS = (b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await short(scope, receive, send)


@pytest.mark.parametrize(("descriptors", "limit", "backlog"), [(64, 16, 16), (200, 86, 50), (1024, 704, 256)])
def test_connections_leave_descriptors_to_all_else(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, limit: int, backlog: int
) -> None:
    monkeypatch.setattr(connections, "_descriptors", lambda: descriptors)
    options = server_options()
    assert (options["http"].limit, options["backlog"]) == (limit, backlog)


@pytest.mark.parametrize("part", PARTS)
async def test_near_the_limit_whoever_has_kept_us_waiting_longest_makes_room(part: bytes) -> None:
    async with served(reading) as (port, config):
        protocol = config.http_protocol_class
        assert issubclass(protocol, PatientConnection)
        protocol.limit = 4
        pairs = []
        for _ in range(4):
            pairs.append(await asyncio.open_connection("127.0.0.1", port))
            pairs[-1][1].write(part)
        while len(protocol.opened) < 4 or (b"POST" in part and protocol.waiting):
            await CLOCK.asleep(0.005)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert await ends(pairs[0][0])
        assert len(protocol.opened) == 4
        for _, one in [*pairs, (reader, writer)]:
            one.close()


async def test_at_the_limit_an_unread_answer_makes_room_and_one_that_is_under_way_does_not() -> None:
    app = Endless()
    async with served(app) as (port, config):
        protocol = config.http_protocol_class
        assert issubclass(protocol, PatientConnection)
        protocol.limit = 1
        _, unread = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        unread.write(HEAD)
        while not protocol.slow or protocol.waiting:
            await CLOCK.asleep(0.005)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        async with CLOCK.timeout(20):
            await app.is_over.wait()
        unread.close()
        writer.close()


async def test_at_the_limit_nobody_who_is_being_answered_is_dropped() -> None:
    may_answer = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await may_answer.wait()
        await short(scope, receive, send)

    async with served(slow) as (port, config):
        protocol = config.http_protocol_class
        assert issubclass(protocol, PatientConnection)
        protocol.limit = 1
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD)
        while not protocol.opened or protocol.slow:
            await CLOCK.asleep(0.005)
        late, other = await asyncio.open_connection("127.0.0.1", port)
        assert await ends(late)
        may_answer.set()
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.close()
        other.close()


async def test_running_out_of_descriptors_is_said_once_and_the_slowest_make_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(short) as (port, config):
        protocol = config.http_protocol_class
        assert issubclass(protocol, PatientConnection)
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        while len(protocol.opened) < 20:
            await CLOCK.asleep(0.005)
        loop = asyncio.get_running_loop()
        before = loop.get_exception_handler()
        context = {"message": "socket.accept() out of system resource", "exception": OSError(errno.EMFILE, "too many")}
        with out_of_descriptors(protocol), caplog.at_level(logging.ERROR):
            for _ in range(1000):
                loop.call_exception_handler(context)
            assert [line for line in caplog.messages if "no connection can be accepted" in line] == caplog.messages
            assert len(caplog.messages) == 1
            loop.call_exception_handler({"message": "something else"})
        assert caplog.messages[1:] == ["something else"]
        assert len(protocol.opened) == 4
        assert loop.get_exception_handler() == before
        for _, one in pairs:
            one.close()


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
