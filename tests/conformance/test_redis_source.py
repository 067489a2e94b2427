"""Redis Streams, held to what every source promises; topics with several partitions are sharded streams."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from holdfast.clock import SystemClock
from holdfast.ports import Source
from holdfast.streams.redis_streams import RedisSource
from holdfast.testing.source_suite import SourceSuite
from holdfast.testing.source_suite.steps import Start
from tests.servers import RedisServer


class RedisLab:
    patience_s = 10.0
    quiet_s = 0.05

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._shards: dict[str, int] = {}
        self.sources: list[RedisSource] = []

    async def topic(self, partitions: int = 1) -> str:
        name = f"topic{next(self._numbers)}"
        self._shards[name] = partitions
        return name

    def source(self, topic: str, group: str, *, start: Start = "earliest") -> RedisSource:
        url = f"redis://:{self._server.password}@127.0.0.1:{self._server.port}/{topic}"
        shards = self._shards.get(topic, 1)
        source = RedisSource(url, group, SystemClock(), start=start, shards=shards, claim_after_s=0.5)
        self.sources.append(source)
        return source

    async def kill(self, source: Source) -> None:
        """Its heart stops, and the server forgets it as after so much time."""
        assert isinstance(source, RedisSource)
        seat = source._seat
        assert seat is not None
        seat._heart.stop()
        with self._server.client() as client:
            client.delete(f"{source._address.stream}.{source._group.decode()}.alive.{seat._heart.consumer.decode()}")


@pytest.fixture
async def lab(redis_server: RedisServer) -> AsyncIterator[RedisLab]:
    lab = RedisLab(redis_server)
    yield lab
    for source in lab.sources:
        await source.close()
    with redis_server.client() as client:
        client.flushall()


class TestRedisSource(SourceSuite):
    pass
