"""Where a partition is read from when it becomes ours: after what was committed, or where the group is to start."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from holdfast.streams.kafka import marks
from holdfast.streams.kafka.logs import log
from holdfast.types import Place

_WITHIN_S: Final = 5.0


class Point(NamedTuple):
    """The offset to begin at."""

    place: Place
    position: int
    retries: dict[int, int]
    """Counted attempts of messages from there on."""
    deleted: int = 0
    """How many offsets after the committed one are gone from the log."""


def starting_points(consumer: Consumer, places: Mapping[Place, int | None], latest: str, group: str) -> list[Point]:
    """Where to read each of these from: from the offset given, else from the committed one, else from the beginning.

    latest: the topic that begins at its end instead; empty is none.

    KafkaException while the broker cannot say, as with a transaction that is still open.
    """
    asked = sorted(place for place, position in places.items() if position is None)
    known = [TopicPartition(*place, position) for place, position in places.items() if position is not None]
    known += consumer.committed([TopicPartition(*place) for place in asked], _WITHIN_S) if asked else []
    lows = _offsets(consumer, places, OFFSET_BEGINNING)
    highs = _offsets(consumer, places, OFFSET_END)
    points = []
    for partition in known:
        if partition.error is not None:
            raise KafkaException(partition.error)
        place = (partition.topic, partition.partition)
        points.append(_point(place, partition, lows[place], highs[place], latest, group))
    return points


def _offsets(consumer: Consumer, places: Collection[Place], which: int) -> dict[Place, int]:
    found = consumer.offsets_for_times([TopicPartition(*place, which) for place in places], _WITHIN_S)
    for partition in found:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return {(partition.topic, partition.partition): partition.offset for partition in found}


def _point(place: Place, committed: TopicPartition, low: int, high: int, latest: str, group: str) -> Point:
    begin = high if place[0] == latest else low
    position = committed.offset
    if position < 0:
        return Point(place, begin, {})
    name = f"{place[0]}/{place[1]}"
    if position < low:
        log.warning(
            "%s: %d offsets from %d on were deleted before group %s had read them; it goes on at %d",
            name, low - position, position, group, low,
        )  # fmt: skip
        return Point(place, low, {}, low - position)
    if position > high:
        log.warning(
            "%s: group %s was at %d, but the log ends at %d: it was cut off or made anew; it goes on at %d",
            name, group, position, high, begin,
        )  # fmt: skip
        return Point(place, begin, {})
    return Point(place, position, marks.read(position, committed.metadata))
