"""A small HTTP service on loopback that is well, flaky or down, as told. For the demo."""

from __future__ import annotations

import threading
from collections import Counter
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from holdfast.clock import chance
from holdfast.types import Rng


class Mood(Enum):
    """How the service answers."""

    WELL = "well"
    DOWN = "down: 503"


class _QuietServer(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed in the middle of its request is part of the story."""


class FlakyServer:
    """The service, on a free port, until the block is left."""

    def __init__(self, rng: Rng = chance) -> None:
        self._rng = rng
        self._lock = threading.Lock()
        self.mood = Mood.WELL
        self.failing_share = 0.0
        """How many of its answers are 503 while it is well."""
        self.requests = 0
        self.failures = 0
        self.seen: Counter[int] = Counter()
        """By order: how many requests were answered with 200, or failed though it was well."""
        self._server = _QuietServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FlakyServer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, order: int) -> int:
        """The status for the request that has just come."""
        with self._lock:
            self.requests += 1
            if self.mood is Mood.DOWN:
                return 503
            self.seen[order] += 1
            if self._rng() < self.failing_share:
                self.failures += 1
                return 503
            return 200

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status = service.take(int(self.path.rpartition("/")[2]))
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
                """The demo tells its own story."""

        return Handler
