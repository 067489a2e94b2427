"""A server that fails in every way a client can meet, and the question all these tests ask: what was that?"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol

import pytest
import trustme

from holdfast.policy.classify import classify
from holdfast.types import Failure

_TLS_HELLO = b"\x16\x03"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class FailingServer(socketserver.ThreadingTCPServer):
    """Answers `/status/<code>` with that status, `/reset`, `/hang`, `/truncated` and `/garbage` with that fault, and
    a path in `replies` with that reply."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.tls = tls
        self.replies: dict[str, Reply] = {}
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.server_address[1]}"

    def reply(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> str:
        """The URL of a page that answers so."""
        path = f"/reply/{len(self.replies)}"
        self.replies[path] = Reply(status, headers or {}, body)
        return self.url + path

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Close without the polite farewell that would turn a reset into an end."""
        assert isinstance(request, socket.socket)
        request.close()


class _Connection(socketserver.BaseRequestHandler):
    server: FailingServer
    request: socket.socket

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # clients under test leave whenever they like
            if self.server.tls is not None:
                self.request = self.server.tls.wrap_socket(self.request, server_side=True)
            with self.request:
                self._answer(_path_of(self.request))

    def _answer(self, path: str) -> None:
        if path == "/reset":
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif path == "/hang":
            self.server.stopping.wait()
        elif path.startswith("/truncated"):
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")
        elif path == "/garbage":
            self.request.sendall(b"this is no HTTP\r\n\r\n")
        elif path.startswith("/status/"):
            self._send(Reply(int(path.removeprefix("/status/")), body=b"no"))
        else:
            self._send(self.server.replies.get(path, Reply(200)))

    def _send(self, reply: Reply) -> None:
        reasons = {status.value: status.phrase for status in HTTPStatus}
        lines = [f"HTTP/1.1 {reply.status} {reasons.get(reply.status, 'Unknown')}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        lines += [f"Content-Length: {len(reply.body)}", "", ""]
        self.request.sendall("\r\n".join(lines).encode() + reply.body)


def _path_of(connection: socket.socket) -> str:
    """The path of the request, which is read to its end: closing with unread bytes would reset the connection."""
    received = connection.recv(65_536)
    if received.startswith(_TLS_HELLO):
        return "/garbage"
    while b"\r\n\r\n" not in received and (more := connection.recv(65_536)):
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    missing = (int(lengths[0].split(b":")[1]) if lengths else 0) - len(body)
    while missing > 0 and (more := connection.recv(65_536)):
        missing -= len(more)
    return head.split(b" ")[1].decode("latin-1") if b" " in head else ""


def _running(server: FailingServer) -> Iterator[FailingServer]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    with server:
        yield server
        server.stopping.set()
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def server() -> Iterator[FailingServer]:
    yield from _running(FailingServer())


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """An authority that no client trusts."""
    return trustme.CA()


@pytest.fixture(scope="session")
def tls_server(authority: trustme.CA) -> Iterator[FailingServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    yield from _running(FailingServer(context))


@pytest.fixture(scope="session")
def refused_url() -> Iterator[str]:
    """A port that is taken, so nobody else gets it, and refuses connections, because nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


class Ask(Protocol):
    def __call__(self, call: Callable[[], object]) -> Failure: ...


class AskAsync(Protocol):
    async def __call__(self, call: Callable[[], Awaitable[object]]) -> Failure: ...


@pytest.fixture(scope="session")
def failure_of() -> Ask:
    """Make a call that must fail, and classify how it does."""

    def ask(call: Callable[[], object]) -> Failure:
        try:
            call()
        except Exception as error:
            return classify(error)
        return pytest.fail("the call did not fail")

    return ask


@pytest.fixture(scope="session")
def afailure_of() -> AskAsync:
    """The same for an async call."""

    async def ask(call: Callable[[], Awaitable[object]]) -> Failure:
        try:
            await call()
        except Exception as error:
            return classify(error)
        return pytest.fail("the call did not fail")

    return ask


@pytest.fixture(scope="session")
def meanings() -> dict[int, str]:
    """What the requirements say of every status, written down a second time, by hand."""
    told = dict.fromkeys(range(400, 500), "permanent") | dict.fromkeys(range(500, 600), "transient")
    told |= {429: "rate_limited", 408: "transient", 409: "transient", 423: "transient", 425: "transient"}
    told |= {401: "authentication", 403: "authentication", 407: "authentication"}
    return told | dict.fromkeys((400, 422, 413, 414, 415), "validation")
