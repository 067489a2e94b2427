"""`/events`: one look for all who listen, the newest for whoever is slow."""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter
from collections.abc import AsyncIterator, MutableMapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.ops.api import ApiSettings
from holdfast.ops.api.listener import PING_S, EventStream
from holdfast.ops.api.live import LOOK_S, Live
from holdfast.ops.api.tokens import TokenFile, lines_of, make_token
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from tests.unit.ops.api.shopfront import Shopfront, listening, new_app, turns, two_tenants

SECONDS = 5.0


@pytest.fixture
def still() -> ManualClock:
    return ManualClock(auto=False)


@pytest.fixture
async def front(still: ManualClock) -> AsyncIterator[Shopfront]:
    app = new_app(clock=still)
    yield Shopfront(app)
    await app.aclose()


async def heard(stream: AsyncIterator[bytes]) -> dict[str, Any]:
    """The next messages, by the kind of event; a comment is under its text."""
    found: dict[str, Any] = {}
    async with asyncio.timeout(SECONDS):
        text = (await anext(stream)).decode()
    for message in text.strip().split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in message.splitlines())
        found[fields.get("event") or message] = json.loads(fields.get("data", "null"))
    return found


async def all_of(stream: AsyncIterator[bytes], *kinds: str) -> dict[str, Any]:
    """Messages until these kinds were all heard."""
    found: dict[str, Any] = {}
    while not found.keys() >= set(kinds):
        found |= await heard(stream)
    return found


async def test_whoever_comes_hears_everything_at_once(front: Shopfront) -> None:
    async with listening(front) as stream:
        found = await all_of(stream, "overview", "replays", "groups")
    assert found["overview"]["states"] == {}
    assert found["groups"] == {"items": []}


async def test_only_what_has_changed_is_told(front: Shopfront, still: ManualClock) -> None:
    async with listening(front) as stream:
        await all_of(stream, "overview", "replays", "groups")
        await front.app.tasks["shop.charge"].aenqueue(1)
        still.advance(LOOK_S)
        found = await heard(stream)
    assert list(found) == ["overview"]
    assert found["overview"]["states"] == {"queued": 1}


async def test_with_nothing_new_there_is_a_comment_now_and_then(front: Shopfront, still: ManualClock) -> None:
    async with listening(front) as stream:
        await all_of(stream, "overview", "replays", "groups")
        waiting = asyncio.ensure_future(heard(stream))
        await turns()
        still.advance(PING_S)
        assert list(await waiting) == [": still here"]


async def test_one_look_serves_all_who_listen(front: Shopfront, still: ManualClock) -> None:
    store = front.faulty()
    async with listening(front) as one, listening(front) as two, listening(front) as three:
        for stream in (one, two, three):
            await all_of(stream, "overview", "replays", "groups")
        before = store.calls["stats"]
        await front.app.tasks["shop.charge"].aenqueue(1)
        still.advance(LOOK_S)
        for stream in (one, two, three):
            assert "overview" in await heard(stream)
        assert store.calls["stats"] == before + 1


async def test_nobody_looks_while_nobody_listens(front: Shopfront, still: ManualClock) -> None:
    store = front.faulty()
    async with listening(front) as stream:
        await all_of(stream, "overview")
    await turns()
    before = store.calls["stats"]
    for _ in range(5):
        still.advance(LOOK_S)
        await turns()
    assert store.calls["stats"] == before
    assert front.server.live.clients == 0
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "holdfast-live"]


async def test_a_slow_client_gets_the_newest_and_not_what_it_missed(front: Shopfront, still: ManualClock) -> None:
    async with listening(front) as slow, listening(front) as quick:
        await all_of(slow, "overview", "replays", "groups")
        await all_of(quick, "overview", "replays", "groups")
        for i in range(5):
            await front.app.tasks["shop.charge"].aenqueue(i)
            still.advance(LOOK_S)
            await all_of(quick, "overview")
        found = await heard(slow)
        assert found["overview"]["states"] == {"queued": 5}


async def test_while_the_store_is_away_that_is_told_and_then_it_goes_on(front: Shopfront, still: ManualClock) -> None:
    store = front.faulty()
    async with listening(front) as stream:
        await all_of(stream, "overview", "replays", "groups")
        store.fail()
        still.advance(LOOK_S)
        assert (await all_of(stream, "away"))["away"] == {"reason": "no connection"}
        store.mend()
        await front.app.tasks["shop.charge"].aenqueue(1)
        still.advance(LOOK_S)
        found = await all_of(stream, "back", "overview")
        assert found["overview"]["states"] == {"queued": 1}


async def test_a_tenant_hears_that_the_store_is_back_only_once_it_has_answered(
    front: Shopfront, still: ManualClock
) -> None:
    store = front.faulty()
    async with listening(front, "a") as stream:
        await all_of(stream, "groups")
        store.fail()
        for _ in range(4):  # its groups are looked at every fourth time
            still.advance(LOOK_S)
            await turns()
        assert list(await heard(stream)) == ["away"]
        waiting = asyncio.ensure_future(heard(stream))
        for _ in range(8):
            before = store.calls["groups"]
            still.advance(LOOK_S)
            await turns()
            assert store.calls["groups"] == before + 1
            assert not waiting.done()
        store.mend()
        still.advance(LOOK_S)
        assert "back" in await waiting


async def test_many_tenants_are_told_one_after_the_other(front: Shopfront, still: ManualClock) -> None:
    store = front.faulty()
    names = [f"t{i}" for i in range(20)]
    async with AsyncExitStack() as open_streams:
        streams = [await open_streams.enter_async_context(listening(front, name)) for name in names]
        most = 0
        for _ in range(10):
            before = store.calls["groups"]
            await turns()
            most = max(most, store.calls["groups"] - before)
            still.advance(LOOK_S)
        assert 0 < most <= 8
        for stream in streams:
            assert "groups" in await all_of(stream, "groups")


