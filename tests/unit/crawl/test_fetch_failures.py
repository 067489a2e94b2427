"""Requests that go wrong over real sockets: in few words, of the right type, within their time, and asked for once."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from holdfast.addresses import AddressGuard, networks
from holdfast.clock import SystemClock
from holdfast.crawl.fetch import Fetched, Fetcher
from holdfast.crawl.fetch_failures import page_error
from holdfast.crawl.time_limits import TimeLimits
from holdfast.errors import FetchFailed, Transient
from holdfast.testing import ManualClock
from holdfast.types import FailureType
from tests.unit.crawl.raw_site import (
    LOOPBACK,
    Answer,
    RawSite,
    answer,
    breathe,
    fetching,
    pass_time,
    redirect,
    resets,
    sends,
    stays_silent,
)

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("page", "cause"),
    [
        (resets, "connection reset"),
        (sends(), "connection reset"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-"), "connection reset"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), "truncated"),
        (sends(CHUNKED + b"4\r\nhalf\r\n"), "truncated"),
        (sends(CHUNKED + b"4\r\nha"), "truncated"),
        (sends(CHUNKED + b"zz\r\nhalf\r\n0\r\n\r\n"), "not HTTP"),
        (sends(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "not HTTP"),
        (sends(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n"), "not HTTP"),
        (sends(b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 20_000 + b"\r\n"), "not HTTP"),
    ],
)
async def test_an_answer_that_is_none_is_a_failure_of_the_network(page: Answer, cause: str) -> None:
    async with RawSite({"/": page}) as site, fetching() as fetcher:
        with pytest.raises(FetchFailed) as caught:
            await fetcher.get(site.url())
    error = caught.value
    assert error.cause == f"127.0.0.1:{site.port}: {cause}"
    assert error.failure_type is FailureType.NETWORK
    assert error.url == site.url()
    assert str(error).startswith(f"{site.url()}: {cause}: ")
    assert "\n" not in str(error)
    assert error.__cause__ is not None
    assert len(site.asked) == 1, "a request is not sent twice behind the back of who counts attempts"


async def test_nobody_listens() -> None:
    async with RawSite() as site:
        pass
    async with fetching() as fetcher:
        with pytest.raises(FetchFailed) as caught:
            await fetcher.get(site.url())
    assert caught.value.cause == f"127.0.0.1:{site.port}: connection refused"
    assert caught.value.failure_type is FailureType.NETWORK


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 64 + ".example", "a..example"])
async def test_a_name_without_an_address(host: str) -> None:
    def resolve(host: str, port: int) -> list[str]:
        try:
            host.encode("idna")
        except UnicodeError as error:
            raise Transient(f"{host} has no address: {error}") from error
        raise Transient(f"{host} has no address")

    async with fetching(guard=AddressGuard(resolve=resolve)) as fetcher:
        with pytest.raises(FetchFailed) as caught:
            await fetcher.get(f"http://{host}/")
    assert caught.value.cause == f"{host}: no address"
    assert caught.value.failure_type is FailureType.NETWORK


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (errno.EHOSTUNREACH, "no route"),
        (errno.ENETUNREACH, "no route"),
        (errno.ETIMEDOUT, "time limit"),
        (errno.EPIPE, "connection reset"),
    ],
)
def test_the_systems_own_errors_have_their_causes(code: int, cause: str) -> None:
    assert page_error(_unconnected(code), "http://a.example/").cause == f"a.example: {cause}"


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL])
def test_what_this_machine_is_short_of_is_no_sites_fault(code: int) -> None:
    with pytest.raises(OSError, match="short") as caught:
        page_error(_unconnected(code), "http://a.example/")
    assert caught.value.errno == code


def _unconnected(code: int) -> aiohttp.ClientConnectorError:
    key = ConnectionKey("a.example", 80, False, True, None, None, None)
    return aiohttp.ClientConnectorError(key, OSError(code, "short of it"))


# ---------------------------------------------------------------- kept connections


async def test_a_kept_connection_that_the_site_has_closed_is_replaced() -> None:
    async with RawSite({"/": answer(b"x"), "/late": sends()}) as site, fetching() as fetcher:
        await fetcher.get(site.url())
        site.pages["/late"] = _closes_once(site, answer(b"late"))
        assert (await fetcher.get(site.url("/late"))).body == b"late"
    assert site.paths == ["/", "/late", "/late"]
    assert site.connections == 2


def _closes_once(site: RawSite, then: bytes) -> Answer:
    async def close(writer: asyncio.StreamWriter) -> None:
        site.pages["/late"] = then

    return close


async def test_a_body_that_breaks_is_not_asked_for_again() -> None:
    broken = sends(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    async with RawSite({"/": answer(b"x"), "/b": broken}) as site, fetching() as fetcher:
        await fetcher.get(site.url())
        with pytest.raises(FetchFailed, match="truncated"):
            await fetcher.get(site.url("/b"))
        assert (await fetcher.get(site.url())).body == b"x"
    assert site.paths == ["/", "/b", "/"]


async def test_of_several_addresses_the_first_that_answers_is_used() -> None:
    guard = AddressGuard(networks("allow", LOOPBACK), lambda *_: ["127.0.0.9", "127.0.0.1"])
    async with RawSite({"/": answer(b"x")}) as site, fetching(guard=guard) as fetcher:
        assert (await fetcher.get(site.url(host="a.example"))).body == b"x"


# ---------------------------------------------------------------- time


HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-", HALF])
@pytest.mark.parametrize(
    ("limits", "after_s", "said"),
    [({"total_s": 40.0}, 15.0, "nothing for 15 s"), ({"read_s": 40.0}, 30.0, "no whole answer within 30 s")],
)
async def test_time_is_limited(
    sent: bytes, limits: dict[str, Any], after_s: float, said: str, clock: ManualClock
) -> None:
    async with RawSite({"/": stays_silent(sent)}) as site, fetching(clock=clock, **limits) as fetcher:
        task = await _asked(fetcher, site)
        pass_time(fetcher, clock, after_s - 0.1)
        await breathe()
        assert not task.done()
        pass_time(fetcher, clock, 0.1)
        with pytest.raises(FetchFailed, match=said) as caught:
            await task
        assert caught.value.cause == f"127.0.0.1:{site.port}: time limit"
        assert caught.value.failure_type is FailureType.NETWORK
        assert task.cancelling() == 0
        site.pages["/"] = answer(b"x")
        assert (await fetcher.get(site.url())).body == b"x", "the fetcher goes on"


async def test_an_answer_that_comes_drop_by_drop_has_the_whole_time_and_no_more(clock: ManualClock) -> None:
    drops: asyncio.Queue[bytes] = asyncio.Queue()

    async def drips(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(await drops.get())

    async with RawSite({"/": drips}) as site, fetching(clock=clock) as fetcher:
        task = await _asked(fetcher, site)
        for _ in range(2):
            pass_time(fetcher, clock, 14.0)
            drops.put_nowait(b".")
            await breathe()
            assert not task.done()
        pass_time(fetcher, clock, 2.0)
        with pytest.raises(FetchFailed, match="no whole answer within 30 s"):
            await task


async def test_redirects_do_not_begin_the_time_anew(clock: ManualClock) -> None:
    pages = {"/": redirect("/1"), "/1": redirect("/2"), "/2": stays_silent()}
    asked = []

    def follows(url: str) -> bool:
        asked.append(url)
        clock.advance(10.0)
        return True

    async with RawSite(pages) as site, fetching(clock=clock, read_s=40.0) as fetcher:
        task = asyncio.ensure_future(fetcher.get(site.url(), follows=follows))
        await _until(lambda: site.paths[-1:] == ["/2"])
        pass_time(fetcher, clock, 10.0)
        with pytest.raises(FetchFailed, match="no whole answer within 30 s"):
            await task
    assert len(asked) == 2


async def _asked(fetcher: Fetcher, site: RawSite) -> asyncio.Task[Fetched]:
    """A request that has come to the site, and its answer as far as it goes."""
    task = asyncio.ensure_future(fetcher.get(site.url()))
    await _until(lambda: bool(site.asked))
    await breathe()
    return task


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await breathe()


async def test_a_connection_that_does_not_come_about_is_given_up() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        async with fetching(connect_s=0.05) as fetcher:
            with pytest.raises(FetchFailed) as caught:
                await fetcher.get(f"http://127.0.0.1:{port}/")
        for one in waiting:
            one.close()
    assert caught.value.cause == f"127.0.0.1:{port}: time limit"


async def test_who_cancels_a_request_gets_it_cancelled_and_its_connection_closed() -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    async def watches(writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        begun.set()
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"1\r\nx\r\n")
                await writer.drain()
                await breathe()
        closed.set()

    async with RawSite({"/": watches}) as site, fetching() as fetcher:
        task = asyncio.ensure_future(fetcher.get(site.url()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closed.wait()


async def test_a_time_limit_and_a_cancellation_at_once_are_a_cancellation() -> None:
    limits = TimeLimits(SystemClock(), total_s=9.0, read_s=9.0)

    async def waits() -> None:
        with limits.begin() as limit:
            limit.end()
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.get_running_loop().create_future()

    task = asyncio.ensure_future(waits())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1
    limits.close()
