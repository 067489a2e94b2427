"""Sites that do not keep to HTTP: what they send is no page, never another one's, and costs no connection."""

from __future__ import annotations

import asyncio
import gzip
import os
from contextlib import suppress

import pytest

from holdfast.crawl.fetch import LONGEST_HEADER
from holdfast.errors import FetchFailed, PageError
from tests.unit.crawl.raw_site import Answer, RawSite, answer, breathe, fetching, redirect, resets, sends

FORGED = answer(b"forged")


# ---------------------------------------------------------------- what comes without being asked for


@pytest.mark.parametrize("extra", [FORGED, FORGED[:-3], b"HTTP/1.1 200 OK\r\n", b"\r\n", b"x"])
async def test_what_comes_after_an_answer_is_not_the_answer_to_the_next_request(extra: bytes) -> None:
    sent, goes_on = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                if sent.is_set():
                    writer.write(answer(b"two"))
                    continue
                writer.write(answer(b"one"))
                await goes_on.wait()
                writer.write(extra)
                sent.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, fetching() as fetcher:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        assert (await fetcher.get(url)).body == b"one"
        goes_on.set()
        await sent.wait()
        await breathe()
        assert (await fetcher.get(url)).body == b"two"


async def test_what_comes_with_an_answer_is_not_the_answer_to_the_next_request() -> None:
    async with RawSite({"/1": answer(b"one") + FORGED, "/2": answer(b"two")}) as site, fetching() as fetcher:
        assert (await fetcher.get(site.url("/1"))).body == b"one"
        assert (await fetcher.get(site.url("/2"))).body == b"two"


async def test_a_server_that_speaks_first_is_connected_to_once() -> None:
    """Such as one of SSH or mail: what it says is no answer, and no reason to connect over and over again."""
    connections = 0

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server, fetching() as fetcher:
        with pytest.raises(FetchFailed) as caught:
            await fetcher.get(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert caught.value.cause.endswith((": not HTTP", ": connection reset"))
    assert connections == 1


# ---------------------------------------------------------------- headers


async def test_a_header_may_be_as_long_as_those_of_real_sites() -> None:
    policy = "default-src 'self' " + "a" * (LONGEST_HEADER - 100)
    async with RawSite({"/": answer(b"x", Content_Security_Policy=policy)}) as site, fetching() as fetcher:
        assert (await fetcher.get(site.url())).headers["content-security-policy"] == policy


@pytest.mark.parametrize(
    "head",
    [
        b"X: " + b"a" * LONGEST_HEADER * 2,
        b"".join(b"X-%d: a\r\n" % n for n in range(100_000)),
        b"X: a\rContent-Length: 3",
        b"X: a\0b",
        b"Content-Length: 3\r\nContent-Length: 6",
        b"Content-Length: -3",
        b"Content-Length: 99999999999999999999999999",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked",
    ],
)
async def test_headers_that_can_be_read_in_two_ways_or_have_no_end_are_no_answer(head: bytes) -> None:
    page = sends(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\nabc" + FORGED)
    async with RawSite({"/": page, "/2": answer(b"two")}) as site, fetching() as fetcher:
        with pytest.raises(FetchFailed) as caught:
            await fetcher.get(site.url())
        assert (await fetcher.get(site.url("/2"))).body == b"two"
    assert caught.value.cause == f"127.0.0.1:{site.port}: not HTTP"
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("size", [b"FFFFFFFFFFFFFFFFF", b"-1", b"0x3", b"+3", b" 3"])
async def test_chunks_of_impossible_sizes_are_no_body(size: bytes) -> None:
    page = sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\nabc\r\n0\r\n\r\n")
    async with RawSite({"/": page}) as site, fetching() as fetcher:
        with pytest.raises(FetchFailed):
            await fetcher.get(site.url())


@pytest.mark.parametrize("status", [100, 102, 103])
async def test_what_is_said_before_the_answer_is_passed_over(status: int) -> None:
    page = b"HTTP/1.1 %d So\r\nLink: </a>\r\n\r\n" % status + answer(b"x")
    async with RawSite({"/": page}) as site, fetching() as fetcher:
        assert (await fetcher.get(site.url())).body == b"x"


# ---------------------------------------------------------------- connections


async def test_no_request_that_fails_or_is_cancelled_leaves_a_connection_open() -> None:
    pages: dict[str, Answer] = {
        "/reset": resets,
        "/nothing": sends(),
        "/half": sends(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"),
        "/junk": answer(b"x")[4:],
        "/large": answer(b"x" * 2_000),
        "/damaged": answer(b"x" * 50, Content_Encoding="gzip"),
        "/cut": answer(gzip.compress(bytes(range(256)))[:-9], Content_Encoding="gzip"),
        "/unknown": answer(b"x", Content_Encoding="br"),
        "/circle": redirect("/circle"),
        "/elsewhere": redirect("ftp://a/"),
        "/upgrade": b"HTTP/1.1 101 So\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        "/missing": answer(b"x" * 2_000, 404),
        "/waits": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
    }

    async def ask(path: str) -> None:
        task = asyncio.ensure_future(fetcher.get(site.url(path)))
        while path == "/waits" and not site.paths.count(path):
            await asyncio.sleep(0)  # noqa: TID251 - lets the others run
        if path == "/waits":
            await breathe()
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            assert isinstance(task.exception(), PageError | None)

    async with RawSite(pages) as site, fetching(max_bytes=1_000) as fetcher:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            for path in pages:
                await ask(path)
        for _ in range(5):
            await breathe()
        assert site.connections >= 60
        assert len(os.listdir("/proc/self/fd")) - before <= 4, "both ends of a connection that is kept, or two"
