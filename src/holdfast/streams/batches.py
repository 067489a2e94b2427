"""Sends a producer's messages in numbered batches on one thread, each until it is written or its time is up."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from holdfast.clock import new_id
from holdfast.errors import NotSent, SourceAway, SourceError
from holdfast.policy.backoff import Backoff
from holdfast.ports import Clock
from holdfast.streams.buffer import Buffer, Carrier
from holdfast.streams.sent import Sent
from holdfast.types import Outgoing

_AGAIN: Final = Backoff(initial_delay=0.05, multiplier=2.0, max_delay=1.0, min_delay=0.01, jitter="equal")
_CLOSE_S: Final = 1.0


class Link(Protocol):
    """A connection to a server that knows what it has taken from a producer. Used from one thread."""

    def send_once(self, producer_id: str, first_number: int, messages: Sequence[Outgoing]) -> Sequence[tuple[int, int]]:
        """Write messages, numbered from this on; those with a number that was written before are passed over.

        Says the partition and the offset of each; -1 where it was passed over. SourceAway when the same call may
        work later; SourceError when it cannot, and some may have been written.
        """

    def close(self) -> None:
        """Give the connection back."""


class Item(NamedTuple):
    """A message that waits to be sent."""

    sent: Sent
    message: Outgoing
    until: float
    """When it is given up, by the monotonic clock."""


class Batches:
    """One thread, which takes all that waits, up to a batch, and sends it; meanwhile the next ones gather.

    The batch that could not be sent is sent again before anything else, with the same numbers, so that nothing is
    doubled and nothing overtakes it.
    """

    def __init__(self, link: Link, buffer: Buffer, *, batch: int, timeout_s: float, clock: Clock) -> None:
        self._link = link
        self._buffer = buffer
        self._batch = batch
        self._timeout_s = timeout_s
        self._clock = clock
        self._monotonic = clock.monotonic
        self._id = new_id()
        self._number = 0
        """Of the last message that was taken from the queue."""
        self._queue: deque[Item] = deque()
        self._work = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-producer", daemon=True)
        self._thread.start()

    def put(self, sent: Sent, message: Outgoing) -> bool:
        if self._ended.is_set():
            return False
        self._queue.append(Item(sent, message, self._monotonic() + self._timeout_s))
        if not self._work.is_set():
            self._work.set()
        return True

    def hurry(self) -> None:
        """Nothing can be done: whatever waits is sent as soon as the batch before it is."""

    def pace(self) -> None:
        """Nothing to do on the sender's thread."""

    def close(self) -> None:
        self._ended.set()
        self._work.set()
        self._thread.join(_CLOSE_S)

    # ---------------------------------------------------------------- on the thread

    def _run(self) -> None:
        try:
            while items := self._next():
                first = self._number + 1
                self._number += len(items)
                self._send(first, items)
            self._link.close()
        except Exception:  # a mistake of ours: nobody may wait for a thread that has ended
            self._buffer.fail()

    def _next(self) -> list[Item]:
        """What is sent next; empty when the producer is closed."""
        while not self._ended.is_set():
            if count := min(len(self._queue), self._batch):
                return [self._queue.popleft() for _ in range(count)]
            self._work.clear()
            if not self._queue and not self._ended.is_set():  # or they have come before the event was cleared
                self._work.wait()
        return []

    def _send(self, number: int, items: list[Item]) -> None:
        """Until all of them are written, or given up; `number` is that of the first."""
        why = "others were in the way"
        tries = 0
        while True:
            late = self._count_late(items)
            self._give_up(items[:late], f"not written within {self._timeout_s:g} s; {why}")
            number, items = number + late, items[late:]
            if not items:
                return
            tries += 1
            try:
                places = self._link.send_once(self._id, number, [item.message for item in items])
            except SourceAway as error:
                why = str(error)
                if self._clock.wait(self._ended, _AGAIN.delay(tries)):
                    return
            except SourceError as error:
                self._send_alone(number, items, error)
                return
            else:
                self._settle(items, places)
                return

    def _send_alone(self, number: int, items: list[Item], error: SourceError) -> None:
        """One of them can never be written: the others can."""
        if len(items) == 1:
            self._give_up(items, str(error))
            return
        for i, item in enumerate(items):
            if not self._ended.is_set():
                self._send(number + i, [item])

    def _count_late(self, items: list[Item]) -> int:
        """How many of the first ones are out of time; they are in the order in which they came."""
        now = self._monotonic()
        return next((i for i, item in enumerate(items) if item.until > now), len(items))

    def _settle(self, items: list[Item], places: Sequence[tuple[int, int]]) -> None:
        for item, place in zip(items, places, strict=True):
            item.sent.partition, item.sent.offset = place
        self._buffer.settle([item.sent for item in items if item.sent.error is None])  # or it was closed meanwhile

    def _give_up(self, items: list[Item], why: str) -> None:
        lost = [item.sent for item in items if item.sent.error is None]
        for sent in lost:
            sent.error = NotSent(f"{self._buffer.location}: topic {sent.topic}: {why}")
        if lost:
            self._buffer.settle(lost)


if TYPE_CHECKING:
    _contract: type[Carrier] = Batches
