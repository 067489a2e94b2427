"""What a producer has taken and not written yet: so many at most, and whoever comes then stands in line."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, Protocol

from holdfast.errors import NotSent, SourceError
from holdfast.ports import Clock
from holdfast.streams.sent import Sent, Waker, wake
from holdfast.types import Outgoing

_LOG: Final = logging.getLogger("holdfast.streams")


class Carrier(Protocol):
    """What takes messages to one kind of server, and tells the buffer with `settle` what became of them."""

    def put(self, sent: Sent, message: Outgoing) -> bool:
        """Take a message, and do not wait; False when there is no room for it now. The buffer's lock is held.

        SourceError when it can never be written.
        """

    def hurry(self) -> None:
        """Somebody waits."""

    def pace(self) -> None:
        """Something was sent; called on the sender's own thread, without the lock."""

    def close(self) -> None:
        """Take no more, and end within about a second, whatever is still on its way."""


class Turn:
    """Somebody who stands in line, with a message."""

    __slots__ = ("sent", "message", "waker", "error")

    def __init__(self, sent: Sent, message: Outgoing, waker: Waker) -> None:
        self.sent = sent
        self.message = message
        self.waker = waker
        self.error: SourceError | None = None
        """Why it was sent away, though its turn had come."""


class Flush:
    """Somebody who waits for all that was sent before."""

    __slots__ = ("left", "waker")

    def __init__(self, left: set[Sent], waker: Waker) -> None:
        self.left = left
        self.waker = waker


