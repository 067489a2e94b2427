"""Kafka sources for tests: quick to notice things, with an owner that keeps books, and easy to kill."""

from __future__ import annotations

import asyncio
import ctypes
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from confluent_kafka import Producer

from holdfast.clock import SystemClock
from holdfast.ports import Progress
from holdfast.streams.kafka import KafkaSource
from holdfast.streams.kafka.sender import Sender
from holdfast.streams.kafka.settings import KafkaSettings
from holdfast.types import Message, Place
from tests.kafka_broker import KafkaBroker
from tests.kafka_mock import _library as librdkafka

CLOCK: Final = SystemClock()
QUICK: Final = (
    "heartbeat.interval.ms=50&fetch.wait.max.ms=20&topic.metadata.refresh.fast.interval.ms=20&retry.backoff.ms=20"
    "&reconnect.backoff.ms=20&reconnect.backoff.max.ms=100&topic.metadata.refresh.interval.ms=200"
)
"""Options for impatient clients."""
PATIENCE_S: Final = 20.0


class Books:
    """An owner that writes down what it is told."""

    def __init__(self) -> None:
        self.owned: dict[Place, int] = {}
        self.told: list[tuple[str, Any]] = []
        self.progress: dict[Place, Progress] = {}
        """What it answers when partitions are taken."""

    def assigned(self, positions: Mapping[Place, int]) -> None:
        self.told.append(("assigned", dict(positions)))
        self.owned.update(positions)

    async def revoked(self, places: Collection[Place]) -> Mapping[Place, Progress]:
        self.told.append(("revoked", set(places)))
        self._drop(places)
        return {place: self.progress[place] for place in places if place in self.progress}

    def lost(self, places: Collection[Place]) -> None:
        self.told.append(("lost", set(places)))
        self._drop(places)

    def away(self, why: str) -> None:
        self.told.append(("away", why))

    @property
    def aways(self) -> list[str]:
        """What it was told of the server."""
        return [what for kind, what in self.told if kind == "away"]

    def _drop(self, places: Collection[Place]) -> None:
        for place in places:
            del self.owned[place]


class KeptSender(Sender):
    """Outlives its sources: a producer waits half a second for the id that lets it write each message once."""

    async def close(self, within_s: float) -> None: ...


@functools.cache
def kept_sender(bootstrap: str) -> Sender:
    """The sender of all sources of a broker that do not need one of their own."""
    return KeptSender(KafkaSettings(f"kafka://{bootstrap}/"), CLOCK, 30.0)


def write(broker: KafkaBroker, topic: str, *values: bytes, partition: int = 0) -> None:
    """Write messages to one partition, by a client that is there already."""
    producer = _producer(broker.bootstrap)
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def write_with_header(broker: KafkaBroker, topic: str, name: bytes) -> None:
    """Write a message with a header of any name, which Python's client would not: by librdkafka itself."""
    library, pointer = librdkafka(), ctypes.c_void_p
    library.rd_kafka_headers_new.restype = pointer
    error = ctypes.create_string_buffer(512)
    conf = library.rd_kafka_conf_new()
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", broker.bootstrap.encode(), error, len(error))
    producer = library.rd_kafka_new(0, conf, error, len(error))
    headers = pointer(library.rd_kafka_headers_new(ctypes.c_size_t(1)))
    length = ctypes.c_ssize_t
    library.rd_kafka_header_add(headers, name, length(len(name)), b"header", length(6))
    of_topic, of_value, of_headers, end = 1, 4, 10, 0
    value = (of_value, ctypes.c_char_p(b"value"), ctypes.c_size_t(5))
    result = library.rd_kafka_producev(
        pointer(producer), of_topic, ctypes.c_char_p(topic.encode()), *value, of_headers, headers, end
    )
    assert result == 0, error.value
    assert library.rd_kafka_flush(pointer(producer), round(PATIENCE_S * 1000)) == 0
    library.rd_kafka_destroy(producer)


@functools.cache
def _producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "log_level": 0, "topic.metadata.refresh.fast.interval.ms": 20})


async def eventually(is_so: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait until something is so that others bring about."""
    until = CLOCK.monotonic() + within_s
    while not is_so():
        assert CLOCK.monotonic() < until, "it did not happen in time"
        await CLOCK.asleep(0.01)


async def received(source: KafkaSource, n: int, limit: int = 100) -> list[Message]:
    """Exactly so many messages."""
    found: list[Message] = []
    until = CLOCK.monotonic() + PATIENCE_S
    while len(found) < n:
        assert CLOCK.monotonic() < until, f"only {len(found)} of {n} messages came in time"
        found += await source.receive(limit, 0.1)
    assert len(found) == n
    return found


def values(messages: Collection[Message]) -> list[bytes | None]:
    """What they say, in order."""
    return [message.value for message in messages]


def done(*messages: Message) -> dict[Place, Progress]:
    """All of these are finished, and all before them."""
    return {message.place: Progress(position=message.offset + 1) for message in messages}


async def kill(source: KafkaSource) -> None:
    """End its thread without a word to the group, and let go of the client, so that its heartbeats end, too."""
    thread = source._joined._thread
    stub: Any = type("Gone", (), {"close": lambda _: None})()
    thread._do(lambda: setattr(thread, "_consumer", stub))
    thread.stop()
    await asyncio.to_thread(thread._thread.join)
    thread._assignment._consumer = thread._commits._consumer = stub
