"""Which partitions are ours, from where they are read, and which of them are paused: all of it on the thread."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from holdfast.streams.kafka.points import starting_points
from holdfast.types import Place


def partitions_of(places: Iterable[Place]) -> list[TopicPartition]:
    """The same as Kafka's client has it."""
    return [TopicPartition(*place) for place in places]


class Arrived(NamedTuple):
    """What is read from now on."""

    positions: dict[Place, int]
    """Partitions that the owner does not know yet, or not so."""
    other_logs: frozenset[Place]
    """Those of them that were ours before, in a log that is no more."""
    deleted: int
    """How many messages nobody has read that are gone."""


class Assignment:
    """The client's own assignment follows the group's with a delay: first the broker must say from where to read."""

    def __init__(self, consumer: Consumer, latest: str, group: str) -> None:
        self._consumer = consumer
        self._latest = latest
        self._group = group
        self.ours: set[Place] = set()
        """Those that the owner knows of."""
        self.arriving: dict[Place, int | None] = {}
        """Given to us by the group, but not read yet. With an offset: it was ours already, and ran out of the log."""
        self.retries: dict[Place, dict[int, int]] = {}
        """Counted attempts of messages that are still to come."""
        self._reading: set[Place] = set()
        self._paused: set[Place] = set()
        self._stopped: set[Place] = set()
        """Paused in the client, for whatever reason."""
        self.is_resting = False

    def place(self) -> Arrived:
        """Read from what is arriving; KafkaException while the broker does not say from where."""
        points = starting_points(self._consumer, self.arriving, self._latest, self._group)
        self._consumer.incremental_assign([TopicPartition(*point.place, point.position) for point in points])
        positions: dict[Place, int] = {}
        other_logs: set[Place] = set()
        for point in points:
            here = self.arriving.pop(point.place)
            if point.retries:
                self.retries[point.place] = point.retries
            if here is not None and here > point.position:
                other_logs.add(point.place)
            if here is None or here > point.position:
                positions[point.place] = point.position
            self._reading.add(point.place)
        self.ours.update(positions)
        self._apply_pauses()
        return Arrived(positions, frozenset(other_logs), sum(point.deleted for point in points))

    def set_adrift(self, place: Place) -> None:
        """What comes next is not in the log any more: it has to be placed anew."""
        if place not in self._reading:
            return
        here = [TopicPartition(*place)]
        self.arriving[place] = self._consumer.position(here)[0].offset
        self._let_go({place})

    def forget(self, places: Collection[Place]) -> None:
        """These are not ours any more."""
        for held in (self.ours, self._paused):
            held.difference_update(places)
        for place in places:
            self.retries.pop(place, None)
            self.arriving.pop(place, None)
        self._let_go(self._reading.intersection(places))

    def _let_go(self, places: Collection[Place]) -> None:
        """The client keeps a pause beyond an assignment: one that came back with it would never be fetched."""
        if stopped := self._stopped.intersection(places):
            self._consumer.resume(partitions_of(stopped))
            self._stopped -= stopped
        self._reading.difference_update(places)
        self._consumer.incremental_unassign(partitions_of(places))

    def pause(self, places: Collection[Place]) -> None:
        """Fetch no more of these."""
        self._paused |= self.ours.intersection(places)
        self._apply_pauses()

    def resume(self, places: Collection[Place]) -> None:
        """Fetch these again."""
        self._paused.difference_update(places)
        self._apply_pauses()

    def rest(self, is_resting: bool) -> None:
        """Fetch nothing at all, or what is not paused."""
        if is_resting is not self.is_resting:
            self.is_resting = is_resting
            self._apply_pauses()

    def _apply_pauses(self) -> None:
        stop = set(self._reading) if self.is_resting else self._reading & self._paused
        if more := stop - self._stopped:
            self._consumer.pause(partitions_of(more))
        if fewer := self._stopped - stop:
            self._consumer.resume(partitions_of(fewer))
        self._stopped = stop
