"""Where a crawl may connect to: no spelling, name or redirect leads to an address that is not allowed."""

from __future__ import annotations

import socket

import pytest

from holdfast.addresses import AddressGuard, networks
from holdfast.crawl import connecting
from holdfast.errors import FetchFailed, PageRefused
from holdfast.types import FailureType
from tests.unit.crawl.raw_site import RawSite, answer, fetching, redirect

PAGE = answer(b"inner")
PUBLIC = "93.184.215.14"
SPELLINGS = (
    "127.0.0.1 127.1 127.0.1 0x7f000001 0x7f.0.0.1 0177.0.0.1 2130706433 017700000001 0 0.0.0.0 localhost LOCALHOST"
    " localhost. [::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [64:ff9b::7f00:1] [2002:7f00:1::]"
    " 169.254.169.254 10.0.0.1 192.168.0.1 [fe80::1] [fd00:ec2::254]"
).split()


@pytest.mark.parametrize("host", SPELLINGS)
async def test_no_spelling_of_an_inner_address_is_connected_to(host: str, dialled: list[str]) -> None:
    async with RawSite({"/": PAGE}, host="127.0.0.1") as inner, fetching(guard=AddressGuard()) as fetcher:
        with pytest.raises((PageRefused, FetchFailed)) as caught:  # to some machines one of these is no name at all
            await fetcher.get(inner.url("/", host))
    if isinstance(caught.value, PageRefused):
        assert caught.value.failure_type is FailureType.PERMANENT
        assert caught.value.cause.split(": ")[-1] in {"address not allowed", "no usable address"}
    assert (inner.connections, dialled) == (0, [])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f000001", "[::ffff:127.0.0.1]"])
async def test_the_same_is_connected_to_where_it_is_allowed(host: str) -> None:
    async with RawSite({"/": PAGE}) as inner, fetching(allow=("127.0.0.0/8", "::ffff:127.0.0.1/128")) as fetcher:
        assert (await fetcher.get(inner.url("/", host))).body == b"inner"


async def test_the_refusal_names_the_address() -> None:
    guard = AddressGuard(resolve=lambda *_: ["10.0.0.7", "fd00::7"])
    async with fetching(guard=guard) as fetcher:
        with pytest.raises(PageRefused) as caught:
            await fetcher.get("http://intranet.example/x")
    what = "http://intranet.example/x: intranet.example is 10.0.0.7, fd00::7, which may not be connected to"
    what += " unless allow_private says so"
    assert str(caught.value) == what
    assert caught.value.cause == "intranet.example: address not allowed"


@pytest.mark.parametrize("to", ["http://127.0.0.1:{}/", "http://localhost:{}/", "//0x7f000001:{}/", "http://[::1]:{}/"])
async def test_a_redirect_does_not_lead_to_an_address_that_is_not_allowed(to: str) -> None:
    async with (
        RawSite({"/": PAGE}) as inner,
        RawSite({"/": redirect(to.format(inner.port))}, host="127.0.0.2") as outer,
        fetching(allow=("127.0.0.2/32",)) as fetcher,
    ):
        with pytest.raises(PageRefused, match="may not be connected to") as caught:
            await fetcher.get(outer.url())
    assert caught.value.url == outer.url()
    assert (outer.connections, inner.connections) == (1, 0)


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses for which sockets were made; those beyond this machine cannot be had here."""
    real, made = connecting.GuardedConnector._socket_for, []

    def make(self: connecting.GuardedConnector, info: tuple[object, ...]) -> socket.socket:
        opened = real(self, info)
        address = info[4]
        assert isinstance(address, tuple)
        made.append(address[0])
        if not address[0].startswith("127."):
            opened.close()
            raise ConnectionRefusedError("not from here")
        return opened

    monkeypatch.setattr(connecting.GuardedConnector, "_socket_for", make)
    return made


async def test_a_name_whose_addresses_change_gains_nothing(monkeypatch: pytest.MonkeyPatch, dialled: list[str]) -> None:
    monkeypatch.setattr(connecting, "NAMES_KEPT_S", 0)  # looked up anew for each request
    asked = 0

    def changing(_host: str, _port: int) -> list[str]:
        nonlocal asked
        asked += 1
        return [PUBLIC] if asked % 2 else ["127.0.0.1"]

    async with RawSite({"/": PAGE}) as inner, fetching(guard=AddressGuard(resolve=changing)) as fetcher:
        for _ in range(5):
            with pytest.raises(FetchFailed):  # it is what was asked about that is connected to
                await fetcher.get(inner.url("/", "rebind.example"))
            with pytest.raises(PageRefused):
                await fetcher.get(inner.url("/", "rebind.example"))
    assert (asked, dialled, inner.connections) == (10, [PUBLIC] * 5, 0)


async def test_of_several_addresses_only_allowed_ones_are_tried(dialled: list[str]) -> None:
    guard = AddressGuard(networks("allow", ["127.0.0.1/32"]), lambda *_: ["10.0.0.1", "127.0.0.2", "127.0.0.1", "::1"])
    async with RawSite({"/": PAGE}) as site, fetching(guard=guard) as fetcher:
        assert (await fetcher.get(site.url("/", "a.example"))).body == b"inner"
    assert dialled == ["127.0.0.1"]


async def test_a_socket_asks_again_with_the_address_it_is_made_for() -> None:
    answers = iter([True, False])

    class Changing(AddressGuard):
        def allows(self, text: str) -> bool:
            return next(answers)

    async with RawSite({"/": PAGE}) as site, fetching(guard=Changing(resolve=lambda *_: ["127.0.0.1"])) as fetcher:
        with pytest.raises(PageRefused, match=r"127\.0\.0\.1 may not be connected to"):
            await fetcher.get(site.url("/", "a.example"))
    assert site.connections == 0


async def test_names_are_looked_up_once_for_many_requests() -> None:
    asked = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["127.0.0.1"]

    guard = AddressGuard(networks("allow", ["127.0.0.0/8"]), resolve)
    page = answer(b"x", Connection="close")
    async with RawSite({"/": page}) as site, fetching(guard=guard) as fetcher:
        for _ in range(3):
            await fetcher.get(site.url("/", "a.example"))
    assert (site.connections, asked) == (3, [("a.example", site.port)])
