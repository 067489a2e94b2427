"""The body of a request: read whole, within its limit, and handed on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.types import Message, Receive

from holdfast.ops.api.problems import RETRY_AFTER_S, ProblemError

if TYPE_CHECKING:
    from holdfast.ports import Clock


class Gone(Exception):
    """The client went away before its body was there."""


class Bodies:
    """The bodies that are on their way to one server; when that stops, nobody waits for the rest of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[asyncio.Timeout, asyncio.AbstractEventLoop] = {}
        self._is_closed = False

    async def read(self, receive: Receive, limit: int, within_s: float) -> bytes:
        """A whole body; 408 when it is not there in time, 413 when it is too large, 503 when the server stops."""
        try:
            async with self._clock.timeout(0.0 if self._is_closed else within_s) as wait:
                self._waits[wait] = asyncio.get_running_loop()
                try:
                    return await read_body(receive, limit)
                finally:
                    del self._waits[wait]
        except TimeoutError:
            if self._is_closed:
                raise ProblemError(
                    503, "the server is stopping", retry_after=RETRY_AFTER_S, headers={"Connection": "close"}
                ) from None
            raise ProblemError(408, f"the body was not there within {within_s:g} s") from None

    def close(self) -> None:
        """The server stops; this may be said on any thread."""
        self._is_closed = True
        for wait, loop in list(self._waits.items()):
            loop.call_soon_threadsafe(self._end, wait)

    def _end(self, wait: asyncio.Timeout) -> None:
        if wait in self._waits and not wait.expired():
            wait.reschedule(self._waits[wait].time())


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole body; never more of it in memory than allowed."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise ProblemError(413, f"the body is larger than {limit} bytes")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def read_again(body: bytes, receive: Receive) -> Receive:
    """For the route: the body that was read, then whatever comes."""
    is_sent = False

    async def read() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read
