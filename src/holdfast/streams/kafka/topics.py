"""Which topics there are, asked in a way that makes none and needs no controller."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from holdfast.ports import Clock
from holdfast.streams.kafka.calls import CallThread
from holdfast.streams.kafka.faults import MISSING, fault, kafka_error, words
from holdfast.streams.kafka.settings import KafkaSettings

_NOT_YET: Final = frozenset({KafkaError.LEADER_NOT_AVAILABLE})
"""It exists, and is about to be ready."""
_VAGUE: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT})
_STEP_S: Final = 0.5


class Topics:
    """A client that only looks: a consumer, since an admin client would make the topics that it asks for."""

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        self._settings = settings
        self._location = repr(settings)
        self._clock = clock
        self._thread = CallThread(f"{self._location}: looking for topics", clock)
        self._made: Consumer | None = None
        self._last_words = ""
        self._is_shut_out = False
        """No broker let us in when we last tried: said once, when the last of them went."""
        self._refusal: KafkaError | None = None

    async def partitions(self, topics: Collection[str], within_s: float) -> dict[str, int]:
        """How many partitions each of these has; those that do not exist are left out."""
        return await self._thread.run(lambda: self._partitions(topics, within_s)) if topics else {}

    async def close(self, within_s: float) -> None:
        """Let go of the connections."""
        await self._thread.close(within_s, self._drop)

    def _partitions(self, topics: Collection[str], within_s: float) -> dict[str, int]:
        client = self._client()
        until = self._clock.monotonic() + within_s
        found: dict[str, int] = {}
        for topic in sorted(topics):
            try:
                known = self._look(client, topic, until)
                if known.error is not None and known.error.code() not in MISSING | _NOT_YET:
                    raise KafkaException(known.error)
            except KafkaException as error:
                raise fault(f"{self._location}: cannot look for topic {topic}", error, self._hint(error)) from error
            if known.partitions:
                found[topic] = len(known.partitions)
        return found

    def _look(self, client: Consumer, topic: str, until: float) -> Any:
        """What is known of a topic; not waited for in full once no broker lets us in."""
        while True:
            try:
                known = client.list_topics(topic, _STEP_S).topics[topic]
            except KafkaException as error:
                client.poll(0)
                if self._refusal is not None:
                    raise KafkaException(self._refusal) from error
                if self._is_shut_out or kafka_error(error).code() not in _VAGUE or self._clock.monotonic() >= until:
                    raise
            else:
                self._is_shut_out = False
                return known

    def _client(self) -> Consumer:
        if self._made is None:
            try:
                # It joins no group, so that the name says nothing.
                self._made = Consumer(self._settings.consumer("holdfast-look", error_cb=self._note))
            except (KafkaException, TypeError, ValueError) as error:
                raise self._settings.refusal(error) from None
        self._made.poll(0)  # what it has to say would gather otherwise
        self._refusal = None
        return self._made

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._is_shut_out = True
            return
        self._last_words = words(error)
        if error.code() == KafkaError._AUTHENTICATION:
            self._refusal = error

    def _hint(self, error: KafkaException) -> str:
        """The reason: by itself a client says of everything that it had no answer in time."""
        return self._last_words if kafka_error(error).code() in _VAGUE else ""

    def _drop(self) -> None:
        if self._made is not None:
            self._made.close()
            self._made = None
