"""Workers are woken by whoever has news for them, in any process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis

from holdfast.clock import SystemClock
from holdfast.ports import Exchange
from holdfast.stores.redis import RedisStore, news
from holdfast.testing import FaultProxy
from holdfast.testing.store_suite import claim, enqueue
from tests.servers import RedisServer

PROMPTLY_S = 10.0
LONG_S = 300.0


@pytest.fixture
async def other(redis_server: RedisServer, prefix: str) -> AsyncIterator[RedisStore]:
    """The same store, as another process has it."""
    store = RedisStore(redis_server.dsn(), prefix=prefix)
    yield store
    await store.close()


async def test_another_process_wakes_an_idle_worker(store: RedisStore, other: RedisStore) -> None:
    assert await claim(store) == []
    waiting = asyncio.create_task(store.wait(LONG_S))
    await enqueue(other)
    async with asyncio.timeout(PROMPTLY_S):
        await waiting


async def test_busy_workers_are_not_called(
    store: RedisStore, other: RedisStore, client: redis.Redis, prefix: str
) -> None:
    listener = redis.client.PubSub(client.connection_pool)
    listener.subscribe(f"{{{prefix}}}:news")
    assert listener.get_message(timeout=PROMPTLY_S)["type"] == "subscribe"
    await enqueue(other)
    assert len(await claim(store, limit=1)) == 1
    await enqueue(other)
    assert listener.get_message(timeout=0.0) is None, "nobody was idle"
    assert len(await claim(store, limit=5)) == 1
    await enqueue(other)
    assert listener.get_message(timeout=PROMPTLY_S)["type"] == "message"
    await enqueue(other)
    assert listener.get_message(timeout=0.0) is None, "it was told once"
    listener.close()


async def test_news_that_nobody_heard_is_heard_of_when_the_connection_is_back(
    redis_server: RedisServer, prefix: str, other: RedisStore
) -> None:
    with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        store = RedisStore(redis_server.dsn(port=proxy.port), prefix=prefix)
        assert await claim(store) == []
        await store.wait(PROMPTLY_S)  # until it listens
        assert await claim(store) == []
        waiting = asyncio.create_task(store.wait(LONG_S))
        proxy.refuse()
        proxy.reset()
        await enqueue(other)
        proxy.heal()
        async with asyncio.timeout(PROMPTLY_S):
            await waiting
        assert len(await claim(store)) == 1
        await store.close()


async def test_a_line_that_has_gone_silent_is_noticed_and_made_anew(
    redis_server: RedisServer, prefix: str, other: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-open: nobody has hung up, and nothing comes any more."""
    monkeypatch.setattr(news, "_LOOK_WITHIN_S", 0.2)
    with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        store = RedisStore(redis_server.dsn(port=proxy.port), prefix=prefix)
        assert await claim(store) == []
        await store.wait(PROMPTLY_S)  # until it listens
        proxy.drop_reply(to=b"PING", then="silence")
        while not proxy.traffic.replies_dropped:
            await SystemClock().asleep(0.01)
        assert await claim(store) == []
        waiting = asyncio.create_task(store.wait(LONG_S))
        await enqueue(other)
        async with asyncio.timeout(PROMPTLY_S):
            await waiting
        await store.close()


async def test_a_worker_is_still_called_after_a_long_idle_time(
    store: RedisStore, client: redis.Redis, prefix: str
) -> None:
    """The flag that somebody is idle ends by itself: long after any wait, and each claim begins it anew."""
    flag = f"{{{prefix}}}:idle"
    for _ in range(2):
        assert await claim(store) == []
        assert int(client.ttl(flag)) > 3600, "a worker asks at least once a second"
        client.expire(flag, 1)


async def test_closing_ends_the_wait(store: RedisStore) -> None:
    await claim(store)
    waiting = asyncio.create_task(store.wait(LONG_S))
    await store.exchange(Exchange())
    await store.close()
    async with asyncio.timeout(PROMPTLY_S):
        await waiting
