"""Takes a producer's messages to topics in memory: they are there when `send` returns."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.errors import NotSent, SourceAway
from holdfast.ports import Clock
from holdfast.streams.buffer import Buffer, Carrier
from holdfast.streams.memory import MemoryBroker
from holdfast.streams.sent import Sent
from holdfast.types import Outgoing


class MemoryCarrier:
    """Writes on the sender's own thread; a broker that is away has lost the message at once, as nobody would retry."""

    def __init__(self, location: str, buffer: Buffer, clock: Clock, broker: MemoryBroker) -> None:
        self._location = location
        self._buffer = buffer
        self._clock = clock
        self._broker = broker
        self._done: deque[Sent] = deque()

    def put(self, sent: Sent, message: Outgoing) -> bool:
        try:
            self._broker.check()
            (written,) = self._broker.append([message], self._clock.now())
        except SourceAway as error:
            sent.error = NotSent(f"{self._location}: {error}")
        else:
            sent.partition, sent.offset = written.partition, written.offset
        self._done.append(sent)
        return True

    def hurry(self) -> None:
        pass

    def pace(self) -> None:
        done: list[Sent] = []
        while self._done:
            done.append(self._done.popleft())
        self._buffer.settle(done)

    def close(self) -> None:
        pass


if TYPE_CHECKING:
    _contract: type[Carrier] = MemoryCarrier
