"""Redis Streams, held to what every source promises."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.testing.source_suite import SourceSuite
from tests.redis_lab import RedisLab
from tests.servers import RedisServer


@pytest.fixture
async def lab(redis_server: RedisServer) -> AsyncIterator[RedisLab]:
    lab = RedisLab(redis_server)
    yield lab
    await lab.close()
    with redis_server.client() as client:
        client.flushall()


class TestRedisSource(SourceSuite):
    pass
