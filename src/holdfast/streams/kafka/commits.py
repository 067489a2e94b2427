"""Commits of one consumer, one on its way at a time: what comes meanwhile goes along with the next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.errors import SourceAway, SourceError
from holdfast.ports import Progress
from holdfast.streams.kafka import marks
from holdfast.streams.kafka.faults import fault
from holdfast.types import Place

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

    def __init__(self, consumer: Consumer, location: str) -> None:
        self._consumer = consumer
        self._what = f"{location}: cannot commit"
        self._sent: dict[Place, TopicPartition] = {}
        self._sent_for: list[Done] = []
        self._next: dict[Place, TopicPartition] = {}
        self._next_for: list[Done] = []
        self._unheard = 0
        """Answers that nobody waits for any more."""

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is awaited, which only a poll brings."""
        return bool(self._sent_for)

    def add(self, offsets: Mapping[Place, TopicPartition], done: Done) -> None:
        """Commit these, now or with the next ones."""
        self._next.update(offsets)
        self._next_for.append(done)
        if not self._sent_for:
            self._send()

    def answered(self, error: KafkaError | None, partitions: Iterable[Any]) -> None:
        """The broker has answered; what has gathered meanwhile is sent."""
        if self._unheard:
            self._unheard -= 1
            return
        done, self._sent_for, self._sent = self._sent_for, [], {}
        self._tell(done, error or _first_error(partitions))
        if self._next_for:
            self._send()

    def now(self, offsets: Mapping[Place, TopicPartition]) -> SourceError | None:
        """Commit these, with all that waits, and block until the broker has answered: while no poll can bring it."""
        self._unheard += bool(self._sent_for)
        todo = self._sent | self._next | dict(offsets)
        done = self._sent_for + self._next_for
        self._sent, self._sent_for, self._next, self._next_for = {}, [], {}, []
        error: KafkaError | KafkaException | None = None
        if todo:
            try:
                error = _first_error(self._consumer.commit(offsets=list(todo.values()), asynchronous=False))
            except KafkaException as caught:
                error = caught
        return self._tell(done, error)

    def drop(self, places: Collection[Place]) -> None:
        """These are not ours any more: nothing of them is sent that was not sent yet."""
        for place in places:
            self._next.pop(place, None)

    def close(self) -> None:
        """Nothing will be answered any more."""
        for done in self._sent_for + self._next_for:
            done(SourceAway(f"{self._what}: it was closed before the broker had answered"))
        self._sent_for, self._next_for = [], []

    def _send(self) -> None:
        self._sent, self._next = self._next, {}
        self._sent_for, self._next_for = self._next_for, []
        if self._sent:
            try:
                self._consumer.commit(offsets=list(self._sent.values()), asynchronous=True)
            except KafkaException as error:
                done, self._sent_for = self._sent_for, []
                self._tell(done, error)
        else:
            done, self._sent_for = self._sent_for, []
            self._tell(done, None)

    def _tell(self, all_done: Iterable[Done], error: KafkaError | KafkaException | None) -> SourceError | None:
        said = None if error is None else fault(self._what, error)
        for done in all_done:
            done(said)
        return said


def _first_error(partitions: Iterable[Any] | None) -> KafkaError | None:
    return next((partition.error for partition in partitions or () if partition.error is not None), None)
