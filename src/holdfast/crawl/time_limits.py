"""The time limits of all requests of a fetcher under one timer: timers of their own cost a tenth of a fetch."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from holdfast.ports import Clock
from holdfast.runtime.deadlines import Deadlines


class TimeLimits:
    """Ends requests that take longer than `total_s`, or of which nothing comes for `read_s`; on one event loop."""

    def __init__(self, clock: Clock, *, total_s: float, read_s: float) -> None:
        self.clock = clock
        self.total_s = total_s
        self.read_s = read_s
        self._deadlines: Deadlines[TimeLimit] = Deadlines(clock, self._look, lambda limit: limit.is_over)

    def begin(self) -> TimeLimit:
        """The limits of a request that begins now; used as `with`, by the task that waits for the answer."""
        limit = TimeLimit(self)
        self._deadlines.add(limit, limit.due_s)
        return limit

    def close(self) -> None:
        """End nothing more."""
        self._deadlines.close()

    def _look(self, limit: TimeLimit) -> None:
        if limit.is_over:
            return
        if limit.due_s <= self.clock.monotonic():
            limit.end()
        else:
            self._deadlines.add(limit, limit.due_s)


class TimeLimit:
    """One request's. Leaving the block raises TimeoutError where a limit has ended it."""

    __slots__ = ("_cancelling", "_limits", "_task", "_what", "begun_s", "heard_s", "is_over")

    def __init__(self, limits: TimeLimits) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit needs a task that it can end")
        self._task = task
        self._cancelling = task.cancelling()
        self._limits = limits
        self._what = ""
        self.begun_s = self.heard_s = limits.clock.monotonic()
        self.is_over = False

    @property
    def due_s(self) -> float:
        """When it ends, if nothing is heard until then."""
        return min(self.heard_s + self._limits.read_s, self.begun_s + self._limits.total_s)

    def heard(self) -> float:
        """Something has come; the instant of it."""
        self.heard_s = self._limits.clock.monotonic()
        return self.heard_s

    def end(self) -> None:
        """Take the task out of whatever it waits for."""
        limits = self._limits
        is_whole = self.due_s == self.begun_s + limits.total_s
        self._what = f"no whole answer within {limits.total_s:g} s" if is_whole else f"nothing for {limits.read_s:g} s"
        self._task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_over = True
        # As asyncio.timeout does: whoever else cancels the task in the same moment is not taken for this limit.
        if self._what and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError(self._what) from error
