"""How far groups and topics are, asked by consumers that never join a group.

Not by the admin client of librdkafka (2.16.0), which crashes the process. Asked for a group that has moved to another
coordinator, as in every restart of a broker, it looks for its own group, and has none. Asked for the ends of a topic
that it does not know, it looks for the leaders on the thread of the caller, and an answer that comes on its own frees
what the caller is about to lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.ports import Clock
from holdfast.streams.kafka.calls import CallThread
from holdfast.streams.kafka.faults import kafka_error
from holdfast.streams.kafka.settings import KafkaSettings
from holdfast.types import Place

_NO_GROUP: Final = "holdfast-look"


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

    async def begins(self, places: Collection[Place], within_s: float) -> dict[Place, int]:
        """The first offset that each of these has still."""
        return await self._thread.run(lambda: self._offsets(places, OFFSET_BEGINNING, within_s, is_stable=False))

    async def ends(self, places: Collection[Place], within_s: float, *, is_stable: bool) -> dict[Place, int]:
        """The offset that each has next; `is_stable`: before what belongs to a transaction that is still open."""
        return await self._thread.run(lambda: self._offsets(places, OFFSET_END, within_s, is_stable=is_stable))

    async def close(self, within_s: float) -> None:
        """Let go of the connections."""
        await self._thread.close(within_s, self._drop)

    def _offsets(self, places: Collection[Place], which: int, within_s: float, *, is_stable: bool) -> dict[Place, int]:
        client = self._client(_NO_GROUP, is_stable)
        try:
            found = client.offsets_for_times([TopicPartition(*place, which) for place in places], within_s)
        except KafkaException:
            client.poll(0)
            raise
        return {(one.topic, one.partition): one.offset for one in _well(found)}

    def _committed(self, group: str, places: Collection[Place], within_s: float, is_stable: bool) -> dict[Place, int]:
        client = self._client(group, is_stable)
        try:
            found = client.committed([TopicPartition(*place) for place in places], within_s)
        except KafkaException as error:
            client.poll(0)
            if kafka_error(error).code() == KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            raise
        return {(one.topic, one.partition): one.offset for one in _well(found) if one.offset >= 0}

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


def _well(found: list[TopicPartition]) -> list[TopicPartition]:
    """The same; KafkaException where one of them has an error."""
    for partition in found:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return found
