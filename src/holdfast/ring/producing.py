"""The producers' side of a ring."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from holdfast.errors import ConfigError, RingFull
from holdfast.policy import bounds
from holdfast.ports import Clock
from holdfast.ring.core import Core, Waiter
from holdfast.ring.lane import Alarm, ThreadBell
from holdfast.ring.loops import Loop, TaskLoop

T = TypeVar("T")

_LARGEST_OFFSET: Final = 1 << 62
"""Far enough from what a checkpoint can keep for any list."""


class Producing(ABC, Generic[T]):
    """What takes elements, and lets them wait for room."""

    def __init__(self, name: str, size: int, clock: Clock) -> None:
        self.name = name
        self.size = size
        self._clock = clock
        self._core = Core(size)
        self._loops: list[Loop] = []
        self._has_begun = False
        self._begin_lock = threading.Lock()
        self._offer: Callable[[list[Any]], bool] = _never
        """The short way for elements without offsets, once the ring has begun."""
        self._has_offsets: bool | None = None
        """Whether elements have offsets; None before the first."""
        self._has_checkpoints = False

    @abstractmethod
    def _begin(self) -> None:
        """The first element is about to come."""

    def produce(self, elements: Sequence[T], *, offset: int | None = None, timeout: float | None = None) -> None:
        """Take these elements, all of them; while the ring is full, wait. The list is the ring's from then on.

        offset: the first element's place in its source; the i-th one after it has offset + i. Offsets rise from call
            to call, and may have gaps. With checkpoints every call needs one; without, all or none.
        timeout: wait for at most so many seconds, then RingFull [None: as long as it takes].

        RingClosed when the ring is closed, also while it waits; then none of them was taken.
        """
        # The way of nearly every call: nothing to check, and room.
        if offset is None and type(elements) is list and self._offer(elements):
            return
        if not (elements := _checked(elements)):
            return
        self._check_offset(offset)
        if not self._core.take_in(elements, offset):
            self._wait(elements, offset, timeout)

    def try_produce(self, elements: Sequence[T], *, offset: int | None = None) -> bool:
        """Take these elements if there is room for all of them now; say whether they were taken."""
        elements = _checked(elements)
        if not elements:
            return True
        self._check_offset(offset)
        return self._core.take_in(elements, offset)

    async def aproduce(self, elements: Sequence[T], *, offset: int | None = None, timeout: float | None = None) -> None:
        """The same as `produce` for async code."""
        elements = _checked(elements)
        if not elements:
            return
        self._check_offset(offset)
        if not self._core.take_in(elements, offset):
            await self._await(elements, offset, timeout)

    def _wait(self, elements: Sequence[T], offset: int | None, timeout: float | None) -> None:
        if self._is_on_a_loop():
            raise RingFull(f"ring {self.name!r} is full, and its consumers run on this loop: await aproduce() instead")
        limit_s = self._patience(timeout)
        if limit_s is None:
            bell = ThreadBell()
            waiter = Waiter(elements, offset, bell.ring)
        else:
            event = Alarm()
            waiter = Waiter(elements, offset, event.set)
        has_waited = False
        try:
            if self._core.wait(waiter):
                return
            if limit_s is None:
                bell.wait()
            else:
                self._clock.wait(event, limit_s)
            has_waited = True
        finally:
            if not waiter.is_taken:
                self._core.forget(waiter, is_wanted=has_waited)
        self._answer(waiter, timeout)

    async def _await(self, elements: Sequence[T], offset: int | None, timeout: float | None) -> None:
        limit_s = self._patience(timeout)
        event, loop = asyncio.Event(), asyncio.get_running_loop()
        waiter = Waiter(elements, offset, lambda: set_from_afar(event, loop))
        has_waited = False
        try:
            if not self._core.wait(waiter):
                with suppress(TimeoutError):
                    async with self._clock.timeout(limit_s):
                        await event.wait()
            has_waited = True
        finally:
            self._core.forget(waiter, is_wanted=has_waited)
        self._answer(waiter, timeout)

    def _patience(self, timeout: float | None) -> float | None:
        if self._is_own():
            raise RingFull(f"ring {self.name!r} is full, and its own consumer would wait for itself")
        return None if timeout is None else bounds.length("timeout", timeout)

    def _answer(self, waiter: Waiter, timeout: float | None) -> None:
        if waiter.error is not None:
            raise waiter.error
        if not waiter.is_taken:
            slowest = self._core.slowest
            raise RingFull(f"ring {self.name!r} has had no room for {timeout:g} s: the slowest is consumer {slowest!r}")

    def _check_offset(self, offset: int | None) -> None:
        if not self._has_begun:
            self._begin()
        has_offset = offset is not None
        if has_offset:
            if bounds.whole("offset", offset, low=0) > _LARGEST_OFFSET:
                raise ConfigError(f"offset={offset!r}: must be at most {_LARGEST_OFFSET}")
        elif self._has_checkpoints:
            raise ConfigError("offset=None: with checkpoints, say where the elements are in their source")
        if self._has_offsets is None:
            with self._begin_lock:
                if self._has_offsets is None:
                    if not has_offset:
                        self._offer = self._core.offer
                    self._has_offsets = has_offset
        if self._has_offsets is not has_offset:
            raise ConfigError(f"offset={offset!r}: give an offset with every call of a ring, or with none")

    def _is_own(self) -> bool:
        """Whether the caller is a consumer of this ring."""
        return any(loop.is_here() for loop in self._loops)

    def _is_on_a_loop(self) -> bool:
        """Whether the caller is on the event loop of consumers, which stand still while it waits."""
        homes = [loop.home for loop in self._loops if isinstance(loop, TaskLoop) and loop.home is not None]
        if not homes:
            return False
        try:
            return asyncio.get_running_loop() in homes
        except RuntimeError:
            return False


def set_from_afar(event: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    """Set the event of another thread's loop."""
    with suppress(RuntimeError):  # the loop is closed, and whoever waited there is gone
        loop.call_soon_threadsafe(event.set)


def _never(elements: list[Any]) -> bool:
    return False


def _checked(elements: Any) -> Sequence[Any]:
    if isinstance(elements, list | tuple):
        return elements
    if isinstance(elements, str | bytes | bytearray | Mapping) or not isinstance(elements, Iterable):
        raise ConfigError(f"elements={elements!r}: must be a list of elements; for one, [element]")
    return tuple(elements)
