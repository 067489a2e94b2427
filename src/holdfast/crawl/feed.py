"""Completed pages on their way from a running crawl into its output."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from msgspec import Raw

from holdfast.clock import chance
from holdfast.crawl.outputs import Done, Output
from holdfast.crawl.reconcile import Walk
from holdfast.errors import HoldfastError
from holdfast.ports import Clock, Store
from holdfast.runtime.outage import AGAIN
from holdfast.types import Rng

MOST_WAITING: Final = 5_000
MOST_WAITING_BYTES: Final = 64 * 1024 * 1024
_BATCH: Final = 500
_BATCH_BYTES: Final = 2 * 1024 * 1024
_EVERY_S: Final = 1.0
_logger = logging.getLogger("holdfast.crawl")


class Feed:
    """Writes completed pages into an output, on a thread, and makes them durable every second.

    It begins with what the output lacks of the pages that were completed before, and ends with what others have
    completed. Nothing depends on it: the pages are in the store. While the output cannot be written, it forgets what it
    is given, tries again after a while, and then reads from the store what is missing. Used on one event loop.
    """

    def __init__(self, store: Store, crawl: str, output: Output, *, clock: Clock, rng: Rng = chance) -> None:
        self._store = store
        self._crawl = crawl
        self._output = output
        self._clock = clock
        self._rng = rng
        self._waiting: list[Done] = []
        self._bytes = 0
        self._walk: Walk | None = None
        self._is_unsynced = False
        self._due_at = 0.0
        self._stir = asyncio.Event()
        self._is_closing = False
        self._is_resting = False
        self._tries = 0
        self._task: asyncio.Task[None] | None = None
        self.problem = ""
        """Why the output cannot be written, in one line; empty while it can."""

    @property
    def is_full(self) -> bool:
        """Whether so many pages wait that no more should be fetched for a moment."""
        return len(self._waiting) > MOST_WAITING or self._bytes >= MOST_WAITING_BYTES

    def start(self) -> None:
        """Begin to write."""
        self._walk = Walk(self._store, self._crawl, self._output)
        self._task = asyncio.create_task(self._run(), name=f"output of crawl {self._crawl}")

    def put(self, done: Done) -> None:
        """Write this page soon; never blocks. Its completion must be committed."""
        if self._is_resting:
            return
        self._waiting.append(done)
        self._bytes += sum(memoryview(item).nbytes for item in done.items if isinstance(item, Raw))
        if len(self._waiting) == 1 and not self._is_unsynced:
            self._due_at = self._clock.monotonic() + _EVERY_S
            self._stir.set()
        elif self._is_batch:
            self._stir.set()

    async def close(self, *, catch_up: bool = True) -> None:
        """Write and sync what is left, and close the output. Raises what kept it from being written.

        catch_up: also what others have completed, for a crawl that has come to its end. False leaves what is missing to
            the next start.
        """
        if self._is_closing:
            return
        self._is_closing = True
        self._stir.set()
        try:
            if self._task is not None:
                await self._task
                await self._finish(catch_up)
        finally:
            await asyncio.to_thread(self._output.close)

    # ---------------------------------------------------------------- the loop

    @property
    def _is_batch(self) -> bool:
        return len(self._waiting) >= _BATCH or self._bytes >= _BATCH_BYTES

    def _take(self) -> list[Done]:
        """All that waits, which waits no more."""
        pages, self._waiting, self._bytes = self._waiting, [], 0
        return pages

    async def _run(self) -> None:
        while not self._is_closing:
            try:
                await self._step()
            except Exception as error:  # whatever it was, the store has the pages, and it is tried again
                await self._rest(error)

    async def _step(self) -> None:
        await self._gather()
        is_due = self._clock.monotonic() >= self._due_at
        if self._is_batch or is_due:
            await self._write(is_due)
        if self._walk is not None:
            await self._walk.step()
            if self._walk.is_over:
                self._walk = None
                self._works()

    async def _gather(self) -> None:
        """Wait until there is enough to write, or what there is has waited for long enough."""
        if self._walk is not None or self._is_batch:
            return
        left_s = self._due_at - self._clock.monotonic() if self._waiting or self._is_unsynced else None
        if left_s is None or left_s > 0.0:
            with suppress(TimeoutError):
                async with self._clock.timeout(left_s):
                    await self._stir.wait()
        self._stir.clear()

    async def _write(self, is_due: bool) -> None:
        pages = self._take()
        if not (pages or self._is_unsynced):
            return
        self._is_unsynced = True
        if pages:
            await asyncio.to_thread(self._output.add, pages)
        if is_due:
            await asyncio.to_thread(self._output.sync)
            self._is_unsynced = False
            self._due_at = self._clock.monotonic() + _EVERY_S

    async def _rest(self, error: Exception) -> None:
        """It failed: nothing is kept, and all that is missing is looked up when it may work again."""
        self._tries += 1
        if not self.problem:
            where, cause = self._output.path, None if isinstance(error, HoldfastError) else error
            _logger.error("the output %s cannot be written: %s; it is tried until it can", where, error, exc_info=cause)
        self.problem = " ".join(str(error).split()) or type(error).__name__
        self._is_resting = True
        self._take()
        with suppress(TimeoutError):
            async with self._clock.timeout(AGAIN.delay(self._tries, rng=self._rng)):
                while not self._is_closing:
                    await self._stir.wait()
                    self._stir.clear()
        self._is_resting = False
        self._walk = Walk(self._store, self._crawl, self._output)

    def _works(self) -> None:
        self._tries = 0
        if self.problem:
            self.problem = ""
            _logger.warning("the output %s is written again, and has all it lacked", self._output.path)

    async def _finish(self, catch_up: bool) -> None:
        await asyncio.to_thread(self._output.add, self._take())
        await asyncio.to_thread(self._output.sync)
        if catch_up:
            walk = Walk(self._store, self._crawl, self._output)
            while not walk.is_over:
                await walk.step()
        self.problem = ""