async def test_a_tenant_hears_of_its_own_dead_letters_alone() -> None:
    front = Shopfront(new_app())
    await front.letters(500, tenant="a")
    await front.letters(600, 700, tenant="b")
    async with listening(front) as everybody, listening(front, "a") as stream, listening(front, "b") as other:
        for one in (stream, other):
            await heard(one)  # they are there before anything is told
        await all_of(everybody, "overview", "replays", "groups")
        found = await all_of(stream, "groups")
        assert list(found) == ["groups"]
        assert [group["count"] for group in found["groups"]["items"]] == [1]
        assert [group["count"] for group in (await all_of(other, "groups"))["groups"]["items"]] == [2]
    await front.app.aclose()


async def test_closing_ends_every_stream(front: Shopfront) -> None:
    async with listening(front) as stream:
        await all_of(stream, "overview", "replays", "groups")
        front.server.live.close()
        assert "closed" in await heard(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


class Client:
    """One client of `/events`, on the wire: what is sent to it, and when it goes."""

    def __init__(self, front: Shopfront, token: str | None = None, method: str = "GET") -> None:
        self.status = 0
        self.body = b""
        self._gone = asyncio.Event()
        headers = [(b"host", b"127.0.0.1:8080")]
        if token is not None:
            headers.append((b"authorization", f"Bearer {token}".encode()))
        scope = {
            "type": "http",
            "method": method,
            "path": "/events",
            "raw_path": b"/events",
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 5000),
            "asgi": {"spec_version": "2.3"},
        }
        self.task = asyncio.ensure_future(front.api(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")

    async def go(self) -> None:
        self._gone.set()
        await self.task


async def test_there_are_no_more_clients_than_allowed_however_many_come_at_once() -> None:
    app = new_app()
    front = Shopfront(app, ApiSettings(max_clients=3))
    clients = [Client(front) for _ in range(20)]
    await turns(200)
    assert Counter(client.status for client in clients) == {200: 3, 503: 17}
    assert front.server.live.clients == 3
    answer = await front.client.get("/events")
    assert answer.headers["retry-after"] == "5"
    for client in clients:
        await client.go()
    assert front.server.live.clients == 0
    await app.aclose()


async def test_a_client_that_goes_before_the_first_message_leaves_no_place_taken() -> None:
    app = new_app()
    front = Shopfront(app, ApiSettings(max_clients=1))
    client = Client(front)
    await client.go()
    assert client.status != 503
    assert front.server.live.clients == 0
    listener = front.server.live.join(None)
    answer = EventStream(listener)
    assert front.server.live.clients == 1

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def never(message: MutableMapping[str, Any]) -> None:
        await asyncio.Event().wait()

    await answer({"type": "http"}, gone, never)
    assert front.server.live.clients == 0
    await app.aclose()


async def test_the_stream_of_a_token_that_was_taken_back_ends(still: ManualClock, tmp_path: Path) -> None:
    kept, revoked = make_token(name="ops", role="viewer"), make_token(name="old", role="viewer")
    file = tmp_path / "tokens.toml"
    file.write_text(lines_of(kept.token) + lines_of(revoked.token))
    file.chmod(0o600)
    app = new_app(clock=still)
    front = Shopfront(app, ApiSettings(tokens=TokenFile(file)))
    stays, ends = Client(front, kept.text), Client(front, revoked.text)
    await turns(200)
    file.write_text(lines_of(kept.token))
    still.advance(PING_S)
    await turns(200)
    assert ends.task.done()
    assert ends.body.endswith(b"event: closed\ndata: {}\n\n")
    assert not stays.task.done()
    assert front.server.live.clients == 1
    await stays.go()
    await app.aclose()


async def test_news_without_end_do_not_put_off_the_look_at_the_credential(still: ManualClock) -> None:
    app = new_app(clock=still)
    token = make_token(name="ops", role="viewer", expires_at=still.now() + 2 * PING_S)
    front = Shopfront(app, ApiSettings(tokens=[token.token]))
    client = Client(front, token.text)
    await turns(200)
    for i in range(2 * int(PING_S / LOOK_S)):
        assert not client.task.done()
        await app.tasks["shop.charge"].aenqueue(i)
        still.advance(LOOK_S)
        await turns(200)
    assert client.task.done()
    await app.aclose()


async def test_events_need_a_token_where_there_are_some() -> None:
    app = new_app()
    front, _ = two_tenants(app)
    assert (await front.client.get("/events")).status_code == 401
    await app.aclose()


async def test_a_check_that_hangs_does_not_hold_up_what_is_told(front: Shopfront, still: ManualClock) -> None:
    async with listening(front) as stream:
        await all_of(stream, "overview", "replays", "groups")
        asked = asyncio.Event()

        async def hang() -> None:
            asked.set()
            await asyncio.get_running_loop().create_future()

        front.app.health_check("slow", hang, timeout=60.0)
        for i in range(12):
            await front.app.tasks["shop.charge"].aenqueue(i)
            still.advance(LOOK_S)
            found = await all_of(stream, "overview")
        assert asked.is_set()
        assert found["overview"]["states"] == {"queued": 12}
    still.advance(60.0)
    await turns()


async def test_what_a_store_that_was_set_back_has_lost_is_no_longer_shown(front: Shopfront) -> None:
    store = front.app.store
    assert isinstance(store, MemoryStore)
    standby = copy.deepcopy(store._values)
    await front.app.breakers.aforce_open("payments")
    live = Live(front.app)
    assert (await live._look()).open_breakers == ["payments"]
    store._values = standby
    await live._look()
    assert (await live._look()).open_breakers == []
