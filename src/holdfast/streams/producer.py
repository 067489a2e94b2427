"""Sending messages: from any thread or event loop, in order, each once, with a bound on what is unsent."""

from __future__ import annotations

import asyncio
import atexit
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from holdfast.clock import SystemClock
from holdfast.errors import BufferFull, ConfigError, Invalid, NotSent
from holdfast.outgoing import Headers, Key, outgoing
from holdfast.policy import bounds
from holdfast.ports import Clock
from holdfast.streams.buffer import Buffer, Turn
from holdfast.streams.carriers import carrier_for
from holdfast.streams.sent import Sent
from holdfast.streams.url import parse
from holdfast.types import Outgoing

if TYPE_CHECKING:
    from holdfast.streams.memory import MemoryBroker

_MISSING: Final = object()
_AT_EXIT_S: Final = 10.0
"""How long the end of a process may be held up by what nobody has flushed."""
_RETRY_AFTER_S: Final = 0.1
_MOST_TOPICS: Final = 10_000
_LARGEST: Final = 1_000_000


class Producer:
    """Sends messages to Kafka or Redis Streams, from any number of threads and event loops.

    What one of them sends for one message key, or to one partition, is written in that order and once, also when the
    server restarts or its replies are lost. What could not be written for `timeout` seconds is given up: its Sent fails
    with NotSent, and so does the next `flush`. A process that was forked makes producers of its own.

    url: `kafka://host:9092`, `redis://host:6379` or `memory://`; a topic after it (`kafka://host:9092/orders`) is where
        those go that name none.
    buffer: so many messages at most are unsent at a time.
    when_full: "wait" for room, or "error", which is BufferFull at once.
    full_wait: how long to wait for room, in seconds, before BufferFull; None is for ever.
    batch: so many messages are sent at a time, at most.
    timeout: how long a message is tried, in seconds.
    broker: the topics of a memory:// URL [some of its own], shared with the sources that read them.
    """

    def __init__(
        self,
        url: str,
        *,
        buffer: int = 10_000,
        when_full: Literal["wait", "error"] = "wait",
        full_wait: float | None = None,
        batch: int = 100,
        timeout: float = 120.0,
        clock: Clock | None = None,
        broker: MemoryBroker | None = None,
    ) -> None:
        self._place = parse(url)
        size = _at_most_a_million("buffer", buffer)
        if when_full not in {"wait", "error"}:
            raise ConfigError(f'when_full={when_full!r}: must be "wait" or "error"')
        self._waits = when_full == "wait"
        if full_wait is not None:
            bounds.length("full_wait", full_wait)
            if not self._waits:
                raise ConfigError(f'full_wait={full_wait!r}: must be None, since when_full="error" does not wait')
        self._full_wait = full_wait
        if broker is not None and self._place.scheme != "memory":
            raise self._place.refusal("a broker= is for memory:// alone")
        self._clock = clock or SystemClock()
        self._buffer = Buffer(size, self._clock, self._place.location)
        self._carrier = self._buffer.carrier = carrier_for(
            url,
            self._place,
            self._buffer,
            size=size,
            batch=_at_most_a_million("batch", batch),
            timeout_s=bounds.length("timeout", timeout, above=0.0),
            clock=self._clock,
            broker=broker,
        )
        self._topic = self._place.topic or None
        self._topics: set[str] = {self._place.topic} - {""}
        atexit.register(self._end)

    def __repr__(self) -> str:
        return f"<Producer {self._place.location}: {len(self._buffer)} unsent>"

    @property
    def unsent(self) -> int:
        """How many messages are taken and neither written nor given up."""
        return len(self._buffer)

    # ---------------------------------------------------------------- sending

    def send(
        self,
        topic: str | None = None,
        value: Any = _MISSING,
        key: Key = None,
        headers: Headers = None,
        partition: int | None = None,
    ) -> Sent:
        """Take a message, and send it soon; blocks while the buffer is full.

        topic: where to; without one, the URL's.
        value: bytes as they are, text as UTF-8, None as no value (a tombstone), anything else as JSON.
        key: bytes, text or a whole number; messages with the same one keep their order.
        partition: a certain one (of Redis streams: a shard); None is by the key.

        BufferFull when there is no room, and there was none for `full_wait`; Invalid when it cannot be written down.
        """
        message = self._message(topic, value, key, headers, partition)
        sent = Sent(self._buffer, message.topic)
        if not self._buffer.put(sent, message):
            self._wait_for_room(sent, message)
        self._carrier.pace()
        return sent

    async def asend(
        self,
        topic: str | None = None,
        value: Any = _MISSING,
        key: Key = None,
        headers: Headers = None,
        partition: int | None = None,
    ) -> Sent:
        """The same without blocking the event loop; `await` what it returns to wait until it is written."""
        message = self._message(topic, value, key, headers, partition)
        sent = Sent(self._buffer, message.topic)
        if not self._buffer.put(sent, message):
            await self._await_room(sent, message)
        self._carrier.pace()
        return sent

    def _message(self, topic: str | None, value: Any, key: Key, headers: Headers, partition: int | None) -> Outgoing:
        if value is _MISSING:
            raise TypeError("nothing to send: write send(topic, value), or send(value=…) where the URL names the topic")
        if topic is None:
            topic = self._topic
            if topic is None:
                raise Invalid(f"topic=None: {self._place.location} names none either; write send(topic, value)")
        elif topic not in self._topics:
            self._place.check_topic(topic)
            if len(self._topics) < _MOST_TOPICS:
                self._topics.add(topic)
        return outgoing(topic, value, key, headers, partition)

    def _wait_for_room(self, sent: Sent, message: Outgoing) -> None:
        self._refuse_to_wait()
        event = threading.Event()
        turn = Turn(sent, message, event)
        if not self._buffer.stand_in_line(turn):
            return
        try:
            is_over = self._clock.wait(event, self._full_wait)
        except BaseException:  # Ctrl-C, or a signal of the caller's own
            self._buffer.leave_line(turn)
            raise
        self._end_turn(turn, is_over=is_over)

    async def _await_room(self, sent: Sent, message: Outgoing) -> None:
        self._refuse_to_wait()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turn = Turn(sent, message, future)
        if not self._buffer.stand_in_line(turn):
            return
        try:
            async with self._clock.timeout(self._full_wait):
                await future
        except TimeoutError:
            self._end_turn(turn, is_over=False)
        except BaseException:
            self._buffer.leave_line(turn)
            raise
        else:
            self._end_turn(turn, is_over=True)

    def _refuse_to_wait(self) -> None:
        if not self._waits:
            raise self._full("")

    def _end_turn(self, turn: Turn, *, is_over: bool) -> None:
        if not is_over and self._buffer.leave_line(turn):
            raise self._full(f", and there was no room for {self._full_wait:g} s")
        if turn.error is not None:
            raise turn.error

    def _full(self, rest: str) -> BufferFull:
        return BufferFull(
            f"{self._place.location}: {self.unsent:,} messages are unsent, as many as may be{rest}", _RETRY_AFTER_S
        )

    # ---------------------------------------------------------------- the end

    def flush(self, timeout: float | None = None) -> None:
        """Block until all that was sent before is written.

        NotSent, with how many, when that takes longer than `timeout` seconds, and these are still being tried; or when
        messages were given up since the last flush.
        """
        wait_s = _optional_length("timeout", timeout)
        self._buffer.tell_unsent(self._buffer.drain(wait_s), wait_s)
        self._buffer.tell_losses()

    async def aflush(self, timeout: float | None = None) -> None:
        """The same without blocking the event loop."""
        wait_s = _optional_length("timeout", timeout)
        self._buffer.tell_unsent(await self._buffer.adrain(wait_s), wait_s)
        self._buffer.tell_losses()

    def close(self, timeout: float | None = None) -> None:
        """Flush, and end; what is not written within `timeout` seconds is given up, and NotSent says how much."""
        wait_s = _optional_length("timeout", timeout)
        if not self._buffer.refuse("the producer is closed"):
            return
        try:
            self._buffer.drain(wait_s)
        finally:
            self._stop()
        self._buffer.tell_losses()

    async def aclose(self, timeout: float | None = None) -> None:
        """The same without blocking the event loop."""
        wait_s = _optional_length("timeout", timeout)
        if not self._buffer.refuse("the producer is closed"):
            return
        try:
            await self._buffer.adrain(wait_s)
        finally:
            await asyncio.get_running_loop().run_in_executor(None, self._stop)
        self._buffer.tell_losses()

    def _stop(self) -> None:
        atexit.unregister(self._end)
        self._carrier.close()
        self._buffer.drop("not written when the producer was closed")

    def _end(self) -> None:
        """The last net: a process that ends without closing its producers."""
        try:
            self.close(_AT_EXIT_S)
        except NotSent:
            return  # the log says it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except NotSent:
            if error is None:  # otherwise that is what its caller must see; what was lost is in the log
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except NotSent:
            if error is None:
                raise


def _at_most_a_million(field: str, value: object) -> int:
    number = bounds.whole(field, value, low=1)
    if number > _LARGEST:
        raise ConfigError(f"{field}={value!r}: must be at most {_LARGEST:,}")
    return number


def _optional_length(field: str, value: float | None) -> float | None:
    return None if value is None else bounds.length(field, value)
