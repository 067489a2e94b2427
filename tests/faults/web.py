"""The HTTP API over an app, asked in this process, or as a server on a port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import httpx
from msgspec import json
from starlette.types import ASGIApp, Message

from holdfast import App
from holdfast.ops.api.serving import ApiServer, address_of, listen
from holdfast.ops.api.settings import ApiSettings
from holdfast.ops.api.tokens import NewToken, make_token

NOBODYS: Final = make_token(name="nobody", role="admin")
CALLERS: Final[Mapping[str, NewToken]] = {
    "viewer": make_token(name="vera", role="viewer"),
    "operator": make_token(name="otto", role="operator"),
    "admin": make_token(name="ada", role="admin"),
    "tenant a": make_token(name="anna", role="admin", tenant="a"),
    "tenant b": make_token(name="bert", role="admin", tenant="b"),
    "expired": make_token(name="old", role="admin", expires_at=5.0),
}
UNLIMITED: Final = ApiSettings(
    tokens=[made.token for made in CALLERS.values()],
    allows_simulation=True,
    rate=None,
    read_rate=None,
    submit_rate=None,
    login_rate=None,
)
"""Everybody above may ask, as often as they like."""


def bearer(caller: str) -> dict[str, str]:
    """The header of one of the callers; of nobody for `none`."""
    if caller == "none":
        return {}
    return {"Authorization": f"Bearer {CALLERS[caller].text if caller in CALLERS else NOBODYS.text}"}


@asynccontextmanager
async def asking(api: ASGIApp, caller: str = "admin") -> AsyncIterator[httpx.AsyncClient]:
    """A client of an API in this process."""
    transport = httpx.ASGITransport(api, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=bearer(caller)) as client:
        yield client


async def first_of(
    api: ASGIApp, method: str, target: str, headers: Mapping[str, str], body: Any = None, *, lines: int = 0
) -> tuple[int, bytes]:
    """The status, and of a stream that does not end by itself so many messages of its body."""
    path, _, query = target.partition("?")
    content = b"" if body is None else json.encode(body)
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    raw += [(b"host", b"localhost"), (b"content-length", str(len(content)).encode())]
    raw += [(b"content-type", b"application/json")] if content else []
    scope = {
        "type": "http",
        "method": method,
        "path": httpx.URL(path).path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": raw,
        "client": ("127.0.0.1", 5000),
        "scheme": "http",
        "http_version": "1.1",
    }
    status = 0
    found: list[bytes] = []
    is_enough = asyncio.Event()
    is_asked = False

    async def receive() -> Message:
        nonlocal is_asked
        if not is_asked:
            is_asked = True
            return {"type": "http.request", "body": content, "more_body": False}
        await is_enough.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            found.append(message.get("body", b""))
        if len(found) > lines:
            is_enough.set()

    await api(scope, receive, send)
    return status, b"".join(found)


@contextmanager
def served(app: App, settings: ApiSettings) -> Iterator[str]:
    """A real server on a free port of loopback, on a thread of its own; its address."""
    listening = listen("127.0.0.1", 0)
    url = address_of("127.0.0.1", listening)
    is_started = threading.Event()
    found: list[tuple[asyncio.AbstractEventLoop, ApiServer]] = []

    async def run() -> None:
        server = ApiServer(app, settings, listening)
        found.append((asyncio.get_running_loop(), server))
        await server.run(is_started.set)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="web")
    thread.start()
    try:
        assert is_started.wait(20), "the server did not start"
        yield url
    finally:
        loop, server = found[0]
        loop.call_soon_threadsafe(server.stop)
        thread.join(20)
        assert not thread.is_alive()
