"""An event loop whose time is a number; its tasks belong to machines that are held and killed."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from heapq import heappop
from typing import Any, Final


class Stuck(AssertionError):
    """Everybody waits, and nothing will ever happen."""


class Machine:
    """A process of the simulation: what its tasks do stops where it is held, and ends where it is killed."""

    def __init__(self, number: int) -> None:
        self.number = number
        """As a process id: another one after every start."""
        self.is_dead = False
        self.is_held = False
        self.held: deque[asyncio.Handle] = deque()
        """What has to wait while it is held."""


MACHINE: Final[ContextVar[Machine | None]] = ContextVar("machine", default=None)
"""The machine that a step belongs to; None is the world outside."""


class _Future(asyncio.Future[Any]):
    """Sets of futures are in an order that follows from that of their making in this loop, not from their addresses."""

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    """The same for tasks."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    """Time goes on to the next timer when nothing is left to do now."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._numbers = itertools.count()
        self.failures: list[str] = []
        """What went wrong in tasks that nobody awaits."""
        self._tasks: list[asyncio.Task[Any]] = []
        """All of them, so that none of a dead machine is thrown away before the end: its `finally` would run."""
        self.set_task_factory(self._new_task)  # type: ignore[arg-type]
        self.set_exception_handler(self._note_failure)

    def time(self) -> float:
        """Seconds since the beginning."""
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        """One whose hash is its number."""
        return _Future(next(self._numbers), loop=self)

    def _new_task(self, _: object, coroutine: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        task = _Task(next(self._numbers), coroutine, loop=self, **options)
        self._tasks.append(task)
        return task

    def start(self, coroutine: Coroutine[Any, Any, Any], machine: Machine | None) -> asyncio.Task[Any]:
        """Run it on a machine."""
        context = copy_context()
        context.run(MACHINE.set, machine)
        return self.create_task(coroutine, context=context)

    def release(self, machine: Machine) -> None:
        """What was held goes on."""
        machine.is_held = False
        self._ready.extend(machine.held)
        machine.held.clear()

    def unheard(self) -> list[str]:
        """The errors that tasks have ended with, and nobody has asked for."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        unheard = [task for task in ended if task._log_traceback]
        return [f"a task ended with {task.exception()!r}" for task in unheard]

    def _note_failure(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {error!r}")

    def close(self) -> None:
        """The world is over: what still waits is thrown away, without a word."""
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):  # code that awaits in its `finally`
                    task.get_coro().close()
        super().close()

    # ---- what BaseEventLoop leaves to others

    def _write_to_self(self) -> None:
        """There are no other threads that would have to wake this one."""

    def _process_events(self, event_list: object) -> None:
        """There are no files."""

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        if not ready:
            while scheduled and scheduled[0]._cancelled:
                heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]
            if not scheduled:
                raise Stuck(f"at {self._now:.3f} everybody waits for ever")
            self._now = max(self._now, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self._now:
            timer = heappop(scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]
            if not timer._cancelled:
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            machine: Machine | None = handle._context.get(MACHINE)  # type: ignore[attr-defined]
            if machine is not None:
                if machine.is_dead:
                    continue
                if machine.is_held:
                    machine.held.append(handle)
                    continue
            handle._run()


def outside() -> Context:
    """The context of the world outside."""
    context = copy_context()
    context.run(MACHINE.set, None)
    return context
