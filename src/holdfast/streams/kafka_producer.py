"""Takes a producer's messages to Kafka: librdkafka sends, repeats and numbers them, and reports each."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from holdfast.clock import SystemClock
from holdfast.errors import NotSent, SourceError
from holdfast.streams.buffer import Buffer, Carrier
from holdfast.streams.kafka.faults import TOO_LARGE, kafka_error, words
from holdfast.streams.kafka.logs import log
from holdfast.streams.kafka.settings import KafkaSettings
from holdfast.streams.sent import Sent
from holdfast.types import Outgoing

_OURS: Final = {
    "batch.num.messages": "say batch= instead",
    "delivery.timeout.ms": "say timeout= instead",
    "message.timeout.ms": "say timeout= instead",
    "queue.buffering.max.messages": "say buffer= instead",
}
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_BUFFER_KBYTES: Final = 1_048_576
"""What librdkafka holds at most, unless the URL says otherwise."""
_LINGER_S: Final = 0.005
_LOOK_S: Final = 0.1
"""How long the thread waits for reports before it looks around."""
_NAP_S: Final = 0.01
_CLOSE_S: Final = 1.0
_LONGEST_MS: Final = 2**31 - 1


class KafkaCarrier:
    """One of librdkafka's producers, with a thread that hears its reports.

    Each report has to take Python's lock once, and a program that is busy sending lends it out only every 5 ms. So
    the senders hear the reports themselves meanwhile, once every batch, and the thread does while nobody sends.
    """

    def __init__(self, url: str, buffer: Buffer, *, size: int, batch: int, timeout_s: float) -> None:
        settings = KafkaSettings(url)
        for name in settings.place.options.keys() & _OURS.keys():
            raise settings.place.refusal(f"{name} cannot be set: {_OURS[name]}")
        self._settings = settings
        self._buffer = buffer
        self._batch = batch
        self._timeout_s = timeout_s
        timeout_ms = min(max(round(timeout_s * 1000), 1), _LONGEST_MS)
        self._options: dict[str, Any] = {
            "batch.num.messages": batch,
            "delivery.timeout.ms": timeout_ms,
            # The buffer counts for itself, and what it has counted out is still in here for a moment.
            "queue.buffering.max.messages": 2 * size + 1000,
            "delivery.report.only.error": False,
            "error_cb": self._heard,
        }
        if not {"linger.ms", "queue.buffering.max.ms"} & settings.place.options.keys():
            self._options["linger.ms"] = min(_LINGER_S * 1000, timeout_ms / 2)
        kbytes = settings.place.options.get("queue.buffering.max.kbytes", "")
        self._most_bytes = 1024 * (int(kbytes) if kbytes.isdecimal() else _BUFFER_KBYTES)
        self._reports: deque[Sent] = deque()
        self._taken = 0
        self._unheard = 0
        self._trouble = ""
        """What the client has last complained of, for those that are given up."""
        self._is_broken = False
        """After an error that librdkafka does not go on after: nothing is sent until there is a new client."""
        self._is_closed = False
        self._wanted = threading.Event()
        """Somebody waits for reports, so the thread must not leave them to the senders."""
        self._produce: Callable[..., None]
        self._client = self._made()
        self._thread = threading.Thread(target=self._run, name="holdfast-producer", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- for the buffer

    def put(self, sent: Sent, message: Outgoing) -> bool:
        if self._is_broken or self._is_closed:
            return False
        partition = -1 if message.partition is None else message.partition
        report = partial(self._report, sent)
        try:
            if message.headers:
                headers = list(message.headers)
                self._produce(message.topic, message.value, message.key, partition, report, headers=headers)
            else:
                self._produce(message.topic, message.value, message.key, partition, report)
        except BufferError:  # too many bytes for it, if not too many messages
            if len(message.value or b"") + len(message.key or b"") > self._most_bytes:
                raise SourceError(f"{self._where(sent)}: larger than queue.buffering.max.kbytes") from None
            return False
        except KafkaException as error:
            return self._refused(sent, error)
        self._taken += 1
        return True

    def hurry(self) -> None:
        self._wanted.set()

    def pace(self) -> None:
        self._unheard += 1
        if self._unheard >= self._batch:
            self._unheard = 0
            self._hear(0)

    def close(self) -> None:
        self._is_closed = True
        self._wanted.set()
        self._thread.join(_CLOSE_S)
        if len(self._client):
            with suppress(KafkaException):
                self._client.purge()
            self._hear(0)

    # ---------------------------------------------------------------- reports

    def _run(self) -> None:
        try:
            self._listen()
        except Exception:  # a mistake of ours: nobody may wait for a thread that has ended
            self._buffer.fail()

    def _listen(self) -> None:
        clock = SystemClock()  # librdkafka lives by the machine's clock, too
        while not self._is_closed:
            taken = self._taken
            self._hear(_LOOK_S)
            if self._is_broken and not self._is_closed:
                self._renew()
            elif self._taken == taken:
                self._buffer.advance()  # bytes come free a moment after the message that had them is settled
            elif self._taken - taken >= self._batch and clock.wait(self._wanted, _NAP_S):
                self._wanted.clear()

    def _hear(self, wait_s: float) -> None:
        """Have `_report` called for all that is reported, then settle it in one go."""
        try:
            self._client.poll(wait_s)
        except (KafkaException, SystemError) as error:
            # The binding raises what the client cannot go on after out of here, and loses a report on the way.
            cause = error.__cause__ if isinstance(error, SystemError) else error
            self._trouble = words(cause) if isinstance(cause, KafkaException) else str(error)
            self._is_broken = True
        done: list[Sent] = []
        with suppress(IndexError):  # several threads may hear at once
            while self._reports:
                done.append(self._reports.popleft())
        if done:
            self._buffer.settle(done)

    def _report(self, sent: Sent, error: KafkaError | None, message: Message) -> None:
        if sent.error is not None:
            return  # it was given up on already
        if error is None:
            self._trouble = ""
            offset = message.offset()
            sent.partition = message.partition()  # type: ignore[assignment]
            sent.offset = -1 if offset is None else offset
        else:
            sent.error = self._given_up(sent, error)
        self._reports.append(sent)

    def _given_up(self, sent: Sent, error: KafkaError) -> NotSent:
        code = error.code()
        if code in _PURGED:
            why = "not written when the producer was closed" if self._is_closed else "the client could not go on"
        elif code == KafkaError._MSG_TIMED_OUT:
            why = f"not acknowledged within {self._timeout_s:g} s"
        else:
            return NotSent(f"{self._where(sent)}: {words(error)}")
        return NotSent(f"{self._where(sent)}: {why}{'; ' if self._trouble else ''}{self._trouble}")

    def _where(self, sent: Sent) -> str:
        return f"{self._settings}: topic {sent.topic}"

    # ---------------------------------------------------------------- trouble

    def _heard(self, error: KafkaError) -> None:
        """What the client complains of, and heals by itself."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._trouble:  # which says less than what came before
            self._trouble = words(error)

    def _refused(self, sent: Sent, error: KafkaException) -> bool:
        inner = kafka_error(error)
        if inner.fatal() or inner.code() == KafkaError._FATAL:
            self._trouble = words(inner)
            self._is_broken = True
            return False
        hint = "; raise message.max.bytes in the URL and on the server" if inner.code() in TOO_LARGE else ""
        raise SourceError(f"{self._where(sent)}: {words(inner)}{hint}") from error

    def _renew(self) -> None:
        """Put a new client in the place of a broken one.

        Only when all that the old one had taken has been reported, so that nothing passes it on the way. It is not sent
        again: some of it may be written, and nobody knows which.
        """
        why = self._trouble
        log.error("%s: the client cannot go on, and a new one takes over: %s", self._settings, why)
        with suppress(KafkaException):
            self._client.purge(in_queue=True, in_flight=False)
        while len(self._client) and not self._is_closed:
            self._hear(_LOOK_S)
        if not self._is_closed:
            self._buffer.give_up(f"nobody knows whether it is written: {why}")
            self._client = self._made()
            self._is_broken = False
            self._buffer.advance()

    def _made(self) -> Producer:
        try:
            client = Producer(self._settings.producer(**self._options))
        except (KafkaException, ValueError, TypeError) as error:
            raise self._settings.refusal(error) from None
        self._produce = client.produce
        return client


if TYPE_CHECKING:
    _contract: type[Carrier] = KafkaCarrier
