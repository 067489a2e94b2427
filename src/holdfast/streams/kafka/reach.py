"""Whether the broker can be reached and has our topics: the owner is told once when not, and once when again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.errors import SourceError
from holdfast.ports import Clock
from holdfast.streams.kafka.admin import Admin
from holdfast.streams.kafka.logs import log

_PATIENCE_S: Final = 2.0
_AGAIN_S: Final = 0.5


class Reach:
    """Looks into what the consumer complains about; all of it on the event loop."""

    def __init__(self, admin: Admin, topics: Sequence[str], tell: Callable[[str], None], clock: Clock) -> None:
        self._admin = admin
        self._topics = topics
        self._tell = tell
        self._clock = clock
        self._told = ""
        self._task: asyncio.Task[None] | None = None

    def suspect(self, why: str) -> None:
        """Something went wrong, which may have passed already: find out, and watch until it has."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch(why))

    def say(self, why: str) -> None:
        """Tell the owner, unless it was told so last."""
        if why != self._told:
            self._told = why
            if why:
                log.warning("away: %s", why)
            self._tell(why)

    async def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _watch(self, why: str) -> None:
        while found := await self._look(why):
            # One reason is enough: the next attempts fail in other words.
            if not self._told:
                self.say(found)
            await self._clock.asleep(_AGAIN_S)
        self.say("")

    async def _look(self, why: str) -> str:
        try:
            found = await self._admin.partitions(self._topics, _PATIENCE_S)
        except SourceError as error:
            return why or str(error)
        missing = [topic for topic in self._topics if topic not in found]
        return missing_words(missing) if missing else ""


def missing_words(topics: Sequence[str]) -> str:
    """That these do not exist."""
    return f"topic {topics[0]} does not exist" if len(topics) == 1 else f"topics {', '.join(topics)} do not exist"
