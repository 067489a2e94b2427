"""A shop with its API, asked in-process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from holdfast import App, Permanent
from holdfast.ops.api import ApiSettings, build_api
from holdfast.ops.api.server import Server
from holdfast.ops.api.tokens import make_token
from holdfast.testing import ManualClock
from holdfast.testing.faulty import FaultyStore

BASE = "http://127.0.0.1:8080"


def new_app(url: str = "memory://", clock: ManualClock | None = None) -> App:
    """An app with a task that fails where it is told to."""
    app = App(url, clock=clock)

    @app.task(name="shop.charge")
    def charge(order_id: int, cents: int = 5, password: str = "", note: str = "") -> str:
        if cents > 100:
            raise Permanent(f"order {order_id}: declined by postgres://shop:s3cret@db/shop")
        return f"charged {cents}"

    @app.task(name="mail/send", queue="mail/out", breaker="mail/er")
    def send(to: list[str]) -> None:
        del to

    app.schedule(charge.bind(1), cron="0 3 * * *", name="night/ly")
    return app


class Shopfront:
    """The app, its API and a client on this machine."""

    def __init__(self, app: App, settings: ApiSettings | None = None) -> None:
        self.app = app
        self.api = build_api(app, settings)
        self.server: Server = self.api.state.holdfast
        self.client = self.client_with(None)

    def client_with(self, token: str | None) -> httpx.AsyncClient:
        """A client that shows a token."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(app=self.api, client=("127.0.0.1", 5000))
        return httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers)

    async def ask(self, method: str, path: str, status: int = 200, **rest: Any) -> Any:
        """The JSON of an answer that must have this status."""
        answer = await self.client.request(method, path, **rest)
        assert answer.status_code == status, answer.text
        if status >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
        return answer.json() if answer.content else None

    async def get(self, path: str, status: int = 200, **params: Any) -> Any:
        """The same, by GET."""
        return await self.ask("GET", path, status, params=params)

    async def post(self, path: str, body: Any = None, status: int = 200, **params: Any) -> Any:
        """The same, by POST."""
        return await self.ask("POST", path, status, params=params, **({} if body is None else {"json": body}))

    async def letters(self, *cents: int, tenant: str = "", **arguments: Any) -> list[str]:
        """Ids of orders; those of more than 100 cents are declined and become dead letters."""
        charge = self.app.tasks["shop.charge"].options(tenant=tenant)
        jobs = [await charge.aenqueue(i, one, **arguments) for i, one in enumerate(cents)]
        await self.app.arun_until_idle()
        return [job.id for job in jobs]

    def faulty(self) -> FaultyStore:
        """Put a store that can be told to fail in front of the app's."""
        store = FaultyStore(self.app.store)
        self.app._store = store
        return store


def two_tenants(app: App) -> tuple[Shopfront, dict[str, httpx.AsyncClient]]:
    """An API with tokens: an admin of all, and operators of the tenants a and b."""
    made = {name: make_token(name=name, role="operator", tenant=name) for name in ("a", "b")}
    made["admin"] = make_token(name="admin", role="admin")
    made["viewer"] = make_token(name="viewer", role="viewer")
    front = Shopfront(app, ApiSettings(tokens=[one.token for one in made.values()]))
    return front, {name: front.client_with(one.text) for name, one in made.items()}


@asynccontextmanager
async def listening(front: Shopfront, tenant: str | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
    """What a client of `/events` gets, message by message."""
    listener = front.server.live.join(tenant)
    stream = listener.messages()
    try:
        yield stream
    finally:
        await stream.aclose()  # type: ignore[attr-defined]
        listener.leave()


async def turns(n: int = 20) -> None:
    """Let other coroutines run."""
    for _ in range(n):
        await asyncio.sleep(0)  # noqa: TID251 - lets others run
