"""A small HTTP service on loopback that is well, busy, broken or gone, as told. For the demo."""

from __future__ import annotations

import socket
import struct
import threading
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


class Mood(Enum):
    """How the service answers."""

    WELL = "well"
    RESETTING = "resetting connections"
    BUSY = "busy: 429, Retry-After: 1"
    REJECTING = "rejecting the input: 422"
    DOWN = "down: 503"


class FlakyServer:
    """The service, on a free port, until the block is left. `requests` counts what reached it."""

    def __init__(self) -> None:
        self._moods: list[Mood] = []
        self._lock = threading.Lock()
        self.mood = Mood.WELL
        self.requests = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FlakyServer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer_next(self, *moods: Mood) -> None:
        """Answer the next requests in these moods, one each, then in `mood` again."""
        with self._lock:
            self._moods = list(moods)

    def take_mood(self) -> Mood:
        """The mood for the request that has just come."""
        with self._lock:
            self.requests += 1
            return self._moods.pop(0) if self._moods else self.mood

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mood = service.take_mood()
                if mood is Mood.RESETTING:
                    # Closing with a linger time of zero sends a reset instead of a goodbye.
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
                    self.close_connection = True
                    self.wfile = self.rfile  # nothing more can be written
                    return
                status = {Mood.WELL: 200, Mood.BUSY: 429, Mood.REJECTING: 422, Mood.DOWN: 503}[mood]
                self.send_response(status)
                if mood is Mood.BUSY:
                    self.send_header("Retry-After", "1")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
                """The demo tells its own story."""

        return Handler
