"""Row 52: the URL of a webhook, or of a page, leads into the inner network, by whatever spelling, name or detour.

Nothing is reached.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import App
from holdfast.addresses import AddressGuard, networks
from holdfast.alerts import Notice, Webhook
from holdfast.crawl import Crawler, connecting
from holdfast.crawl.fetch import Fetcher, FetchLimits
from holdfast.errors import ConfigError, PageError, PageRefused, Permanent, Transient
from holdfast.testing import ManualClock
from tests.faults.report import Report
from tests.receiver import Receiver, status

STORE = "none"
SECRET = "0123456789abcdef"
NOTICE = Notice(id="n1", name="a", state="firing", value=1, threshold=0, text="", at=0)
PUBLIC = "93.184.215.14"

HOSTS = (
    "127.0.0.1 127.1 127.0.1 127.255.255.254 0x7f000001 0x7f.0.0.1 0177.0.0.1 2130706433 017700000001 0 0.0.0.0"
    " localhost LOCALHOST localhost. [::1] [0:0:0:0:0:0:0:1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1]"
    " [64:ff9b::7f00:1] [2002:7f00:1::] a@127.0.0.1 a:b@127.0.0.1 hooks.example@127.0.0.1 127.0.0.1#@hooks.example"
    " 127.0.0.1\\@hooks.example 127.0.0.1%23@hooks.example 127。0。0。1 ⓛⓞⓒⓐⓛⓗⓞⓢⓣ"
).split()
ADDRESSES = (
    "169.254.169.254 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 100.100.100.200 168.63.129.16 0.1.2.3"
    " 192.0.0.1 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255"
    " ::1 :: fe80::1 fe80::1%eth0 fec0::1 fc00::1 fd00:ec2::254 ff02::1 ::ffff:10.0.0.1 ::ffff:8.8.8.8 64:ff9b::a00:1"
    " 64:ff9b:1::1 2001::1 2001:db8::1 2002:a00:1:: 3fff::1 100::1 5f00::1"
).split()
OTHERS = (
    "file:///etc/passwd gopher://127.0.0.1:70/_x ftp://127.0.0.1/ dict://127.0.0.1:11211/ unix:///run/x //127.0.0.1/ "
    "javascript:alert(1) http:127.0.0.1 http:///x http:// http://[::1 http://a:b:c/ http://a:99999/ http://a:0/ http://-a/"
).split()


@pytest.fixture
def inner() -> Iterator[Receiver]:
    """What must not be reached."""
    with Receiver() as receiver:
        yield receiver


@pytest.mark.parametrize("host", HOSTS)
async def test_no_spelling_of_loopback_is_reached(
    host: str, inner: Receiver, clock: ManualClock, report: Report
) -> None:
    with pytest.raises((ConfigError, Permanent, Transient)):  # to some machines one of these is no name at all
        await Webhook(f"http://{host}:{inner.port}/", SECRET, clock=clock).deliver(NOTICE)
    assert inner.asked == []
    report("a webhook to some spelling of loopback", injected=1, note=f"reached {len(inner.asked)}")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f000001", "2130706433", "127.1"])
async def test_the_same_is_reached_where_it_is_allowed(host: str, inner: Receiver, clock: ManualClock) -> None:
    hook = Webhook(f"http://{host}:{inner.port}/", SECRET, allow=("127.0.0.0/8",), clock=clock)
    await hook.deliver(NOTICE)
    assert len(inner.asked) == 1


async def test_a_server_on_the_newer_loopback_is_not_reached_unless_allowed(clock: ManualClock) -> None:
    try:
        receiver = Receiver(host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    with receiver:
        with pytest.raises(ConfigError):
            Webhook(receiver.url("[::1]"), SECRET, clock=clock)
        with pytest.raises(Permanent):
            await Webhook(receiver.url("a.example"), SECRET, resolve=lambda *_: ["::1"], clock=clock).deliver(NOTICE)
        assert receiver.asked == []
        await Webhook(receiver.url("[::1]"), SECRET, allow=("::1/128",), clock=clock).deliver(NOTICE)
        assert len(receiver.asked) == 1


@pytest.mark.parametrize("address", ADDRESSES)
async def test_no_name_stands_for_an_inner_address(address: str, clock: ManualClock, connects: list[str]) -> None:
    hook = Webhook("https://hooks.example/", SECRET, resolve=lambda *_: [address], clock=clock)
    with pytest.raises(Permanent, match="may not be connected to"):
        await hook.deliver(NOTICE)
    assert connects == []


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00::1"])
def test_public_addresses_are_not_inner_ones(address: str) -> None:
    assert AddressGuard().allows(address)


@pytest.mark.parametrize("text", ["", "hooks.example", "127.0.0.1/8", "1.2.3", "::g"])
def test_what_is_no_address_is_not_connected_to(text: str) -> None:
    assert not AddressGuard(networks("allow", ["0.0.0.0/0", "::/0"])).allows(text)


@pytest.mark.parametrize("url", OTHERS)
def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Webhook(url, SECRET)
    assert str(caught.value).startswith("url: ")


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where connections were begun; those beyond this machine are refused here."""
    real, begun = socket.create_connection, []

    def connect(address: tuple[str, int], *args: Any, **options: Any) -> socket.socket:
        begun.append(address[0])
        if not address[0].startswith("127."):
            raise ConnectionRefusedError("not from here")
        return real(address, *args, **options)

    monkeypatch.setattr(socket, "create_connection", connect)
    return begun


