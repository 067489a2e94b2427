"""Messages that are sent, and acknowledged by all that must have them: each once, and in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from holdfast.errors import NotSent, SourceAway, SourceError
from holdfast.ports import Clock
from holdfast.streams.kafka.calls import CallThread
from holdfast.streams.kafka.faults import MISSING, TOO_LARGE, UNSENDABLE, fault, kafka_error
from holdfast.streams.kafka.settings import KafkaSettings
from holdfast.types import Outgoing

_GRACE_S: Final = 5.0
"""librdkafka gives up on a message by itself; this is how much later we do if it has not."""


class Parcel:
    """Messages of one call, on their way; the first that fails speaks for all."""

    def __init__(self, messages: Sequence[Outgoing], location: str) -> None:
        self._messages = messages
        self._location = location
        self.error: SourceError | None = None
        self.is_fatal = False
        """Whether the producer can do nothing more."""

    def produce(self, producer: Producer, is_over: Callable[[], bool]) -> None:
        """Hand all over to the producer, or stop at the first that it does not take."""
        told = self._told
        for message in self._messages:
            while True:
                try:
                    producer.produce(
                        message.topic,
                        message.value,
                        message.key,
                        -1 if message.partition is None else message.partition,
                        headers=list(message.headers) if message.headers else None,
                        on_delivery=told,
                    )
                except BufferError:
                    producer.poll(0.05)
                    if not is_over():
                        continue
                    self.error = self.error or SourceAway(f"{self._location}: cannot send: too much is on its way")
                except KafkaException as error:
                    self._fail(error, message.topic, len(message.value or b""))
                break
            if self.error is not None:
                return
        producer.poll(0)

    def _told(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._fail(error, message.topic(), len(message.value() or b""))

    def _fail(self, error: KafkaError | KafkaException, topic: str, size: int) -> None:
        inner = kafka_error(error)
        hint = ""
        if inner.code() in TOO_LARGE:
            hint = (
                f"its value has {size:,} bytes: raise message.max.bytes in the URL, and max.message.bytes of the topic"
            )
        elif inner.code() in MISSING:
            hint = "create it, or let the broker do so (auto.create.topics.enable)"
        said = fault(f"{self._location}: cannot send to {topic}", inner, hint)
        if inner.code() in UNSENDABLE:
            said = NotSent(str(said))
        if inner.fatal():  # for this producer: the next one may well work
            self.is_fatal = True
            said = SourceAway(str(said))
        # What can never work is what people must read of.
        if self.error is None or (isinstance(self.error, SourceAway) and not isinstance(said, SourceAway)):
            self.error = said


class Sender:
    """One idempotent producer on a thread of its own; calls that come together go out together."""

    def __init__(self, settings: KafkaSettings, clock: Clock, send_s: float) -> None:
        self._settings = settings
        self._location = repr(settings)
        self._clock = clock
        self._send_s = send_s
        self._thread = CallThread(f"{self._location}: sending", clock, self._look_up)
        self._producer: Producer | None = None
        self._parcels: list[Parcel] = []

    async def send(self, messages: Sequence[Outgoing]) -> None:
        """Returns when all are acknowledged."""
        if not messages:
            return
        parcel = Parcel(messages, self._location)
        self._parcels.append(parcel)
        await self._thread.run(self._send_all)
        if parcel.error is not None:
            raise parcel.error

    async def close(self, within_s: float) -> None:
        """Send what waits, for so long at most."""
        await self._thread.close(within_s, self._drop)

    def _send_all(self) -> None:
        """All parcels that are there, of which those that came with later calls find nothing more to do."""
        parcels, self._parcels = self._parcels, []
        if not parcels:
            return
        until = self._clock.monotonic() + self._send_s + _GRACE_S
        producer = self._made()
        for parcel in parcels:
            parcel.produce(producer, lambda: self._clock.monotonic() >= until)
        while (left := producer.flush(0.2)) and self._clock.monotonic() < until:
            continue
        for parcel in parcels:
            if left and parcel.error is None:
                parcel.error = SourceAway(f"{self._location}: {left} messages are not acknowledged yet")
        if left or any(parcel.is_fatal for parcel in parcels):
            self._drop()

    def _made(self) -> Producer:
        if self._producer is None:
            config = self._settings.producer(**{"message.timeout.ms": round(self._send_s * 1000)})
            try:
                self._producer = Producer(config)
            except (KafkaException, TypeError, ValueError) as error:
                raise self._settings.refusal(error) from None
        return self._producer

    def _drop(self) -> None:
        self._producer = None

    def _look_up(self) -> None:
        """What the client has to say would gather otherwise."""
        if self._producer is not None:
            self._producer.poll(0)
