"""A service on loopback that is well, dead, flapping or silent as it is told to be, and notes every call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Literal

from msgspec import Struct

from tests.faults.load import Dice
from tests.faults.workers import CLOCK

Mode = Literal["ok", "fail", "flap", "hang"]
_SERVICE_S: Final = 0.02
"""What a call takes, so that several are in flight at a time."""


class Seen(Struct):
    """One call, by monotonic time."""

    job: str
    mode: Mode
    at: float
    until: float | None = None
    """When it was answered, or the caller gave up."""
    is_good: bool = False


class Downstream:
    """The service, on a thread for each call. `mode` may be set at any time and holds for the calls that come then."""

    def __init__(self, dice: Dice) -> None:
        self.mode: Mode = "ok"
        self._calls: list[Seen] = []
        self._dice = dice
        self._lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                service._serve(self)

            def log_message(self, *_: object) -> None:
                """The calls are the log."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128  # or calls are lost on their way when many come at once

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return int(self._server.server_address[1])

    def calls(self, mode: Mode | None = None) -> list[Seen]:
        """What has come so far, in order; in one mode, or in all."""
        with self._lock:
            return [one for one in self._calls if mode in {None, one.mode}]

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        with self._lock:
            mode = self.mode
            is_good = mode == "ok" or (mode == "flap" and self._dice.below(2) == 0)
            seen = Seen(request.path.strip("/"), mode, CLOCK.monotonic(), is_good=is_good)
            self._calls.append(seen)
        if mode == "hang":
            request.rfile.read(1)  # until the caller goes
        else:
            CLOCK.sleep(_SERVICE_S)
        with self._lock:
            seen.until = CLOCK.monotonic()
        if mode != "hang":
            request.send_response(200 if is_good else 500)
            request.send_header("Content-Length", "0")
            request.end_headers()


def most_in_flight(calls: Sequence[Seen]) -> int:
    """The most of these that went on at one time."""
    events = sorted([(one.at, 1) for one in calls] + [(one.until, -1) for one in calls if one.until is not None])
    most = now = 0
    for _, step in events:
        now += step
        most = max(most, now)
    return most
