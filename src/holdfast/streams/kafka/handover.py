"""Messages that the consumer's thread has brought and nobody has taken yet: all of it on the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence

from holdfast.ports import Clock
from holdfast.types import Message, Place


class Handover:
    """Batches in their order. Those of a paused partition wait here apart, so that none is skipped or comes twice."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[list[Message]] = deque()
        self._held: dict[Place, list[Message]] = {}
        self._paused: set[Place] = set()
        self._news = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that may be taken."""
        return not self._ready

    def put(self, messages: list[Message]) -> None:
        """One more batch."""
        if self._paused:
            messages = self._without_paused(messages)
        if messages:
            self._ready.append(messages)
            self._news.set()

    async def wait(self, wait_s: float) -> None:
        """Until there is something to take, or somebody interrupts; for so long at most."""
        self._news.clear()
        try:
            async with self._clock.timeout(wait_s):
                await self._news.wait()
        except TimeoutError:
            pass

    def interrupt(self) -> None:
        """End the wait, with or without messages."""
        self._news.set()

    def take(self, limit: int) -> Sequence[Message]:
        """Up to so many of one batch."""
        if not self._ready:
            return ()
        batch = self._ready.popleft()
        if len(batch) > limit:
            self._ready.appendleft(batch[limit:])
            del batch[limit:]
        return batch

    def pause(self, places: Collection[Place]) -> None:
        """Hold back what is here of these, and what comes."""
        self._paused.update(places)
        self._sort_out()

    def resume(self, places: Collection[Place]) -> None:
        """What was held back comes first, for it is older than whatever is to come."""
        self._paused.difference_update(places)
        for place in places:
            if held := self._held.pop(place, None):
                self._ready.appendleft(held)
                self._news.set()

    def drop(self, places: Collection[Place]) -> None:
        """These are not ours any more; should they come back, they are not paused."""
        gone = frozenset(places)
        self._paused -= gone
        for place in gone:
            self._held.pop(place, None)
        batches = [[message for message in batch if message.place not in gone] for batch in self._ready]
        self._ready = deque(batch for batch in batches if batch)

    def _sort_out(self) -> None:
        batches = [self._without_paused(batch) for batch in self._ready]
        self._ready = deque(batch for batch in batches if batch)

    def _without_paused(self, batch: list[Message]) -> list[Message]:
        free: list[Message] = []
        for message in batch:
            if message.place in self._paused:
                self._held.setdefault(message.place, []).append(message)
            else:
                free.append(message)
        return free
