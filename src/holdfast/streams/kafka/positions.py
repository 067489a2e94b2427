"""How far groups are, asked by consumers that never join them.

Not by the admin client: where a broker answers that the group has moved to another coordinator, as it does in every
restart, librdkafka (2.16.0) looks for the client's own group. An admin client has none, and the process crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.ports import Clock
from holdfast.streams.kafka.calls import CallThread
from holdfast.streams.kafka.faults import kafka_error
from holdfast.streams.kafka.settings import KafkaSettings
from holdfast.types import Place


class Positions:
    """Clients that only look, made with their first use; all calls go one after the other on a thread of their own."""

    def __init__(self, settings: KafkaSettings, clock: Clock, note: Callable[[KafkaError], None]) -> None:
        self._settings = settings
        self._note = note
        self._thread = CallThread(f"{settings!r}: looking at groups", clock)
        self._made: dict[tuple[str, bool], Consumer] = {}

    async def committed(
        self, group: str, places: Collection[Place], within_s: float, *, is_stable: bool
    ) -> dict[Place, int]:
        """The positions of a group, where it has any; `is_stable` waits for transactions that are about to end."""
        return await self._thread.run(lambda: self._committed(group, places, within_s, is_stable))

    async def close(self, within_s: float) -> None:
        """Let go of the connections."""
        await self._thread.close(within_s, self._drop)

    def _committed(self, group: str, places: Collection[Place], within_s: float, is_stable: bool) -> dict[Place, int]:
        client = self._client(group, is_stable)
        try:
            found = client.committed([TopicPartition(*place) for place in places], within_s)
        except KafkaException as error:
            client.poll(0)
            if kafka_error(error).code() == KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            raise
        for partition in found:
            if partition.error is not None:
                raise KafkaException(partition.error)
        return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    def _client(self, group: str, is_stable: bool) -> Consumer:
        client = self._made.get((group, is_stable))
        if client is None:
            level = "read_committed" if is_stable else "read_uncommitted"
            try:
                client = Consumer(self._settings.consumer(group, **{"isolation.level": level, "error_cb": self._note}))
            except (KafkaException, TypeError, ValueError) as error:
                raise self._settings.refusal(error) from None
            self._made[group, is_stable] = client
        client.poll(0)  # what it has to say would gather otherwise
        return client

    def _drop(self) -> None:
        while self._made:
            self._made.popitem()[1].close()
