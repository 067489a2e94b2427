"""TLS: certificates that cannot be trusted are told from handshakes that fail, and nothing is asked for over either."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import trustme

from holdfast.addresses import AddressGuard, networks
from holdfast.errors import FetchFailed
from holdfast.types import FailureType
from tests.unit.crawl.raw_site import LOOPBACK, RawSite, answer, fetching, stays_silent

PAGE = {"/": answer(b"secret")}
GUARD = AddressGuard(networks("allow", LOOPBACK), lambda *_: ["127.0.0.1"])
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def _context(authority: trustme.CA, *names: str, not_after: datetime | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, not_after=not_after, not_before=LONG_AGO).configure_cert(context)
    return context


@pytest.fixture
async def site(authority: trustme.CA) -> AsyncIterator[RawSite]:
    async with RawSite(PAGE, tls=_context(authority, "shop.example")) as site:
        yield site


async def test_an_authority_of_ones_own_can_be_trusted(site: RawSite, trusting: ssl.SSLContext) -> None:
    async with fetching(guard=GUARD, verify_tls=trusting) as fetcher:
        assert (await fetcher.get(site.url("/", "shop.example"))).body == b"secret"


async def test_certificates_need_not_be_looked_at(site: RawSite) -> None:
    async with fetching(guard=GUARD, verify_tls=False) as fetcher:
        assert (await fetcher.get(site.url("/", "other.example"))).body == b"secret"


async def test_an_unknown_authority_is_not_trusted(site: RawSite) -> None:
    async with fetching(guard=GUARD) as fetcher:
        with pytest.raises(FetchFailed) as caught:
            await fetcher.get(site.url("/", "shop.example"))
    assert caught.value.cause == f"shop.example:{site.port}: TLS: certificate not trusted"
    assert caught.value.failure_type is FailureType.PERMANENT
    assert site.asked == []


async def test_the_certificate_of_another_name_is_not_trusted(site: RawSite, trusting: ssl.SSLContext) -> None:
    async with fetching(guard=GUARD, verify_tls=trusting) as fetcher:
        for host in ("other.example", "127.0.0.1"):
            with pytest.raises(FetchFailed) as caught:
                await fetcher.get(site.url("/", host))
            assert caught.value.cause == f"{host}:{site.port}: TLS: certificate of another name"
            assert caught.value.failure_type is FailureType.PERMANENT
    assert site.asked == []


async def test_an_expired_certificate_is_not_trusted(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    expired = _context(authority, "shop.example", not_after=datetime(2021, 1, 1, tzinfo=UTC))
    async with (
        RawSite(PAGE, tls=expired) as site,
        fetching(guard=GUARD, verify_tls=trusting) as fetcher,
    ):
        with pytest.raises(FetchFailed) as caught:
            await fetcher.get(site.url("/", "shop.example"))
    assert caught.value.cause == f"shop.example:{site.port}: TLS: certificate expired"
    assert caught.value.failure_type is FailureType.PERMANENT
    assert site.asked == []


async def test_a_site_that_speaks_no_tls_is_a_failure_of_the_network() -> None:
    def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server, fetching(guard=GUARD) as fetcher:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(FetchFailed) as caught:
            await fetcher.get(f"https://shop.example:{port}/")
    assert caught.value.cause == f"shop.example:{port}: TLS: handshake failed"
    assert caught.value.failure_type is FailureType.NETWORK


async def test_a_handshake_that_does_not_come_about_is_given_up() -> None:
    async with RawSite({"/": stays_silent()}) as site, fetching(guard=GUARD, connect_s=0.05) as fetcher:
        site.scheme = "https"
        with pytest.raises(FetchFailed) as caught:
            await fetcher.get(site.url("/", "shop.example"))
    assert caught.value.cause == f"shop.example:{site.port}: time limit"
