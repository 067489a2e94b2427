"""The protocols between layers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from holdfast.clock import ManualClock, SystemClock

if TYPE_CHECKING:
    import asyncio


class Clock(Protocol):
    """Time, as every guard and loop is handed it."""

    def now(self) -> float:
        """Wall time, in seconds since 1970. For people and HTTP dates; it may jump."""

    def monotonic(self) -> float:
        """Seconds from some fixed instant; never goes back. For every length and every deadline."""

    def sleep(self, seconds: float, /) -> None:
        """Block the calling thread for so long."""

    async def asleep(self, seconds: float) -> None:
        """Wait without blocking the event loop."""

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """A time limit around awaits; None is none."""

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Block until the event is set, or for at most so many seconds; say whether it is set."""


if TYPE_CHECKING:
    _contracts: tuple[type[Clock], ...] = (SystemClock, ManualClock)
