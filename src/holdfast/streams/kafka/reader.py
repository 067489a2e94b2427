"""A topic from its beginning to where it ends now, read without a group's help and without a trace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.clock import new_id
from holdfast.errors import SourceAway
from holdfast.ports import Clock
from holdfast.streams.kafka.admin import WITHIN_S
from holdfast.streams.kafka.calls import CallThread
from holdfast.streams.kafka.faults import fault
from holdfast.streams.kafka.messages import converted
from holdfast.streams.kafka.settings import KafkaSettings
from holdfast.types import Message, Place

_BATCH: Final = 500


async def read(
    settings: KafkaSettings, topic: str, extent: Mapping[Place, tuple[int, int]], clock: Clock
) -> AsyncIterator[list[Message]]:
    """All messages of a topic within these offsets, in batches."""
    reader = _Reader(settings, topic, extent)
    thread = CallThread(f"{settings!r}: reading {topic}", clock)
    try:
        while (batch := await thread.run(reader.next)) is not None:
            if batch:
                yield batch
    finally:
        await thread.close(WITHIN_S, reader.end)


class _Reader:
    """Its methods block: they are for a thread."""

    def __init__(self, settings: KafkaSettings, topic: str, extent: Mapping[Place, tuple[int, int]]) -> None:
        self._what = f"{settings!r}: cannot read {topic}"
        self._ends = {place: end for place, (begin, end) in extent.items() if end > begin}
        """Of partitions that are not read to their end."""
        # Nobody else is in this group, and nothing is committed to it, so that the broker never hears of it.
        config = settings.consumer(f"holdfast-read-{new_id()}", **{"enable.partition.eof": True})
        try:
            self._consumer = Consumer(config)
        except (KafkaException, TypeError, ValueError) as error:
            raise settings.refusal(error) from None
        self._consumer.assign([TopicPartition(*place, extent[place][0]) for place in self._ends])

    def next(self) -> list[Message] | None:
        """The next messages, maybe none; None at the end."""
        if not self._ends:
            return None
        batch = self._consumer.consume(_BATCH, 0)
        if not batch:
            first = self._consumer.poll(WITHIN_S)
            if first is None:
                raise SourceAway(f"{self._what}: no answer from the broker within {WITHIN_S:g} s")
            batch = [first]
        messages, errors = converted(batch)
        found = [message for message in messages if message.offset < self._ends.get(message.place, 0)]
        for message in messages:
            if message.offset >= self._ends.get(message.place, message.offset + 2) - 1:
                del self._ends[message.place]
        for raw in errors:
            error: KafkaError = raw.error()
            if error.code() == KafkaError._PARTITION_EOF:  # what comes at the end may be no message
                self._ends.pop((raw.topic(), raw.partition()), None)
            elif error.fatal() or not error.retriable():
                raise fault(self._what, error)
        return found

    def end(self) -> None:
        """Let go of the connections."""
        self._consumer.close()
