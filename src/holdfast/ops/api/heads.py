"""HEAD wherever there is GET: the same answer without its body."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class _Enough(Exception):
    """The head has been sent; the body need not be made."""


class Heads:
    """ASGI middleware: routes see a GET, and what they send after the head goes nowhere. Streams end at once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def head_alone(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            raise _Enough

        try:
            await self._app({**scope, "method": "GET"}, receive, head_alone)
        except _Enough:
            return