class Buffer:
    """The unsent messages of a producer. Used from any thread.

    Who finds no room stands in line, and is let in by whoever makes room, in the order in which all came.
    """

    def __init__(self, size: int, clock: Clock, location: str) -> None:
        self.clock = clock
        self.location = location
        self.carrier: Carrier
        self._size = size
        self._lock = threading.Lock()
        self._open: set[Sent] = set()
        self._line: OrderedDict[Turn, None] = OrderedDict()
        """Who waits for room; one who leaves, from wherever he stands, costs the same."""
        self._flushes: list[Flush] = []
        self._lost = 0
        self._why = ""
        self._refusal = ""
        self._is_forked = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_after_fork, weakref.WeakMethod(self._forget)))

    def __len__(self) -> int:
        return len(self._open)

    # ---------------------------------------------------------------- in

    def put(self, sent: Sent, message: Outgoing) -> bool:
        """Take a message; False when there is no room, or others are waiting for it."""
        with self._lock:
            if self._refusal:
                raise SourceError(self._refusal)
            return not self._line and self._take(sent, message)

    def stand_in_line(self, turn: Turn) -> bool:
        """Take its message, or put it at the end of the line, whose waker is told when its turn has been."""
        with self._lock:
            if self._refusal:
                raise SourceError(self._refusal)
            if not self._line and self._take(turn.sent, turn.message):
                return False
            self._line[turn] = None
        self.carrier.hurry()
        return True

    def leave_line(self, turn: Turn) -> bool:
        """Wait no longer; False when its turn has been."""
        with self._lock:
            if turn not in self._line:
                return False
            del self._line[turn]
            wakers = self._tell_flushes([turn.sent])
        wake(wakers)
        return True

    def _take(self, sent: Sent, message: Outgoing) -> bool:
        if len(self._open) < self._size and self.carrier.put(sent, message):
            self._open.add(sent)  # before anybody can settle it, since that needs the lock
            return True
        return False

    # ---------------------------------------------------------------- out

    def settle(self, done: Collection[Sent]) -> None:
        """These are written, or have an error; whoever waits for them is told, and the line moves up."""
        lost = [sent.error for sent in done if sent.error is not None]
        with self._lock:
            self._open.difference_update(done)
            wakers = [waker for sent in done if sent._wakers for waker in sent._wakers]
            if lost:
                self._lost += len(lost)
                self._why = str(lost[-1])
            wakers += self._tell_flushes(done)
            wakers += self._move_line()
        if lost:
            _LOG.error("%s given up; the last one: %s", _count(len(lost)), lost[-1])
        wake(wakers)

    def advance(self) -> None:
        """Let the line move up, since there may be room where there was none."""
        with self._lock:
            wakers = self._move_line()
        wake(wakers)

    def _move_line(self) -> list[Waker]:
        wakers: list[Waker] = []
        while self._line:
            turn = next(iter(self._line))
            try:
                if not self._take(turn.sent, turn.message):
                    break
            except SourceError as error:
                turn.error = error
                wakers += self._tell_flushes([turn.sent])
            del self._line[turn]
            wakers.append(turn.waker)
        return wakers

    def _tell_flushes(self, done: Iterable[Sent]) -> list[Waker]:
        if not self._flushes:
            return []
        for flush in self._flushes:
            flush.left.difference_update(done)
        over = [flush for flush in self._flushes if not flush.left]
        self._flushes = [flush for flush in self._flushes if flush.left]
        return [flush.waker for flush in over]

    # ---------------------------------------------------------------- who waits

    def listen(self, sent: Sent, waker: Waker) -> bool:
        """Tell this waker when it is done; False when it is done already."""
        with self._lock:
            if sent.done():
                return False
            if self._is_forked:
                raise SourceError(self._refusal)  # nobody would ever tell it
            sent._wakers = (*sent._wakers, waker)
        self.carrier.hurry()
        return True

    def forget(self, sent: Sent, waker: Waker) -> None:
        """Nobody listens there any more."""
        with self._lock:
            sent._wakers = tuple(known for known in sent._wakers if known is not waker)

    # ---------------------------------------------------------------- the end

    def drain(self, timeout: float | None) -> int:
        """Block until all that was sent before is written or given up; says how much is neither when the time is up."""
        event = threading.Event()
        flush = self._flush(event)
        if flush is None:
            return 0
        try:
            self.clock.wait(event, timeout)
        finally:
            left = self._end_flush(flush)
        return left

    async def adrain(self, timeout: float | None) -> int:
        """The same without blocking the event loop."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flush = self._flush(future)
        if flush is None:
            return 0
        try:
            async with self.clock.timeout(timeout):
                await future
        except TimeoutError:
            pass
        finally:
            left = self._end_flush(flush)
        return left

    def _flush(self, waker: Waker) -> Flush | None:
        with self._lock:
            left = {*self._open, *(turn.sent for turn in self._line)}
            if not left:
                return None
            flush = Flush(left, waker)
            self._flushes.append(flush)
        self.carrier.hurry()
        return flush

    def _end_flush(self, flush: Flush) -> int:
        with self._lock:
            self._flushes = [one for one in self._flushes if one is not flush]
            return len(flush.left)

    def tell_unsent(self, left: int, timeout: float | None) -> None:
        """NotSent for what a flush has not seen written."""
        if left:
            raise NotSent(f"{self.location}: {_count(left)} not written within {timeout:g} s, and still on the way")

    def tell_losses(self) -> None:
        """NotSent for what was given up since this was last asked."""
        with self._lock:
            lost, why, self._lost = self._lost, self._why, 0
        if lost:
            raise NotSent(f"{_count(lost)} given up since the last flush; the last one: {why}")

    def refuse(self, why: str) -> bool:
        """Take nothing more from now on; False when that was so already."""
        with self._lock:
            was_open = not self._refusal
            self._refusal = self._refusal or f"{self.location}: {why}"
        return was_open

    def give_up(self, why: str) -> None:
        """Give up on all that was taken; those in line may still come in."""
        with self._lock:
            left = list(self._open)
        self._fail(left, NotSent(f"{self.location}: {why}"))

    def drop(self, why: str) -> None:
        """Give up on all, those in line included."""
        error = NotSent(f"{self.location}: {why}")
        with self._lock:
            turns = list(self._line)
            self._line.clear()
            left = [*self._open, *(turn.sent for turn in turns)]
            for turn in turns:
                turn.error = error
        self._fail(left, error)
        wake([turn.waker for turn in turns])

    def fail(self) -> None:
        """Called where an error was caught that nobody had thought of: log it, give up on all and take no more."""
        _LOG.exception("%s: the producer has failed", self.location)
        self.refuse("the producer has failed; the log says why")
        self.drop("the producer has failed; the log says why")

    def _fail(self, left: list[Sent], error: NotSent) -> None:
        for sent in left:
            if not sent.done():
                sent.error = error
        if left:
            self.settle(left)

    def _forget(self) -> None:
        """In a forked process the threads that would send are missing, and what is unsent is the parent's to send."""
        self._is_forked = True
        self._lock = threading.Lock()  # somebody may have held it
        self._refusal = (
            f"{self.location}: the producer was made before this process was forked: make one in each process"
        )
        self._open.clear()
        self._line.clear()
        self._flushes.clear()


def _after_fork(forget: weakref.WeakMethod[Callable[[], None]]) -> None:
    if (call := forget()) is not None:
        call()


def _count(count: int) -> str:
    return "1 message was" if count == 1 else f"{count:,} messages were"
