"""`/events`: one look for all who listen, the newest for whoever is slow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.ops.api import ApiSettings
from holdfast.ops.api.live import LOOK_S, PING_S
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


async def test_there_are_no_more_clients_than_allowed() -> None:
    app = new_app()
    front = Shopfront(app, ApiSettings(max_clients=1))
    async with listening(front) as stream:
        await heard(stream)
        answer = await front.client.get("/events")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
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
