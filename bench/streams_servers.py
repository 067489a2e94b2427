"""The servers of bench-streams with their messages in them: a real Kafka and a redis-server, on loopback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from jobs_servers import redis_server
from streams_order import orders
from streams_subject import Topic

sys.path.append(str(Path(__file__).parent.parent))  # the tests' own broker serves here, too
from tests.kafka_server import JARS, KafkaServer

PARTITIONS = 4
WITHIN_S = 30.0
REDIS_BATCH = 1_000


class Kafka:
    """One broker."""

    def __init__(self, server: KafkaServer) -> None:
        self._server = server
        self._admin: AdminClient = server.admin()
        jar = next(JARS.glob("kafka_*.jar"))
        self.version = jar.stem.rpartition("-")[2]

    def fill(self, name: str, count: int) -> Topic:
        """A new topic with so many orders, spread over its partitions by their keys."""
        self._server.create_topic(name, PARTITIONS)
        producer = Producer({"bootstrap.servers": self._server.bootstrap, "linger.ms": 20, "log_level": 0})
        for key, value in orders(count):
            while True:
                try:
                    producer.produce(name, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
        if left := producer.flush(WITHIN_S):
            raise SystemExit(f"{left} of {count} messages could not be written to Kafka")
        return Topic(name, count, self._server.bootstrap)

    def left(self, group: str, topic: Topic) -> int:
        """What a group has not committed; all of it where it has committed nothing."""
        return topic.count - sum(self.committed(group, topic).values())

    def ends(self, topic: Topic) -> dict[int, int]:
        """How many messages each partition has."""
        asked = {TopicPartition(topic.name, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        answers = self._admin.list_offsets(asked, request_timeout=WITHIN_S)
        return {place.partition: answer.result(WITHIN_S).offset for place, answer in answers.items()}

    def committed(self, group: str, topic: Topic) -> dict[int, int]:
        """How far a group is in each partition."""
        asked = [ConsumerGroupTopicPartitions(group)]
        answer = self._admin.list_consumer_group_offsets(asked, request_timeout=WITHIN_S)[group].result(WITHIN_S)
        return {
            found.partition: found.offset
            for found in answer.topic_partitions or []
            if found.topic == topic.name and found.offset > 0
        }


@contextmanager
def kafka() -> Iterator[Kafka]:
    """A broker with all of Java's compiler and a gigabyte, as one in use has; the tests' own is made to start soon."""
    with KafkaServer(jvm=("-Xms1g", "-Xmx1g")) as server:
        yield Kafka(server)


class Redis:
    """One server without persistence."""

    def __init__(self, url: str, version: str) -> None:
        self._client = redis.Redis.from_url(url)
        self._address = url.removeprefix("redis://").partition("/")[0]
        self.version = version

    def fill(self, name: str, count: int) -> Topic:
        """A new stream with so many orders."""
        pipe = self._client.pipeline(transaction=False)
        for number, (key, value) in enumerate(orders(count), 1):
            pipe.xadd(name, {"value": value, "key": key})
            if number % REDIS_BATCH == 0 or number == count:
                pipe.execute()
        return Topic(name, count, self._address)

    def left(self, group: str, topic: Topic) -> int:
        """What a group has not read, and what it has not acknowledged."""
        found = [one for one in self._client.xinfo_groups(topic.name) if one["name"] == group.encode()]
        return sum(one["pending"] + one["lag"] for one in found) if found else topic.count

    def forget(self, group: str, topic: Topic) -> None:
        """Nobody reads as this group any more."""
        self._client.xgroup_destroy(topic.name, group)


@contextmanager
def redis_streams(folder: Path) -> Iterator[Redis]:
    """A server of our own."""
    with redis_server(folder / "redis", appendfsync=None) as server, server.place() as place:
        yield Redis(place.url, server.version)
