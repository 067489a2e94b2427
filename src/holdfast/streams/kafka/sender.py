"""Messages that are sent, and acknowledged by all that must have them: each once, and in order."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from holdfast.errors import ConfigError, NotSent, SourceAway, SourceError
from holdfast.ports import Clock
from holdfast.streams.kafka.faults import MISSING, TOO_LARGE, UNSENDABLE, fault, kafka_error
from holdfast.streams.kafka.logs import log
from holdfast.streams.kafka.settings import KafkaSettings
from holdfast.types import Outgoing

_GRACE_S: Final = 5.0
"""librdkafka gives up on a message by itself; this is how much later we do if it has not."""
_POLL_S: Final = 0.01
_IDLE_S: Final = 5.0


class Parcel:
    """Messages of one call, on their way; the first that fails speaks for all."""

    def __init__(self, messages: Sequence[Outgoing], location: str) -> None:
        self._messages = messages
        self._location = location
        self.left = len(messages)
        """How many nobody has said anything of yet."""
        self.until_s = float("inf")
        self.future: asyncio.Future[None] | None = None
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
        self.left -= 1
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
    """One idempotent producer on a thread of its own. Each call ends when its own messages are acknowledged: one to a
    topic that does not answer keeps no other.
    """

    def __init__(self, settings: KafkaSettings, clock: Clock, send_s: float) -> None:
        self._settings = settings
        self._location = repr(settings)
        self._clock = clock
        self._send_s = send_s
        self._thread: threading.Thread | None = None
        self._bell = threading.Event()
        self._new: deque[Parcel] = deque()
        self._is_closing = False
        self._is_given_up = False
        # The thread's own.
        self._producer: Producer | None = None
        self._under_way: list[Parcel] = []

    async def send(self, messages: Sequence[Outgoing]) -> None:
        """Returns when all are acknowledged. Cancelling gives up the wait, and not what is sent."""
        if not messages:
            return
        if self._is_closing:
            raise SourceAway(f"{self._location}: it was closed")
        parcel = Parcel(messages, self._location)
        parcel.future = asyncio.get_running_loop().create_future()
        self._new.append(parcel)
        self._bell.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"{self._location}: sending", daemon=True)
            self._thread.start()
        await parcel.future

    async def close(self, within_s: float) -> None:
        """Send what waits, for so long at most."""
        self._is_closing = True
        self._bell.set()
        end_s = self._clock.monotonic() + within_s
        while self._thread is not None and self._thread.is_alive() and self._clock.monotonic() < end_s:
            await self._clock.asleep(_POLL_S)
        if self._thread is not None and self._thread.is_alive():
            log.warning("%s: what was being sent is given up after %g s", self._location, within_s)
        self._is_given_up = True

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        while not self._is_given_up and (self._new or self._under_way or not self._is_closing):
            self._bell.clear()
            while self._new:
                self._begin(self._new.popleft())
            if self._producer is not None:
                self._look(_POLL_S if self._under_way else 0)
            else:
                self._end()
            if not self._under_way and not self._new and not self._is_closing:
                self._clock.wait(self._bell, _IDLE_S)
        self._give_up(SourceAway(f"{self._location}: it was closed before the broker had answered"))
        self._producer = None

    def _begin(self, parcel: Parcel) -> None:
        parcel.until_s = self._clock.monotonic() + self._send_s + _GRACE_S
        try:
            producer = self._made()
        except ConfigError as error:
            parcel.error = SourceError(str(error))
        else:
            parcel.produce(producer, lambda: self._clock.monotonic() >= parcel.until_s or self._is_given_up)
        self._under_way.append(parcel)

    def _look(self, wait_s: float) -> None:
        """Hear what the client has to say, and end what is over."""
        assert self._producer is not None  # noqa: S101 - whoever calls has looked
        try:
            self._producer.poll(wait_s)
        except (KafkaException, SystemError) as error:  # what is fatal comes out of it, too
            self._give_up(SourceAway(f"{self._location}: cannot send: {error}"))
            return
        self._end()

    def _end(self) -> None:
        now_s = self._clock.monotonic()
        still: list[Parcel] = []
        is_broken = False
        for parcel in self._under_way:
            is_broken = is_broken or parcel.is_fatal
            if parcel.error is None and parcel.left and now_s >= parcel.until_s:
                parcel.error = SourceAway(f"{self._location}: {parcel.left} messages are not acknowledged yet")
                is_broken = True
            if parcel.error is None and parcel.left:
                still.append(parcel)
            else:
                _answer(parcel)
        self._under_way = still
        if is_broken:
            self._give_up(SourceAway(f"{self._location}: cannot send: the client has to be made anew"))

    def _give_up(self, error: SourceError) -> None:
        """This producer can do nothing more."""
        self._producer = None
        for parcel in self._under_way:
            parcel.error = parcel.error or error
            _answer(parcel)
        self._under_way = []

    def _made(self) -> Producer:
        if self._producer is None:
            limit_ms = round(self._send_s * 1000)
            config = self._settings.producer(**{"message.timeout.ms": limit_ms, "delivery.report.only.error": False})
            try:
                self._producer = Producer(config)
            except (KafkaException, TypeError, ValueError) as error:
                raise self._settings.refusal(error) from None
        return self._producer


def _answer(parcel: Parcel) -> None:
    future = parcel.future
    if future is not None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            future.get_loop().call_soon_threadsafe(_settle, future, parcel.error)


def _settle(future: asyncio.Future[None], error: SourceError | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(None)
