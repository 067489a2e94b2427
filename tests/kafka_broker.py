"""What tests ask of a Kafka broker, wherever it runs: topics, messages and committed offsets, by plain clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

Headers = Iterable[tuple[str, bytes | None]]
_WITHIN_S: Final = 30.0


class KafkaBroker:
    """A broker on a loopback port. Its own clients are made for one call each, so they outlive no restart."""

    def __init__(self, port: int, admin_port: int) -> None:
        self.port = port
        """Where clients under test connect."""
        self.admin_port = admin_port
        """A second way in for the tests themselves, past any proxy."""

    @property
    def bootstrap(self) -> str:
        """The address for clients under test."""
        return f"127.0.0.1:{self.port}"

    def url(self, topic: str) -> str:
        """The URL of a stream."""
        return f"kafka://{self.bootstrap}/{topic}"

    def admin(self) -> AdminClient:
        """A quiet admin client; one that nobody refers to any more never answers."""
        return AdminClient(self._client())

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] = {}) -> None:
        """Make a topic, and wait until its partitions have leaders."""
        admin = self.admin()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config))
        admin.create_topics([topic], operation_timeout=_WITHIN_S)[name].result(_WITHIN_S)

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all that is in it."""
        admin = self.admin()
        admin.delete_topics([name], operation_timeout=_WITHIN_S)[name].result(_WITHIN_S)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        keys: Iterable[bytes | str | None] | None = None,
        headers: Headers = (),
        partition: int = -1,
    ) -> None:
        """Write messages in order, and wait until all are there; without keys and a partition they go anywhere."""
        failed: list[KafkaError] = []
        producer = Producer(
            self._client() | {"linger.ms": 0, "max.in.flight": 1}
        )  # an idempotent one begins 0.5 s late
        given = list(values)
        for value, key in zip(given, [None] * len(given) if keys is None else keys, strict=True):
            producer.produce(
                topic,
                value=value,
                key=key,
                headers=list(headers),
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error is not None else None,
            )
            producer.poll(0)
        left = producer.flush(_WITHIN_S)
        if failed:
            raise KafkaException(failed[0])
        assert left == 0, f"{left} of {len(given)} messages were not delivered"

    def read(
        self, topic: str, *, isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    ) -> list[Message]:
        """All that is in a topic now, by partition and offset; up to the first open transaction if committed only."""
        consumer = Consumer(
            self._client()
            | {
                "group.id": "holdfast-tests-read",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "isolation.level": isolation,
            }
        )
        try:
            waiting = set(consumer.list_topics(topic, timeout=_WITHIN_S).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in waiting])
            found: list[Message] = []
            while waiting:
                message = consumer.poll(_WITHIN_S)
                assert message is not None, f"partitions {waiting} of {topic} did not answer"
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(message.partition())
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        return sorted(found, key=lambda message: (message.partition() or 0, message.offset() or 0))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The next offset of a group for each partition where it has committed one."""
        # By a consumer that never joins: librdkafka's admin client crashes where a group has just moved.
        consumer = Consumer(self._client() | {"group.id": group, "isolation.level": "read_uncommitted"})
        try:
            partitions = consumer.list_topics(topic, timeout=_WITHIN_S).topics[topic].partitions
            answer = consumer.committed([TopicPartition(topic, number) for number in partitions], _WITHIN_S)
        finally:
            consumer.close()
        for found in answer:
            if found.error is not None:
                raise KafkaException(found.error)
        return {found.partition: found.offset for found in answer if found.offset >= 0}

    def _client(self) -> dict[str, str | int | float | bool]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.admin_port}",
            "log_level": 0,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 20,
        }
