"""The Redis store, held to what every store promises."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.stores.redis import RedisStore
from holdfast.testing.store_suite import Advance, StoreSuite
from tests.servers import RedisServer


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore(redis_server.dsn(), prefix=redis_server.fresh_prefix())
    yield store
    await store.close()
    with redis_server.client() as client:
        client.flushall()


@pytest.fixture
def advance(store: RedisStore) -> Advance:
    def advance(seconds: float) -> None:
        store.clock_offset_s += seconds

    return advance


class TestRedisStore(StoreSuite):
    pass
