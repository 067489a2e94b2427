"""Connections of the web server: one that sends its request slowly, or reads its answer slowly, is not waited for.

There are never so many that the process runs out of descriptors, which its store and its files need too: near the limit
the slowest make room.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.ops.api.problems import OUT_OF

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
RESERVED: Final = 64
"""Descriptors that are left to all else than connections."""
_LEAST: Final = 16
_BACKLOG: Final = 512
_MANY: Final = 1_048_576
_TELL_EVERY_S: Final = 5.0
_MAKE_ROOM_EVERY_S: Final = 0.5
_LOG: Final = logging.getLogger("holdfast.api")


def server_options() -> dict[str, Any]:
    """What uvicorn is to be told beside the address.

    Not limit_concurrency: it counts every open connection, so that slow ones would lock out all others.
    """
    descriptors = _descriptors()
    # So many may be accepted in one go, before the first of them is looked at.
    backlog = min(_BACKLOG, max(_LEAST, descriptors // 4))
    return {
        "http": _new_protocol(max(_LEAST, descriptors - RESERVED - backlog)),
        "backlog": backlog,
        "ws": "none",
        "timeout_keep_alive": KEEP_ALIVE_S,
        "h11_max_incomplete_event_size": MAX_HEAD,
        "proxy_headers": False,  # the guard reads them, where they are trusted
        "server_header": False,
        "access_log": False,
    }


def _descriptors() -> int:
    """How many this process may have."""
    if sys.platform == "win32":
        return _MANY
    import resource  # noqa: PLC0415 - not on Windows

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MANY if soft == resource.RLIM_INFINITY else min(soft, _MANY)


def _new_protocol(limit: int) -> type[PatientConnection]:
    """A class of its own for each server, since uvicorn makes the connections and hands nothing of ours to them."""
    return type("Connection", (PatientConnection,), {"limit": limit, "opened": set(), "waiting": {}, "slow": {}})


@contextmanager
def out_of_descriptors(protocol: type[PatientConnection]) -> Iterator[None]:
    """While it lasts: where no connection can be accepted, slow ones make room, and it is said once every few seconds.

    By itself asyncio says it hundreds of times a second, for it tries as often as the backlog is long.
    """
    loop = asyncio.get_running_loop()
    others = loop.get_exception_handler()
    told_at = made_at = -_TELL_EVERY_S

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal told_at, made_at
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in OUT_OF and "accept" in context.get("message", "")):
            if others is None:
                loop.default_exception_handler(context)
            else:
                others(loop, context)
            return
        now = loop.time()
        if now - made_at >= _MAKE_ROOM_EVERY_S:
            made_at = now
            for _ in range(_LEAST):
                protocol.make_room()
        if now - told_at >= _TELL_EVERY_S:
            told_at = now
            _LOG.error("no connection can be accepted: %s; the limit of open files (ulimit -n) is too low", error)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(others)


class PatientConnection(H11Protocol):
    """A connection with time limits where uvicorn has none."""

    limit: ClassVar[int] = _MANY
    opened: ClassVar[set[PatientConnection]] = set()
    waiting: ClassVar[dict[PatientConnection, asyncio.TimerHandle]] = {}
    """Those whose head is not there yet, oldest first, each with the end of its patience."""
    slow: ClassVar[dict[PatientConnection, None]] = {}
    """Those that we wait for, for their head, their body, or that they read: whoever made us wait first is first."""
    _unread: asyncio.TimerHandle | None = None

    @classmethod
    def make_room(cls) -> bool:
        """Drop whoever has kept us waiting for the longest time; False where nobody does."""
        slowest = next(iter(cls.slow), None)
        if slowest is None:
            return False
        slowest._drop()
        return True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is there; its head has to follow."""
        super().connection_made(transport)
        has_room = len(self.opened) < self.limit or self.make_room()
        self.opened.add(self)
        if has_room:
            self._wait_for_head()
        else:  # all are being answered
            self._drop()

    def data_received(self, data: bytes) -> None:
        """Bytes alone win no time; a whole head does."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()
            if not self.cycle.more_body and self._unread is None:
                self.slow.pop(self, None)
            elif not self.transport.is_closing():
                self.slow.setdefault(self)

    def on_response_complete(self) -> None:
        """The next head has to follow, or uvicorn closes it for being idle."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._forget()
        self.slow.pop(self, None)
        self.opened.discard(self)
        self._stop_reading_clock()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(READ_WITHIN_S, self._drop)
            self.slow.setdefault(self)

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        self._stop_reading_clock()
        if self not in self.waiting:
            self.slow.pop(self, None)

    def _wait_for_head(self) -> None:
        self._forget()
        if len(self.waiting) >= MAX_WAITING:
            next(iter(self.waiting))._drop()
        self.waiting[self] = self.loop.call_later(HEAD_WITHIN_S, self._drop)
        self.slow.pop(self, None)
        self.slow[self] = None

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
        self.slow.pop(self, None)
        self.opened.discard(self)
        self.transport.abort()  # also one that is closing: it would stay until its client has read what is left
