"""Webhooks over real HTTP: what is sent, what is tried again, and what ends a request that takes too long."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trustme

from holdfast.addresses import AddressGuard, networks, place_of
from holdfast.alerts import Notice, Webhook, verify
from holdfast.errors import CircuitOpenError, ConfigError, Permanent, RateLimited, TimeLimitExceeded, Transient
from holdfast.ops.request import Request
from holdfast.testing import ManualClock
from tests.receiver import OK, Answer, Handler, Receiver, status

SECRET = "0123456789abcdef"
LOOPBACK = ("127.0.0.0/8",)
NOTICE = Notice(
    id="n1",
    name="error rate",
    state="firing",
    value=0.2,
    threshold=0.1,
    text="20% of attempts failed; password=hunter2",
    at=1e9,
    app="shop",
    metrics={"attempts": 5},
)


def webhook(receiver: Receiver, clock: ManualClock, **options: Any) -> Webhook:
    return Webhook(receiver.url(), SECRET, allow=LOOPBACK, clock=clock, **options)


async def test_a_notice_is_a_signed_post_of_json(clock: ManualClock) -> None:
    with Receiver() as receiver:
        await Webhook(receiver.url(path="/a/b?c=d"), SECRET, allow=LOOPBACK, clock=clock).deliver(NOTICE)
    (asked,) = receiver.asked
    assert (asked.method, asked.path) == ("POST", "/a/b?c=d")
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.headers["Host"] == f"127.0.0.1:{receiver.port}"
    assert asked.headers["Holdfast-Id"] == "n1"
    assert asked.headers["Holdfast-Timestamp"] == str(int(clock.now()))
    body = json.loads(asked.body)
    assert body == {
        "id": "n1",
        "name": "error rate",
        "state": "firing",
        "value": 0.2,
        "threshold": 0.1,
        "text": "20% of attempts failed; password=[redacted]",
        "at": 1e9,
        "app": "shop",
        "is_reminder": False,
        "metrics": {"attempts": 5},
    }
    assert verify(asked.headers, asked.body, SECRET, clock.now()).id == "n1"


async def test_a_failure_that_can_heal_is_tried_again_with_the_same_id(clock: ManualClock) -> None:
    with Receiver(status(503), status(500), OK) as receiver:
        await webhook(receiver, clock).deliver(NOTICE)
    assert [asked.headers["Holdfast-Id"] for asked in receiver.asked] == ["n1"] * 3
    assert len(clock.sleeps) == 2


async def test_each_try_is_signed_anew(clock: ManualClock) -> None:
    with Receiver(status(503, Retry_After="20"), OK) as receiver:
        await webhook(receiver, clock).deliver(NOTICE)
    assert clock.sleeps == [20.0]
    stamps = [int(asked.headers["Holdfast-Timestamp"]) for asked in receiver.asked]
    assert stamps[1] - stamps[0] == 20
    assert verify(receiver.asked[1].headers, receiver.asked[1].body, SECRET, clock.now(), tolerance_s=1)


async def test_a_refusal_is_not_repeated(clock: ManualClock) -> None:
    words = r"answered 403: token=\[redacted\] is wrong\\x1b\[31m$"
    with (
        Receiver(status(403, b"token=hunter2 is wrong\x1b[31m")) as receiver,
        pytest.raises(Permanent, match=words),
    ):
        await webhook(receiver, clock).deliver(NOTICE)
    assert len(receiver.asked) == 1


async def test_a_server_that_asks_to_slow_down_is_heard(clock: ManualClock) -> None:
    with Receiver(status(429, Retry_After="7"), OK) as receiver:
        await webhook(receiver, clock).deliver(NOTICE)
    assert clock.sleeps == [7.0]
    with Receiver(status(429, Retry_After="3600")) as receiver, pytest.raises(RateLimited):
        await webhook(receiver, clock).deliver(NOTICE)
    assert len(receiver.asked) == 1, "a later turn of the alerts comes back to it"


async def test_a_host_that_fails_again_and_again_is_left_alone(clock: ManualClock) -> None:
    with Receiver(status(500)) as receiver:
        hook = webhook(receiver, clock)
        for _ in range(2):
            with pytest.raises(Transient):
                await hook.deliver(NOTICE)
        asked = len(receiver.asked)
        with pytest.raises(CircuitOpenError):
            await hook.deliver(NOTICE)
        assert (asked, len(receiver.asked)) == (5, 5)


async def test_a_redirect_is_not_followed(clock: ManualClock) -> None:
    with (
        Receiver() as other,
        Receiver(status(307, Location=other.url())) as receiver,
        pytest.raises(Permanent, match="redirects are not followed"),
    ):
        await webhook(receiver, clock).deliver(NOTICE)
    assert (len(receiver.asked), len(other.asked)) == (1, 0)


async def test_a_proxy_of_the_environment_is_not_used(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy, Receiver() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(path=""))
        await webhook(receiver, clock).deliver(NOTICE)
    assert (len(receiver.asked), len(proxy.asked)) == (1, 0)


def garbled(handler: Handler) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH\r\n")


def hangs_up(handler: Handler) -> None:
    handler.close_connection = True


@pytest.mark.parametrize("answer", [garbled, hangs_up])
async def test_what_is_no_answer_is_tried_again(clock: ManualClock, answer: Answer) -> None:
    with Receiver(answer, OK) as receiver:
        await webhook(receiver, clock).deliver(NOTICE)
    assert len(receiver.asked) == 2


async def test_of_an_endless_answer_only_the_beginning_is_read(clock: ManualClock) -> None:
    written = 0

    def endless(handler: Handler) -> None:
        nonlocal written
        handler.send_response(200)
        handler.end_headers()
        while True:
            written += handler.wfile.write(b"x" * 65_536)

    with Receiver(endless) as receiver:
        await webhook(receiver, clock).deliver(NOTICE)
    assert written < 50_000_000


def webhook_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("holdfast-webhook")]


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)  # noqa: TID251 - only lets others run


@pytest.mark.parametrize("is_secure", [False, True])
async def test_a_server_that_answers_drop_by_drop_is_cut_off_with_its_thread(
    clock: ManualClock, is_secure: bool
) -> None:
    is_over = threading.Event()

    def drips(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "60000")
        handler.end_headers()
        while not is_over.wait(0.005):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    ca = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    ca.issue_cert("127.0.0.1").configure_cert(server)
    ca.configure_trust(client)
    with Receiver(drips, tls=server if is_secure else None) as receiver:
        url = receiver.url(scheme="https" if is_secure else "http")
        hook = Webhook(url, SECRET, allow=LOOPBACK, timeout=10.0, tls=client, clock=clock)
        sending = asyncio.create_task(hook.deliver(NOTICE))
        for number in range(1, 5):
            await _until(lambda number=number: len(receiver.asked) == number)  # type: ignore[misc]
            clock.advance(10.0)
        with pytest.raises(TimeLimitExceeded):
            await sending
        await _until(lambda: not webhook_threads())  # while the server still drips
        is_over.set()


async def test_a_name_that_is_found_too_late_is_not_connected_to(clock: ManualClock) -> None:
    is_over = threading.Event()

    def hang(_host: str, _port: int) -> list[str]:
        is_over.wait(60)
        return ["127.0.0.1"]

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        url = f"http://hooks.example:{listening.getsockname()[1]}/"
        hook = Webhook(url, SECRET, allow=LOOPBACK, timeout=10.0, resolve=hang, clock=clock)
        sending = asyncio.create_task(hook.deliver(NOTICE))
        for number in range(1, 5):
            await _until(lambda number=number: len(webhook_threads()) == number)  # type: ignore[misc]
            clock.advance(10.0)
        with pytest.raises(TimeLimitExceeded):
            await sending
        is_over.set()
        await _until(lambda: not webhook_threads())
        with pytest.raises(BlockingIOError):
            listening.accept()


class Cutting:
    """Connects as `socket.create_connection` does, and has the request cut at that time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuses: bool) -> None:
        self.asked: list[str] = []
        self.made: list[socket.socket] = []
        self.request: Request | None = None
        self._refuses = refuses
        self._real = socket.create_connection
        monkeypatch.setattr(socket, "create_connection", self)

    def __call__(self, address: tuple[str, int], timeout: float) -> socket.socket:
        self.asked.append(address[0])
        assert self.request is not None
        if not self._refuses:
            self.made.append(self._real(address, timeout))
        self.request.cut()
        if self._refuses:
            raise ConnectionRefusedError
        return self.made[-1]


