"""A guard around a small route, and whoever calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
from msgspec import json
from starlette.types import Receive, Scope, Send

from holdfast.ops.api.access import ADDRESS, PRINCIPAL, SCHEME
from holdfast.ops.api.audit import AuditTrail
from holdfast.ops.api.guard import Guard
from holdfast.ops.api.settings import ApiSettings
from holdfast.ops.api.tokens import make_token
from holdfast.ports import Clock
from holdfast.testing import ManualClock

VIEWER = make_token(name="vera", role="viewer")
OPERATOR = make_token(name="otto", role="operator")
ADMIN = make_token(name="ada", role="admin")
ACME = make_token(name="acme", role="operator", tenant="acme")
EXPIRED = make_token(name="old", role="admin", expires_at=5.0)
TOKENS = [made.token for made in (VIEWER, OPERATOR, ADMIN, ACME, EXPIRED)]


class Inner:
    """An ASGI app that answers what it saw."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        principal = scope[PRINCIPAL]
        seen = {
            "who": principal.name if principal else None,
            "address": scope[ADDRESS],
            "scheme": scope[SCHEME],
            "size": len(body),
        }
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.encode(seen)})


class Caller:
    """One who calls a guarded app, from an address, under a host name."""

    def __init__(self, settings: ApiSettings | None = None, *, clock: Clock | None = None) -> None:
        self.inner = Inner()
        self.trail = AuditTrail()
        self.guard = Guard(self.inner, settings or ApiSettings(), trail=self.trail, clock=clock or ManualClock())

    async def call(
        self,
        method: str = "GET",
        path: str = "/jobs",
        *,
        token: str = "",
        cookie: str = "",
        headers: Mapping[str, str] | None = None,
        address: str = "127.0.0.1",
        url: str = "http://localhost:8080",
        content: bytes | AsyncIterator[bytes] | None = None,
        root: str = "",
    ) -> httpx.Response:
        """Send one request."""
        sent: dict[str, Any] = dict(headers or {})
        if token:
            sent["Authorization"] = f"Bearer {token}"
        if cookie:
            name = "__Host-holdfast" if url.startswith("https:") and not root else "holdfast_session"
            sent["Cookie"] = f"{name}={cookie}"
        transport = httpx.ASGITransport(self.guard, client=(address, 5000), root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url=url) as client:
            return await client.request(method, path, headers=sent, content=content)

    async def status(self, method: str = "GET", path: str = "/jobs", **options: Any) -> int:
        """The status alone."""
        return (await self.call(method, path, **options)).status_code
