"""Commits of one consumer, one on its way at a time: what comes meanwhile goes along with the next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.errors import SourceAway, SourceError
from holdfast.ports import Clock, Progress
from holdfast.streams.kafka import marks
from holdfast.streams.kafka.faults import GROUP_MOVED, fault, kafka_error
from holdfast.types import Place

_AGAIN_S: Final = 0.1
_STILL_MEMBER: Final = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})

Done = Callable[[SourceError | None], None]
"""Told once how a commit ended; None is well."""


def offsets_of(progress: Mapping[Place, Progress]) -> dict[Place, TopicPartition]:
    """What Kafka is to remember of each partition: its position, and what was tried of the messages after it."""
    return {
        place: TopicPartition(*place, how.position, marks.written(how.position, how.retries))
        for place, how in progress.items()
    }


class Commits:
    """All of it is called on the consumer's thread."""

    def __init__(self, consumer: Consumer, location: str, clock: Clock) -> None:
        self._consumer = consumer
        self._what = f"{location}: cannot commit"
        self._clock = clock
        self._sent: dict[Place, TopicPartition] = {}
        self._sent_for: list[Done] = []
        self._next: dict[Place, TopicPartition] = {}
        self._next_for: list[Done] = []
        self._next_at = 0.0
        self._is_refused = False
        self._unheard = 0
        """Answers that nobody waits for any more."""

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is awaited, which only a poll brings, or a commit is to be sent again."""
        return bool(self._sent_for or self._next_for)

    def add(self, offsets: Mapping[Place, TopicPartition], done: Done) -> None:
        """Commit these, now or with the next ones."""
        self._next.update(offsets)
        self._next_for.append(done)
        self.send()

    def send(self) -> None:
        """What has gathered, unless something is on its way, or the group is to settle first."""
        if not self._next_for or self._sent_for or self._clock.monotonic() < self._next_at:
            return
        self._sent, self._next = self._next, {}
        self._sent_for, self._next_for = self._next_for, []
        if not self._sent:
            self._end(None)
            return
        try:
            self._consumer.commit(offsets=list(self._sent.values()), asynchronous=True)
        except KafkaException as error:
            self._end(error)

    def answered(self, error: KafkaError | None, partitions: Iterable[Any]) -> None:
        """The broker has answered; what has gathered meanwhile is sent."""
        if self._unheard:
            self._unheard -= 1
            return
        self._end(error or _first_error(partitions))
        self.send()

    def now(self, offsets: Mapping[Place, TopicPartition]) -> SourceError | None:
        """Commit these, with all that waits, and block until the broker has answered: while no poll can bring it."""
        self._unheard += bool(self._sent_for)
        self._sent = self._sent | self._next | dict(offsets)
        self._sent_for += self._next_for
        self._next, self._next_for = {}, []
        error: KafkaError | KafkaException | None = None
        if self._sent:
            try:
                error = _first_error(self._consumer.commit(offsets=list(self._sent.values()), asynchronous=False))
            except KafkaException as caught:
                error = caught
        self._end(error)
        return None if error is None else fault(self._what, error)

    def drop(self, places: Collection[Place]) -> None:
        """These are not ours any more: nothing of them is sent from now on, nor again if it is refused."""
        for place in places:
            self._next.pop(place, None)
            self._sent.pop(place, None)

    def close(self) -> None:
        """Nothing will be answered any more."""
        for done in self._sent_for + self._next_for:
            done(SourceAway(f"{self._what}: it was closed before the broker had answered"))
        self._sent_for, self._next_for = [], []

    def _end(self, error: KafkaError | KafkaException | None) -> None:
        sent, done = self._sent, self._sent_for
        self._sent, self._sent_for = {}, []
        if error is not None and kafka_error(error).code() in GROUP_MOVED:
            # What is still ours is sent again when the group has settled; what is not is dropped until then.
            self._next = sent | self._next
            self._next_for = done + self._next_for
            # At once where we are a member still, the first time: until the group moves again, which holds up all that
            # is sent, may be a moment. Where we are none, the news of what we have lost must come first.
            is_at_once = kafka_error(error).code() in _STILL_MEMBER and not self._is_refused
            self._next_at = self._clock.monotonic() + (0.0 if is_at_once else _AGAIN_S)
            self._is_refused = True
            return
        self._is_refused = False
        said = None if error is None else fault(self._what, error)
        for one in done:
            one(said)


def _first_error(partitions: Iterable[Any] | None) -> KafkaError | None:
    return next((partition.error for partition in partitions or () if partition.error is not None), None)
