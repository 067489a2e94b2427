"""Messages and progress written together, or neither: Kafka's transactions, on a thread of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from holdfast.errors import SourceAway, SourceError
from holdfast.ports import Clock, Progress
from holdfast.streams.kafka.calls import CallThread
from holdfast.streams.kafka.commits import offsets_of
from holdfast.streams.kafka.faults import fault, kafka_error, words
from holdfast.streams.kafka.logs import log
from holdfast.streams.kafka.sender import Parcel
from holdfast.streams.kafka.settings import KafkaSettings
from holdfast.types import Outgoing, Place

_STEP_S: Final = 5.0
"""How long one call blocks; after it we look whether we are to stop, and call again."""


class Unknown(SourceAway):
    """Whether the transaction was committed is not known; the producer that could have said so is gone."""


class Transactions:
    """One transactional producer; transactions go one after the other."""

    def __init__(self, settings: KafkaSettings, transactional_id: str, clock: Clock) -> None:
        self._settings = settings
        self._location = repr(settings)
        self._what = f"{self._location}: cannot commit a transaction"
        self._id = transactional_id
        self._thread = CallThread(f"{self._location}: transactions", clock, self._look_up)
        self._producer: Producer | None = None

    async def run(self, messages: Sequence[Outgoing], progress: Mapping[Place, Progress], membership: Any) -> None:
        """All of it, or nothing; SourceAway when it was aborted, and Unknown when it may have been committed."""
        await self._thread.run(lambda: self._transact(messages, progress, membership))

    async def recover(self) -> None:
        """A new producer under the same id: the broker ends what the old one has left open, this way or that."""
        await self._thread.run(self._made)

    async def close(self, within_s: float) -> None:
        """Let the one that runs come to its end, for so long at most."""
        await self._thread.close(within_s, self._drop)

    # ---------------------------------------------------------------- on the thread

    def _transact(self, messages: Sequence[Outgoing], progress: Mapping[Place, Progress], membership: Any) -> None:
        producer = self._made()
        parcel = Parcel(messages, self._location)
        is_committing = False
        try:
            producer.begin_transaction()
            parcel.produce(producer, lambda: self._thread.is_closing)
            if parcel.error is not None:
                raise parcel.error
            offsets = list(offsets_of(progress).values())
            if offsets:
                self._insist(lambda: producer.send_offsets_to_transaction(offsets, membership, _STEP_S))
            is_committing = True
            self._insist(lambda: producer.commit_transaction(_STEP_S))
        except SourceError:
            self._abort(producer)
            raise
        except KafkaException as error:
            inner = kafka_error(error)
            if inner.txn_requires_abort():
                self._abort(producer)
            else:  # this producer can do nothing more; what it has begun is aborted when the next one takes its id
                self._drop()
                if is_committing:
                    raise Unknown(f"{self._what}: {words(error)}") from error
            said = parcel.error or fault(self._what, error)
            raise said if isinstance(said, SourceAway) or parcel.error else SourceAway(str(said)) from error

    def _insist(self, call: Callable[[], None]) -> None:
        """Make a call until it has an answer: one that took too long goes on by itself, and may be asked for again."""
        while True:
            try:
                call()
            except KafkaException as error:
                inner = kafka_error(error)
                if not inner.retriable() or inner.txn_requires_abort() or self._thread.is_closing:
                    raise
                log.debug("%s: %s", self._location, words(error))
            else:
                return

    def _abort(self, producer: Producer) -> None:
        try:
            self._insist(lambda: producer.abort_transaction(_STEP_S))
        except KafkaException as error:
            log.debug("%s: cannot abort a transaction: %s", self._location, words(error))
            self._drop()

    def _made(self) -> Producer:
        """The producer, ready to begin."""
        if self._producer is None:
            try:
                producer = Producer(self._settings.producer(**{"transactional.id": self._id}))
            except (KafkaException, TypeError, ValueError) as error:
                raise self._settings.refusal(error) from None
            try:
                self._insist(lambda: producer.init_transactions(_STEP_S))
            except KafkaException as error:
                raise fault(f"{self._location}: cannot begin transactions as {self._id}", error) from error
            self._producer = producer
        return self._producer

    def _drop(self) -> None:
        self._producer = None

    def _look_up(self) -> None:
        """What the client has to say would gather otherwise."""
        if self._producer is not None:
            self._producer.poll(0)
