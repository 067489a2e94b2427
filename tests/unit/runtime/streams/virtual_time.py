"""A clock that jumps to what is next.

Nothing waits for real time: when no coroutine can go on, the clock is moved to the next instant that somebody waits
for. So every delay is exact, and a day of retries takes milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

from holdfast.testing import ManualClock

T = TypeVar("T")


class VirtualTime:
    """Drives coroutines: each goes on until it waits for an instant, and then the clock is there."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000.0, auto=False)

    def now(self) -> float:
        """Seconds since the beginning."""
        return self.clock.monotonic()

    async def quiet(self) -> None:
        """Until no coroutine can go on by itself."""
        ready: Collection[object] = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        while True:
            await asyncio.sleep(0)  # noqa: TID251 - gives way, and waits for nothing
            if not ready:
                return

    async def until(self, is_so: Callable[[], bool], within_s: float = 3_600.0) -> None:
        """Until this holds, looking whenever all is quiet."""
        end_s = self.now() + within_s
        while True:
            await self.quiet()
            if is_so():
                return
            assert self._move(end_s), f"it does not come about within {within_s:g} s"

    async def wait(self, seconds: float) -> None:
        """So long."""
        end_s = self.now() + seconds
        while True:
            await self.quiet()
            if not self._move(end_s):
                break
        if self.now() < end_s:
            self.clock.advance(end_s - self.now())
            await self.quiet()

    async def drive(self, work: Coroutine[Any, Any, T], within_s: float = 3_600.0) -> T:
        """What comes of this coroutine."""
        task = asyncio.create_task(work)
        try:
            await self.until(task.done, within_s)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return task.result()

    def _move(self, end_s: float) -> bool:
        timers = self.clock._timers
        if not timers or timers[0][0] > end_s:
            return False
        self.clock.advance(max(0.0, timers[0][0] - self.now()))
        return True