async def test_a_name_that_changes_between_question_and_connection_gains_nothing(
    inner: Receiver, clock: ManualClock, connects: list[str], report: Report
) -> None:
    asked = 0

    def changing(_host: str, _port: int) -> list[str]:
        nonlocal asked
        asked += 1
        return [PUBLIC] if asked % 2 else ["127.0.0.1"]

    for _ in range(10):  # each with a breaker of its own
        hook = Webhook(inner.url("rebind.example"), SECRET, resolve=changing, clock=clock)
        with pytest.raises(Permanent):  # the first try goes nowhere, the second one is refused
            await hook.deliver(NOTICE)
    assert set(connects) == {PUBLIC}
    assert (len(connects), asked) == (10, 20), (
        "each answer is either connected to, or refused: nobody asks a second time"
    )
    assert inner.asked == []
    report(
        "a webhook's name changes between question and connection",
        injected=asked,
        note=f"reached {len(inner.asked)}",
    )


async def test_of_several_addresses_only_public_ones_are_tried(
    inner: Receiver, clock: ManualClock, connects: list[str]
) -> None:
    hook = Webhook(inner.url("a.example"), SECRET, resolve=lambda *_: ["127.0.0.1", PUBLIC, "10.0.0.1"], clock=clock)
    with pytest.raises(ConnectionRefusedError):
        await hook.deliver(NOTICE)
    assert set(connects) == {PUBLIC}


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_leads_nowhere(code: int, inner: Receiver, clock: ManualClock) -> None:
    with Receiver(status(code, Location=inner.url()), host="127.0.0.2") as outer:
        hook = Webhook(outer.url(), SECRET, allow=("127.0.0.2/32",), clock=clock)
        with pytest.raises(Permanent):
            await hook.deliver(NOTICE)
    assert (len(outer.asked), inner.asked) == (1, [])


# ---------------------------------------------------------------- crawls


def fetcher_with(guard: AddressGuard, clock: ManualClock) -> Fetcher:
    return Fetcher(user_agent="t", clock=clock, limits=FetchLimits(), guard=guard, connections=8)


async def test_a_crawl_reaches_nothing_of_the_inner_network(
    inner: Receiver, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, inner.url())
    names = {f"n{n}.example": address for n, address in enumerate(ADDRESSES)}
    async with fetcher_with(AddressGuard(), clock) as fetcher:
        for url in [*(f"http://{host}:{inner.port}/" for host in HOSTS), *OTHERS]:
            with pytest.raises(PageError):
                await fetcher.get(url)
    async with fetcher_with(AddressGuard(resolve=lambda host, _: [names[host]]), clock) as fetcher:
        for name in names:
            with pytest.raises(PageRefused, match="may not be connected to"):
                await fetcher.get(f"https://{name}/")
    assert inner.asked == []
    tried = len(HOSTS) + len(OTHERS) + len(names)
    report(
        "a crawl is led into the inner network by spellings, names and schemes, with proxies set",
        injected=tried,
        note=f"reached {len(inner.asked)}",
    )


async def test_a_crawl_follows_neither_redirects_nor_changing_names_into_the_inner_network(
    inner: Receiver, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "NAMES_KEPT_S", 0)
    asked = 0

    def changing(_host: str, _port: int) -> list[str]:
        nonlocal asked
        asked += 1
        return ["127.0.0.2"] if asked % 2 else ["127.0.0.1"]

    guard = AddressGuard(networks("allow", ["127.0.0.2/32"]), changing)
    async with fetcher_with(guard, clock) as fetcher:
        for _ in range(10):  # nobody listens at the one address, and the other is refused
            with pytest.raises(PageError):
                await fetcher.get(inner.url("rebind.example"))
        for code in (301, 302, 303, 307, 308):
            with Receiver(status(code, Location=inner.url()), host="127.0.0.2") as outer:
                with pytest.raises(PageRefused, match="may not be connected to"):
                    await fetcher.get(outer.url())
                assert len(outer.asked) == 1
    assert (asked, inner.asked) == (10, [])


async def test_a_crawl_with_seeds_in_the_inner_network_ends_without_having_asked(inner: Receiver) -> None:
    app = App("memory://")
    summary = await Crawler(app, robots=False).arun(inner.url(), inner.url("localhost"))
    assert (summary.dead, summary.done, inner.asked) == (2, 0, [])
    allowed = Crawler(app, name="allowed", robots=False, follow=False, allow_private=["127.0.0.0/8"])
    await allowed.arun(inner.url())
    await app.aclose()
    assert len(inner.asked) == 1, "the same is asked where it is allowed"