@pytest.mark.parametrize("refuses", [True, False])
def test_after_the_cut_nothing_is_sent_and_no_other_address_is_tried(
    monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    with Receiver() as receiver:
        guard = AddressGuard(networks("allow", LOOPBACK), lambda *_: ["127.0.0.1", "127.0.0.2"])
        cutting = Cutting(monkeypatch, refuses=refuses)
        place = place_of("url", receiver.url("hooks.example"))
        cutting.request = Request(place, method="POST", body=b"{}", guard=guard)
        with pytest.raises(TimeoutError, match="the request was given up"):
            cutting.request.send()
        assert cutting.asked == ["127.0.0.1"]
        assert all(made.fileno() == -1 for made in cutting.made), "closed"
    assert receiver.asked == []


async def test_https_is_checked_against_the_name_of_the_url(clock: ManualClock) -> None:
    ca = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    ca.issue_cert("hooks.example").configure_cert(server)
    ca.configure_trust(client)
    names: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: names.append(name)
    with Receiver(tls=server) as receiver:

        def hook(host: str) -> Webhook:
            url = receiver.url(host, scheme="https")
            options: dict[str, Any] = {"tls": client, "resolve": lambda _host, _port: ["127.0.0.1"], "clock": clock}
            return Webhook(url, SECRET, allow=LOOPBACK, **options)

        await hook("hooks.example").deliver(NOTICE)
        assert names == ["hooks.example"]
        assert receiver.asked[0].headers["Host"] == f"hooks.example:{receiver.port}"
        with pytest.raises(ssl.SSLCertVerificationError):
            await hook("other.example").deliver(NOTICE)
    assert len(receiver.asked) == 1


async def test_a_second_address_is_used_when_the_first_does_not_answer(clock: ManualClock) -> None:
    with Receiver(host="127.0.0.2") as receiver:
        url = receiver.url("hooks.example")
        hook = Webhook(url, SECRET, allow=LOOPBACK, resolve=lambda *_: ["127.0.0.1", "127.0.0.2"], clock=clock)
        await hook.deliver(NOTICE)
    assert len(receiver.asked) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"secret": "short"}, "secret: must be text or bytes of at least 16, made by chance"),
        ({"secret": None}, "secret: must be text or bytes of at least 16, made by chance"),
        ({"allow": "10.0.0.0/8"}, "allow='10.0.0.0/8': must be a list of networks such as '10.0.0.0/8'"),
        ({"allow": ["10.0.0.1/8"]}, "allow=['10.0.0.1/8']: must be networks such as '10.0.0.0/8': 10.0.0.1/8 has host"),
        ({"allow": [7]}, "allow=[7]: must be networks such as '10.0.0.0/8'"),
        ({"timeout": 0}, "timeout=0: must be a number, above 0"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"url": "https://hooks.example/a", "secret": SECRET, **options}
    with pytest.raises(ConfigError) as caught:
        Webhook(**given)
    assert str(caught.value).startswith(words)


def test_nothing_secret_is_shown() -> None:
    assert repr(Webhook("https://hooks.example/T01/hunter2?k=1", SECRET)) == "Webhook(https://hooks.example/…)"
