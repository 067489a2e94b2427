"""Topics of Kafka and streams of Redis as the tests themselves see them: by plain clients, and past any proxy."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, Producer
from msgspec import json

from holdfast.streams.redis_streams.entries import offset_of, shard_of
from holdfast.types import Place
from tests.faults.stream_ledger import Name
from tests.faults.stream_shop import Order
from tests.kafka_broker import KafkaBroker
from tests.kafka_lab import QUICK
from tests.servers import RedisServer

_numbers: Final = itertools.count(1)
_SENT_WITHIN_S: Final = 60.0


def _fresh(tag: str) -> str:
    """A topic that no other test has, in whichever of pytest's processes it is."""
    return f"{tag}-{os.environ.get('PYTEST_XDIST_WORKER', 'gw')}-{next(_numbers)}"


def name_of(value: bytes | None) -> Name:
    """Which message this is."""
    order = json.decode(value or b"{}", type=Order)
    return order.key, order.n


class KafkaChannel:
    """A topic of its own on a broker; `is_certain` writes each message once, however often the broker dies."""

    name = "kafka"
    keeps_order = True
    has_positions = True

    def __init__(
        self,
        broker: KafkaBroker,
        *,
        partitions: int = 12,
        session_s: float = 6.0,
        is_certain: bool = False,
        create: Callable[[str, int], None] | None = None,
        options: str = "",
        tag: str,
    ) -> None:
        self.broker = broker
        self.topic = _fresh(tag)
        self.group = f"billing-{self.topic}"
        self.sent: dict[Name, tuple[Place, int]] = {}
        self.session_s = session_s
        self._options = options
        (create or broker.create_topic)(self.topic, partitions)
        self._producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{broker.admin_port}",
                "log_level": 0,
                "linger.ms": 0,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": round(_SENT_WITHIN_S * 1000),
                **({"enable.idempotence": True} if is_certain else {"max.in.flight": 1}),
            }
        )

    @property
    def url(self) -> str:
        """For workers that notice things soon."""
        return f"{self.broker.url(self.topic)}?{QUICK}&session.timeout.ms={round(self.session_s * 1000)}{self._options}"

    def send(self, orders: Sequence[Order]) -> None:
        """Returns when the broker has all of them, in this order."""
        failed: list[KafkaError] = []

        def told(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                failed.append(error)
            else:
                place = (message.topic(), message.partition())
                self.sent[name_of(message.value())] = (place, message.offset())

        for order in orders:
            self._producer.produce(self.topic, json.encode(order), order.key, on_delivery=told)
        left = self._producer.flush(_SENT_WITHIN_S)
        assert (left, failed) == (0, []), f"{left} messages are not delivered"

    def done(self) -> frozenset[Name]:
        """What comes before the group's committed offsets."""
        committed = self.broker.committed(self.group, self.topic)
        sent = list(self.sent.items())
        return frozenset(name for name, (place, offset) in sent if offset < committed.get(place[1], -1))

    def dead(self) -> Counter[Name]:
        """What is in the DLQ."""
        return self.read(f"{self.topic}.dlq")

    def read(self, topic: str) -> Counter[Name]:
        """What is in a topic, without what was never committed."""
        return Counter(name_of(message.value()) for message in self.broker.read(topic))


class RedisChannel:
    """A stream of its own, or several that share its keys; only with these is the order kept over all consumers."""

    has_positions = False

    def __init__(self, server: RedisServer, *, shards: int = 1, tag: str, port: int | None = None) -> None:
        self.server = server
        self.name = f"redis streams, {shards} shards" if shards > 1 else "redis streams"
        self.topic = _fresh(tag)
        self.group = "billing"
        self.keeps_order = shards > 1
        self.sent: dict[Name, tuple[Place, int]] = {}
        self._shards = shards
        self._port = port or server.port

    @property
    def url(self) -> str:
        """For workers."""
        return f"redis://:{self.server.password}@127.0.0.1:{self._port}/{self.topic}?shards={self._shards}"

    def key_of(self, shard: int) -> str:
        """The stream of a shard."""
        return f"{self.topic}.{shard}" if self._shards > 1 else self.topic

    def send(self, orders: Sequence[Order]) -> None:
        """Returns when the server has all of them, in this order."""
        shards = [shard_of(order.key.encode(), self._shards) for order in orders]
        with self.server.client() as client, client.pipeline(transaction=False) as pipe:
            for order, shard in zip(orders, shards, strict=True):
                pipe.xadd(self.key_of(shard), {"value": json.encode(order), "key": order.key})
            ids: Iterable[bytes] = pipe.execute()
        for order, shard, id_ in zip(orders, shards, ids, strict=True):
            self.sent[order.key, order.n] = ((self.topic, shard), offset_of(id_))

    def done(self) -> frozenset[Name]:
        """What was delivered to the group and is pending with nobody."""
        found: set[Name] = set()
        for shard in range(self._shards):
            last, pending = self._group_of(shard)
            sent = [(name, offset) for name, (place, offset) in list(self.sent.items()) if place[1] == shard]
            found.update(name for name, offset in sent if offset <= last and offset not in pending)
        return frozenset(found)

    def dead(self) -> Counter[Name]:
        """What is in the DLQ."""
        with self.server.client() as client:
            return Counter(name_of(fields[b"value"]) for _, fields in client.xrange(f"{self.topic}.dlq"))

    def pending(self) -> int:
        """Entries that some consumer has and has not finished."""
        return sum(len(self._group_of(shard)[1]) for shard in range(self._shards))

    def _group_of(self, shard: int) -> tuple[int, frozenset[int]]:
        """The last entry that was delivered, and those that are pending, at one moment."""
        key = self.key_of(shard)
        with self.server.client() as client, client.pipeline() as pipe:
            if not client.exists(key) or not client.xinfo_groups(key):
                return -1, frozenset()
            pipe.xinfo_groups(key)
            pipe.xpending_range(key, self.group, "-", "+", 100_000)
            groups, rows = pipe.execute()
        (last,) = [offset_of(one["last-delivered-id"]) for one in groups if one["name"] == self.group.encode()]
        return last, frozenset(offset_of(row["message_id"]) for row in rows)
