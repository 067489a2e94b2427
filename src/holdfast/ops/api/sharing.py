"""One call for all who ask for the same at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Makes a call for whoever asks; those who ask while it is under way share what comes of it, a failure too.

    So they do not wait for a store that hangs one after the other. Who goes away leaves it to the others.
    """

    def __init__(self, call: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._call = call
        self._task: asyncio.Task[T] | None = None

    async def ask(self, *, is_fresh: bool = False) -> T:
        """What the call answers. is_fresh: one that begins after this moment, unless the one before it fails."""
        running = self._running()
        if is_fresh and running is not None:
            await asyncio.shield(running)
            running = self._running()  # another one who waited may have begun the next one
        if running is None:
            running = self._task = asyncio.get_running_loop().create_task(self._call())
            running.add_done_callback(_seen)
        return await asyncio.shield(running)

    def _running(self) -> asyncio.Task[T] | None:
        task = self._task
        is_on = task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()
        return task if is_on else None


def _seen(task: asyncio.Task[Any]) -> None:
    """Nobody may be waiting any more when it fails, and asyncio is not to complain of that."""
    if not task.cancelled():
        task.exception()
