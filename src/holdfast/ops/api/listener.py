"""One who listens at `/events`: a place that is taken at once, and given back however the stream ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

if TYPE_CHECKING:
    from holdfast.ops.api.live import Live
    from holdfast.ports import Clock

PING_S: Final = 15.0
"""After so long a comment goes out, so that nobody in between takes the connection for dead; and it is asked again
whether whoever listens still may."""
_CLOSED: Final = b"event: closed\ndata: {}\n\n"


class Listener:
    """A place among those who listen; `Live.join` makes it, and `leave` gives it back.

    is_welcome: asked now and then; the stream ends when it says no.
    """

    def __init__(self, live: Live, clock: Clock, tenant: str | None, is_welcome: Callable[[], bool]) -> None:
        self._live = live
        self._clock = clock
        self._tenant = tenant
        self._is_welcome = is_welcome
        self._has_left = False

    def leave(self) -> None:
        """Give the place back; once is enough."""
        if not self._has_left:
            self._has_left = True
            self._live.leave(self._tenant)

    async def messages(self) -> AsyncIterator[bytes]:
        """Server-sent events, until the server closes; a tenant's people hear of its dead letters only."""
        try:
            yield b"retry: 2000\n\n"
            seen = 0
            ask_at = self._clock.monotonic() + PING_S
            while not self._live.is_closed:
                now = self._clock.monotonic()
                is_ping = now >= ask_at
                if is_ping:
                    if not self._is_welcome():
                        break
                    ask_at = now + PING_S
                news = self._live.news
                seen, told = self._live.since(seen, self._tenant)
                if told or is_ping:
                    yield told or b": still here\n\n"
                    continue
                try:
                    async with self._clock.timeout(ask_at - now):
                        await news.wait()
                except TimeoutError:
                    continue
            yield _CLOSED
        finally:
            self.leave()


class EventStream(StreamingResponse):
    """The answer with a listener's messages. The place is free again also where the client went before the first."""

    def __init__(self, listener: Listener) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(listener.messages(), media_type="text/event-stream", headers=headers)
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until one side ends it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._listener.leave()
