"""Streams and their consumers on a real Redis server, for the conformance suite and for tests of Redis alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from holdfast.clock import SystemClock
from holdfast.ports import Source
from holdfast.streams.redis_streams import RedisSource
from holdfast.streams.redis_streams.heart import Heart
from holdfast.testing.source_suite import Member
from holdfast.testing.source_suite.steps import Start
from tests.servers import RedisServer


class RedisLab:
    """Topics with several partitions are sharded streams."""

    patience_s = 10.0
    quiet_s = 0.05

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.sources: list[RedisSource] = []
        self._numbers = itertools.count(1)
        self._shards: dict[str, int] = {}

    def url(self, topic: str, *, port: int | None = None) -> str:
        return f"redis://:{self.server.password}@127.0.0.1:{port or self.server.port}/{topic}"

    async def topic(self, partitions: int = 1) -> str:
        name = f"topic{next(self._numbers)}"
        self._shards[name] = partitions
        return name

    def source(
        self, topic: str, group: str = "billing", *, start: Start = "earliest", port: int | None = None, **options: Any
    ) -> RedisSource:
        settings = {"shards": self._shards.get(topic, 1), "claim_after_s": 0.5, **options}
        source = RedisSource(self.url(topic, port=port), group, SystemClock(), start=start, **settings)
        self.sources.append(source)
        return source

    async def join(
        self, topic: str, group: str = "billing", ours: Sequence[str] = (), *, port: int | None = None, **options: Any
    ) -> Member:
        """A member with options of its own."""
        member = Member(self, self.source(topic, group, port=port, **options))
        await member.source.open(topic, ours, member)
        return member

    async def kill(self, source: Source) -> None:
        """Its heart stops, and the server forgets it, as after so much time."""
        heart = heart_of(source)
        heart.stop()
        self.forget(source)

    def forget(self, source: Source) -> None:
        """The server has heard nothing from it for too long."""
        heart = heart_of(source)
        with self.server.client() as client:
            client.delete(heart._layout.base + b"alive/" + heart.consumer)

    async def close(self) -> None:
        for source in self.sources:
            await source.close()


def heart_of(source: Source) -> Heart:
    assert isinstance(source, RedisSource)
    assert source._seat is not None
    return source._seat._heart
