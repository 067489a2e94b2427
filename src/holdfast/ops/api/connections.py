"""Connections of the web server: one that sends its request slowly, or reads its answer slowly, is not waited for."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_WITHIN_S: Final = 10.0
"""Seconds for the head of a request, from the connection or from the answer before."""
READ_WITHIN_S: Final = 30.0
"""Seconds for which a client may leave its answer unread."""
MAX_WAITING: Final = 256
"""Connections without a whole head yet. With more the oldest is dropped: an honest one has sent it within
milliseconds, so a flood of slow ones pushes out itself."""
KEEP_ALIVE_S: Final = 5
MAX_HEAD: Final = 32_768
"""Bytes of a request's head."""


def server_options() -> dict[str, Any]:
    """What uvicorn is to be told beside the address.

    Not limit_concurrency: it counts every open connection, so that slow ones would lock out all others.
    """
    return {
        "http": _new_protocol(),
        "ws": "none",
        "timeout_keep_alive": KEEP_ALIVE_S,
        "h11_max_incomplete_event_size": MAX_HEAD,
        "proxy_headers": False,  # the guard reads them, where they are trusted
        "server_header": False,
        "access_log": False,
    }


def _new_protocol() -> type[PatientConnection]:
    """A class of its own for each server, since uvicorn makes the connections and hands nothing of ours to them."""
    return type("Connection", (PatientConnection,), {"waiting": {}})


class PatientConnection(H11Protocol):
    """A connection with time limits where uvicorn has none."""

    waiting: ClassVar[dict[PatientConnection, asyncio.TimerHandle]] = {}
    """Those whose head is not there yet, oldest first, each with the end of its patience."""
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is there; its head has to follow."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Bytes alone win no time; a whole head does."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()

    def on_response_complete(self) -> None:
        """The next head has to follow, or uvicorn closes it for being idle."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._forget()
        self._stop_reading_clock()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(READ_WITHIN_S, self._drop)

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        self._stop_reading_clock()

    def _wait_for_head(self) -> None:
        self._forget()
        if len(self.waiting) >= MAX_WAITING:
            next(iter(self.waiting))._drop()
        self.waiting[self] = self.loop.call_later(HEAD_WITHIN_S, self._drop)

    def _forget(self) -> None:
        timer = self.waiting.pop(self, None)
        if timer is not None:
            timer.cancel()

    def _stop_reading_clock(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _drop(self) -> None:
        self._forget()
        if not self.transport.is_closing():
            self.transport.abort()
