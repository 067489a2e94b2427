"""The API on a real port, and what becomes of requests when it stops."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast.ops.api import ApiSettings
from holdfast.ops.api.serving import ApiServer, listen
from tests.unit.ops.api.shopfront import new_app

SECONDS = 10.0
HEAD = (
    b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
    b"Expect: 100-continue\r\n\r\n"
)


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_a_server_that_stops_refuses_what_is_not_whole_and_nothing_breaks(
    caplog: pytest.LogCaptureFixture, is_elsewhere: bool
) -> None:
    app = new_app()
    listening = listen("127.0.0.1", 0)
    server = ApiServer(app, ApiSettings(), listening)
    started = asyncio.Event()
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(SECONDS):
            running = asyncio.create_task(server.run(started.set))
            await started.wait()
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(HEAD)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")  # it waits for the body now
            writer.write(b"{")
            if is_elsewhere:
                await asyncio.to_thread(server.stop)
            else:
                server.stop()
            answer = await reader.read()
            await running
            writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503")
    assert b"connection: close" in head.lower()
    assert b"retry-after: 2" in head.lower()
    assert b"the server is stopping" in body
    assert caplog.records == []
    await app.aclose()
