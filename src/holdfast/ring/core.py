"""The middle of a ring: who may go how far. One lock, held for the time of a few lines; nothing is waited for under it.

Everything shared is read and changed under that lock, so that it is right on a Python without a GIL as well.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from holdfast.errors import ConfigError, RingClosed
from holdfast.ring.given_up import Unhandled
from holdfast.ring.lane import Errand, Lane
from holdfast.ring.slots import GATHERED, SMALL, Slots

SLEEP: Final = object()
"""What a turn brings when nothing is there: wait for the bell."""
END: Final = object()
"""And when nothing will come any more."""

_FREE: Final = 16_384
"""Producers that wait go on when so many elements are free, or half of the ring."""


class Waiter:
    """A producer that waits for room. Whoever makes room adds its elements, so that nobody can come in between."""

    __slots__ = ("elements", "offset", "wake", "begin", "is_taken", "error")

    def __init__(self, elements: Sequence[Any], offset: int | None, wake: Callable[[], object]) -> None:
        self.elements = elements
        self.offset = offset
        self.wake = wake
        self.begin = -1
        """The count of the first of them, from when they are added."""
        self.is_taken = False
        self.error: RingClosed | None = None


class Core:
    """What producers and consumers of one ring share."""

    def __init__(self, size: int) -> None:
        self.lock = threading.Lock()
        self.slots = Slots(size)
        self.size = size
        self.lanes: list[Lane] = []
        self.waiters: deque[Waiter] = deque()
        self.why_closed: str = ""
        """Why no more elements are taken; empty while they are."""
        self.live = 0
        """Consumers whose loop has not ended."""
        self._on_end: list[Callable[[], object]] = []
        """Told when the last one has ended."""
        self._leaves: list[Lane] = []
        """Those that nobody comes after: what they have finished is finished."""
        self._sleeping: list[Lane] = []
        """Those that wait for something to be produced."""
        self._gate = 0
        """Elements that every consumer has finished."""
        self._gathered = self.slots.head[2]
        """The list that small calls add to; and how long it may be without a further question."""
        self._room = 0
        self._low = size - min(size // 2, _FREE)
        """Producers that wait go on when so few are left: one at a time would be a wake-up for each."""

    # ---- before anything is produced

    def join(self, lane: Lane) -> None:
        """One more consumer."""
        with self.lock:
            self.lanes.append(lane)
            self.live += 1
            for one in lane.after:
                one.followers.append(lane)
            self._leaves = [one for one in self.lanes if not one.followers]
            if self.why_closed:
                lane.bell.ring()  # it may have gone to sleep before it was among those that are told

    # ---- producers

    def offer(self, elements: list[Any]) -> bool:
        """Take these elements, which have no offset, if that is simple; False says nothing about whether there is room.

        The way of nearly every call of `produce`, so it does nothing that can be done elsewhere.
        """
        n = len(elements)
        with self.lock:
            gathered, room = self._gathered, self._room
            if n < SMALL and len(gathered) + n <= room:
                if self._sleeping:
                    self._wake_sleeping()  # before the elements are there: an interrupt in between must not forget it
                gathered.extend(elements)
                return True
            left = self._gate + self.size - self.slots.head[1] - len(gathered) - n
            if left < 0 or room < 0 or not n:
                return False
            if gathered or n < SMALL:
                self._add(elements, None)
                self._look_ahead()
                return True
            if self._sleeping:
                self._wake_sleeping()
            self._room = left if left < GATHERED else GATHERED
            self.slots.push(elements, n)
            return True

    def take_in(self, elements: Sequence[Any], offset: int | None) -> bool:
        """Take these elements, if there is room for all of them now; RingClosed when none are taken any more."""
        with self.lock:
            if self.why_closed:
                raise RingClosed(self.why_closed)
            if offset is not None:
                self._refuse_lower(offset)
            if self.waiters or not self._has_room(len(elements)):
                return False
            self._add(elements, offset)
            self._look_ahead()
            return True

    def _add(self, elements: Sequence[Any], offset: int | None) -> None:
        if self._sleeping:
            self._wake_sleeping()
        self._room = -1
        self.slots.add(elements, offset)

    def _look_ahead(self) -> None:
        """How many elements can be gathered without a further question; the last thing whenever something changed."""
        _, end, self._gathered = self.slots.head
        if self.why_closed or self.waiters:
            self._room = -1
        else:
            left = self._gate + self.size - end
            self._room = GATHERED if left > GATHERED else left if left > 0 else 0

    def wait(self, waiter: Waiter) -> bool:
        """Take its elements, or put it in the line of those that wait for room; False where it has to wait."""
        with self.lock:
            if self.why_closed:
                raise RingClosed(self.why_closed)
            if waiter.offset is not None:
                self._refuse_lower(waiter.offset)
            self._room = -1
            self.waiters.append(waiter)
            self._admit()
            self._look_ahead()
            return waiter.is_taken

    def forget(self, waiter: Waiter, *, is_wanted: bool = True) -> None:
        """A waiter does not want to wait any longer. It is taken after all, if there is room by now and it is wanted.

        is_wanted: False where whoever waits will not hear that it was taken, so that it had better not be.
        """
        with self.lock:
            if waiter in self.waiters:
                if is_wanted or waiter.begin not in {-1, self.slots.produced}:  # otherwise they are added already
                    self._admit()
                if not waiter.is_taken:
                    self.waiters.remove(waiter)
                    self._admit()  # one behind it may be smaller
                self._look_ahead()

    def _refuse_lower(self, offset: int) -> None:
        """ConfigError where offsets go back: what a consumer has done is told from the rest by them."""
        waiting = self.waiters[-1] if self.waiters else None
        if waiting is not None and waiting.offset is not None:
            least: int | None = waiting.offset + len(waiting.elements)
        else:
            least = self.slots.next_offset
        if least is not None and offset < least:
            raise ConfigError(f"offset={offset!r}: must be at least {least}: the offsets of a ring's elements rise")

    def _has_room(self, n: int) -> bool:
        used = self.slots.produced - self._gate
        return used + n <= self.size or not used  # a longer list than the ring fits when it is empty

    def _admit(self) -> None:
        """Take in those who wait, as far as there is room; turn them away once it is closed.

        Each is the first in line until it was woken: an interrupt on any line leaves it to whoever comes here next.
        """
        waiters, slots = self.waiters, self.slots
        while waiters:
            waiter = waiters[0]
            if waiter.begin in {-1, slots.produced}:  # otherwise an interrupt came after they were added
                if self.why_closed:
                    waiter.error = RingClosed(self.why_closed)
                elif self._has_room(len(waiter.elements)):
                    waiter.begin = slots.produced
                    self._add(waiter.elements, waiter.offset)
                else:
                    return
            waiter.is_taken = waiter.error is None
            waiter.wake()
            waiters.popleft()

    def _wake_sleeping(self) -> None:
        sleeping = self._sleeping
        while sleeping:
            sleeping[-1].bell.ring()
            sleeping[-1].is_asleep = False
            sleeping.pop()

    # ---- consumers

    def turn(self, lane: Lane) -> Any:
        """What a consumer had in hand is finished: the next elements for it; an Errand; SLEEP or END."""
        slots = self.slots
        garbage = None  # what is let go is let go after the lock is: it may be thousands of objects
        with self.lock:
            done = lane.done
            if lane.end != done:
                lane.done = lane.end
                lane.piece = lane.next_piece
                if lane.followers:
                    self._wake_followers(lane)
                elif done == self._gate:  # otherwise another one is the slowest
                    garbage = self._open_gate()  # noqa: F841
                done = lane.end
            if lane.errands:  # by turns with the ring's elements: a replay of thousands must not hold these up
                lane.is_errand_turn = not lane.is_errand_turn
                if lane.is_errand_turn:
                    return lane.errands.popleft()
            limit = done + lane.batch_size
            if lane.after:
                for one in lane.after:
                    limit = min(limit, one.done)
            else:
                _, end, gathered = slots.head
                limit = min(limit, end + len(gathered))
            if slots.gaps:
                lane.is_hasty = False  # each batch has its own offset, and may end inside of a piece
                limit, _garbage = self._within_offsets(lane)
                done = lane.done
            if limit > done:
                self._room = -1  # an interrupt must not leave a list to be gathered in that is a piece by then
                elements, lane.next_piece = slots.take(lane.piece, done, limit)
                lane.end = done + len(elements)
                if lane.is_hasty and len(elements) > lane.batch_size >> 1:
                    reach = min([one.done for one in lane.after]) if lane.after else slots.produced
                    lane.ahead = slots.pieces_from(lane.next_piece, lane.batch_size, reach)
                self._look_ahead()
                return elements
            self._look_ahead()
            return lane.errands.popleft() if lane.errands else self._nothing(lane)

    def pass_on(self, lane: Lane) -> None:
        """What a consumer has finished is there for those that come after it, before it begins the next batch.

        It may wait for what these do with it.
        """
        with self.lock:
            lane.done = lane.end
            lane.piece = lane.next_piece
            self._wake_followers(lane)

    def _nothing(self, lane: Lane) -> Any:
        if self.why_closed:
            last = min([self.slots.produced, *(one.done for one in lane.after if one.has_ended)])
            if lane.done == last:
                return END
        if not lane.is_asleep:
            lane.is_asleep = True
            if not lane.after:
                self._sleeping.append(lane)
        return SLEEP

    def _within_offsets(self, lane: Lane) -> tuple[int, object]:
        """Skip what was done before the ring began. How far the next batch can go: not over a gap in the offsets.

        And what was let go of.
        """
        garbage: list[object] = []
        # Each time anew: room that is made by skipping may let a producer in that waits.
        while lane.done < (reach := min([one.done for one in lane.after], default=self.slots.produced)):
            shift, gap = self.slots.shift_at(lane.done)
            end = reach if gap is None else min(reach, gap)
            if lane.skip_to is None or lane.done + shift >= lane.skip_to:
                lane.skip_to = None
                lane.offset = lane.done + shift
                # Where skipping ended with a piece that was still gathered, the next element is in a later one.
                lane.piece = self.slots.piece_at(lane.piece, lane.done)
                return min(end, lane.done + lane.batch_size), garbage
            lane.done = lane.end = min(end, lane.skip_to - shift)
            lane.piece = lane.next_piece = self.slots.piece_at(lane.piece, lane.done)
            self._wake_followers(lane)
            garbage.append(self._open_gate())
        return lane.done, garbage

    def _wake_followers(self, lane: Lane) -> None:
        for one in lane.followers:
            if one.is_asleep:
                one.is_asleep = False
                one.bell.ring()

    def _open_gate(self) -> object:
        """Let go of what every consumer has finished, and let producers that wait go on. What was let go of."""
        leaves = self._leaves
        slowest = leaves[0]
        for one in leaves:
            if one.done < slowest.done:
                slowest = one
        gate = slowest.done
        if gate == self._gate:
            return None
        self._gate = gate
        garbage = self.slots.free(slowest.piece, gate)
        if self.waiters and self.slots.produced - gate <= self._low:
            self._admit()
        return garbage

    def hand(self, lane: Lane, elements: Sequence[Any]) -> Future[None]:
        """Let a consumer handle these by themselves, after the batch that it is at."""
        future: Future[None] = Future()
        with self.lock:
            if self.why_closed:
                raise Unhandled(self.why_closed)
            lane.errands.append(Errand(list(elements), future))
            lane.bell.ring()
        return future

    # ---- the end

    def close(self, why: str) -> None:
        """Take no more elements; those who wait for room are told so, and consumers go on to the last element."""
        with self.lock:
            self.why_closed = self.why_closed or why
            self._room = -1
            self._admit()
            for lane in self.lanes:
                lane.is_asleep = False
                lane.bell.ring()
                while lane.errands:
                    lane.errands.popleft().future.set_exception(Unhandled(self.why_closed))
            self._sleeping.clear()

    def ended(self, lane: Lane) -> None:
        """A consumer's loop has ended; those that come after it may have the last of it to do."""
        with self.lock:
            self.live -= 1
            lane.has_ended = True
            for one in lane.followers:
                one.is_asleep = False
                one.bell.ring()
            if not self.live:
                for tell in self._on_end:
                    tell()

    def tell_end(self, tell: Callable[[], object]) -> None:
        """Call this when the last consumer has ended; now, if it has."""
        with self.lock:
            if self.live:
                self._on_end.append(tell)
            else:
                tell()

    def renew_lock(self) -> None:
        """In the child of a fork: whoever held the lock is not here."""
        self.lock = threading.Lock()

    def disown(self, why: str) -> None:
        """In the child of a fork: whoever held the lock is not here, and neither are the consumers."""
        self.renew_lock()
        self.why_closed = why
        self._room = -1
        self.waiters.clear()
        self.live = 0
        for lane in self.lanes:
            lane.has_ended = True

    # ---- looking

    def look(self) -> tuple[int, int, int]:
        """Elements that were taken; those that some consumer has not finished; producers that wait."""
        with self.lock:
            produced = self.slots.produced
            return produced, produced - self._gate, len(self.waiters)

    @property
    def slowest(self) -> str:
        """The consumer that has finished the least."""
        return min(self.lanes, key=lambda lane: lane.done).name

    def left(self, lane: Lane) -> int:
        """Elements that a consumer has before it."""
        with self.lock:
            return self.slots.produced - lane.done
