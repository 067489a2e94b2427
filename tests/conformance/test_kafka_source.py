"""The Kafka source against a real broker, held to what every source promises."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from holdfast.clock import SystemClock
from holdfast.ports import Source
from holdfast.streams.kafka import KafkaSource
from holdfast.testing.source_suite import SourceSuite
from holdfast.testing.source_suite.steps import Start
from tests.kafka_broker import KafkaBroker
from tests.kafka_lab import QUICK, kept_sender, kill
from tests.kafka_server import KafkaTopic


class KafkaLab:
    patience_s = 15.0
    quiet_s = 0.15

    def __init__(self, broker: KafkaBroker, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix
        self._numbers = itertools.count(1)
        self.sources: list[KafkaSource] = []

    async def topic(self, partitions: int = 1) -> str:
        name = f"{self._prefix}-{next(self._numbers)}"
        await asyncio.to_thread(self._broker.create_topic, name, partitions)
        return name

    def source(self, topic: str, group: str, *, start: Start = "earliest") -> KafkaSource:
        url = f"{self._broker.url(topic)}?{QUICK}"
        source = KafkaSource(url, f"{self._prefix}.{group}", SystemClock(), start=start, session_timeout_s=1.0)
        source._sender = kept_sender(self._broker.bootstrap)
        self.sources.append(source)
        return source

    async def kill(self, source: Source) -> None:
        assert isinstance(source, KafkaSource)
        await kill(source)


@pytest.fixture
async def lab(kafka: KafkaBroker, kafka_topic: KafkaTopic) -> AsyncIterator[KafkaLab]:
    lab = KafkaLab(kafka, kafka_topic.name)
    yield lab
    await asyncio.gather(*(source.close() for source in lab.sources))


class TestKafkaSource(SourceSuite):
    pass
