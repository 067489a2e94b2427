"""Topics and consumer groups in memory, shared by the sources that are made with one broker."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.errors import NotSent, SourceAway, SourceError
from holdfast.policy import bounds
from holdfast.streams.memory.group import Group
from holdfast.types import Message, Outgoing, Place

if TYPE_CHECKING:
    from holdfast.streams.memory.source import MemorySource


class MemoryBroker:
    """What a server is to other sources. Sources use it from one event loop, producers from any thread; it forgets
    everything with the process.

    `partitions` [1]: of a topic that nobody has made with another number. A key's partition is its CRC-32 modulo that
    number; messages without a key take turns.
    """

    def __init__(self, *, partitions: int = 1) -> None:
        self._partitions = bounds.whole("partitions", partitions, low=1)
        self._topics: dict[str, list[list[Message]]] = {}
        self._groups: dict[str, Group] = {}
        self._turns = 0
        self._listeners: set[Callable[[], None]] = set()
        self._why_away = ""
        self._writing = threading.Lock()  # producers write from threads of their own

    # ---------------------------------------------------------------- for tests

    def create_topic(self, name: str, partitions: int | None = None) -> None:
        """Make a topic with so many partitions; one that is there must have as many."""
        n = self._partitions if partitions is None else bounds.whole("partitions", partitions, low=1)
        found = self._topics.setdefault(name, [[] for _ in range(n)])
        if partitions is not None and len(found) != n:
            raise SourceError(f"topic {name!r} has {len(found)} partitions already, not {n}")

    def expel(self, source: MemorySource) -> None:
        """Take a member out of its group, as a server does with one that was silent for too long.

        Its owner is told that its partitions are lost; it joins again with its next `receive`.
        """
        source.expelled()

    def go_away(self, why: str = "the broker is away") -> None:
        """Answer every call with SourceAway from now on."""
        self._why_away = why
        for group in self._groups.values():
            group.tell_away(why)
        self.wake()

    def come_back(self) -> None:
        """Work again."""
        self.go_away("")

    # ---------------------------------------------------------------- for sources

    def check(self) -> None:
        """SourceAway while it is away."""
        if self._why_away:
            raise SourceAway(self._why_away)

    def group(self, name: str) -> Group:
        """The group of this name, made when it is first asked for."""
        return self._groups.setdefault(name, Group(self))

    def places(self, topic: str) -> list[Place]:
        """The partitions of a topic, which is made where it is missing."""
        self.create_topic(topic)
        return [(topic, partition) for partition in range(len(self._topics[topic]))]

    def log(self, place: Place) -> list[Message]:
        """All messages of a partition; an offset is an index."""
        topic, partition = place
        return self._topics[topic][partition]

    def append(self, messages: Sequence[Outgoing], now: float) -> list[Message]:
        """Add messages, all or none, and wake those who wait for them; says what they are now."""
        written: list[Message] = []
        with self._writing:
            targets = [self._place_of(message) for message in messages]
            for message, place in zip(messages, targets, strict=True):
                log = self.log(place)
                log.append(Message(*place, len(log), message.key, message.value, tuple(message.headers), now))
                written.append(log[-1])
        self.wake()
        return written

    def listen(self, wake: Callable[[], None]) -> None:
        """Call this whenever something may have changed."""
        self._listeners.add(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Call this no more."""
        self._listeners.discard(wake)

    def wake(self) -> None:
        """Something may have changed."""
        for wake in list(self._listeners):
            wake()

    def _place_of(self, message: Outgoing) -> Place:
        n = len(self.places(message.topic))
        partition = message.partition
        if partition is None and message.key is not None:
            partition = zlib.crc32(message.key) % n
        if partition is None:
            self._turns += 1
            partition = self._turns % n
        if not 0 <= partition < n:
            raise NotSent(f"topic {message.topic!r} has no partition {partition}: there are {n}")
        return message.topic, partition
