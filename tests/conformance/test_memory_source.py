"""The memory source, held to what every source promises."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from holdfast.clock import SystemClock
from holdfast.ports import Source
from holdfast.streams.memory import MemoryBroker, MemorySource
from holdfast.testing.source_suite import SourceSuite
from holdfast.testing.source_suite.steps import Start


class MemoryLab:
    patience_s = 5.0
    quiet_s = 0.01

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.sources: list[MemorySource] = []
        self._numbers = itertools.count(1)

    async def topic(self, partitions: int = 1) -> str:
        name = f"topic{next(self._numbers)}"
        self.broker.create_topic(name, partitions)
        return name

    def source(self, topic: str, group: str, *, start: Start = "earliest") -> MemorySource:
        source = MemorySource(topic, group, SystemClock(), broker=self.broker, start=start)
        self.sources.append(source)
        return source

    async def kill(self, source: Source) -> None:
        assert isinstance(source, MemorySource)
        self.broker.expel(source)


@pytest.fixture
async def lab() -> AsyncIterator[MemoryLab]:
    lab = MemoryLab()
    yield lab
    for source in lab.sources:
        await source.close()


class TestMemorySource(SourceSuite):
    pass
