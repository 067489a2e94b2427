"""A worker's own port: its metrics and its health, over a few lines of HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, SHUT_RDWR, SO_REUSEADDR, SOL_SOCKET, socket
from typing import Any, Final, Protocol

from holdfast.clock import SystemClock
from holdfast.ports import Clock
from holdfast.runtime.exposition import CONTENT_TYPE, Metric, text_of

_PLAIN: Final = "text/plain; charset=utf-8"
_REQUEST_S: Final = 5.0
_MOST_AT_ONCE: Final = 16


class Probed(Protocol):
    """Whoever can be asked over the port; from any thread."""

    def metrics(self) -> list[Metric]:
        """What it has counted, and how it is."""

    def why_not_live(self) -> str:
        """Why it should be killed and started again; empty when it should not."""

    def why_not_ready(self) -> str:
        """Why it cannot claim jobs; empty when it can."""


@contextmanager
def served(probed: Probed, host: str, port: int, *, clock: Clock | None = None) -> Iterator[int]:
    """Answer at /metrics, /health/live and /health/ready while the block runs; yields the port.

    A client has 5 s for its request and its answer, and of more than 16 the one that came first is dropped: whoever is
    slow, or means no good, does not keep a probe from its answer. OSError where it cannot be listened on.
    """
    server = _Server(probed, host, port, clock or SystemClock())
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="holdfast-port", daemon=True
    )
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, probed: Probed, host: str, port: int, clock: Clock) -> None:
        self.probed = probed
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[socket, float] = {}
        """The connections that are being answered, oldest first, and when each came."""
        super().__init__((host, port), _Answering)

    def server_bind(self) -> None:
        """Without the look-up of this machine's name that HTTPServer does, which may take long."""
        self.socket.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """On a thread of its own, of which there are only so many: slow clients must not pile up."""
        with self._lock:
            self._open[request] = self._clock.monotonic()
            self._drop(list(self._open)[:-_MOST_AT_ONCE])
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """It is over."""
        with self._lock:
            self._open.pop(request, None)
            super().shutdown_request(request)

    def service_actions(self) -> None:
        """Every tenth of a second: end what takes too long."""
        late_s = self._clock.monotonic() - _REQUEST_S
        with self._lock:
            self._drop([one for one, came_s in self._open.items() if came_s <= late_s])

    def _drop(self, connections: list[socket]) -> None:
        for one in connections:
            del self._open[one]
            with suppress(OSError):  # it has ended by itself
                one.shutdown(SHUT_RDWR)  # which ends the thread that reads or writes there

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or sent nonsense, is nobody's trouble."""


class _Answering(BaseHTTPRequestHandler):
    server: _Server
    server_version = "holdfast"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer."""
        probed = self.server.probed
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, CONTENT_TYPE, text_of(probed.metrics()))
            case "/health/live":
                self._say(probed.why_not_live())
            case "/health/ready":
                self._say(probed.why_not_ready())
            case _:
                self._answer(404, _PLAIN, b"/metrics, /health/live, /health/ready\n")

    do_HEAD = do_GET  # noqa: N815 - its base asks for this name

    def _say(self, why_not: str) -> None:
        self._answer(503 if why_not else 200, _PLAIN, f"{why_not or 'ok'}\n".encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is its base's
        """Nothing: a probe every second is no news."""
