"""A web server of a test's own, on loopback, which remembers what it was asked."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, NamedTuple, Self

Answer = Callable[["Handler"], None]


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def status(code: int, body: bytes = b"", **headers: str) -> Answer:
    """An answer of this status; the names of headers have _ for -."""

    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in {**headers, "Content_Length": str(len(body))}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    return answer


class Handler(BaseHTTPRequestHandler):
    """Hands each request to the receiver."""

    def answer(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server.receiver.take(Asked(self.command, self.path, dict(self.headers.items()), body))(self)

    do_POST = do_GET = do_HEAD = answer  # noqa: N815 - as the standard library names them

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: tests are quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what some tests are about."""


class _Server6(_Server):
    address_family = socket.AF_INET6


OK: Final = status(200)


class Receiver:
    """A server in the background; it gives its answers in order, and the last one for ever."""

    def __init__(self, *answers: Answer, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.arrived = threading.Semaphore(0)
        self._answers = list(answers) or [OK]
        self._server = (_Server6 if ":" in host else _Server)((host, 0), Handler)
        self._server.receiver = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.host = host
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def url(self, host: str | None = None, path: str = "/hook", scheme: str = "http") -> str:
        return f"{scheme}://{host or self.host}:{self.port}{path}"

    def take(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        self.arrived.release()
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
