"""Another era: another server may have answered than last time, or one that has lost its last moments."""

from __future__ import annotations

import redis

from holdfast.ports import Exchange, ValueChange
from holdfast.stores.redis import RedisStore
from holdfast.testing import FaultProxy
from tests.servers import RedisServer


async def era_of(store: RedisStore) -> int:
    return (await store.exchange(Exchange())).era


async def test_a_new_connection_begins_another_era_though_the_store_sends_again_by_itself(
    redis_server: RedisServer, prefix: str
) -> None:
    with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        store = RedisStore(redis_server.dsn(port=proxy.port), prefix=prefix)
        first = await era_of(store)
        assert await era_of(store) == first
        proxy.drop_reply(to=b"EVALSHA")
        second = await era_of(store)
        assert second != first
        assert await era_of(store) == second
        await store.close()


async def test_who_wants_no_values_gets_none(store: RedisStore, client: redis.Redis) -> None:
    await store.exchange(Exchange(changes=[ValueChange("a", 0, b"1")]))
    assert list((await store.exchange(Exchange(seen=2**62))).values) == []
