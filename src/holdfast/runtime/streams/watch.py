"""Keeps the marks of a pump's partitions, and holds a partition up until it is known whether it has suspects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from holdfast.errors import SourceError, StoreError
from holdfast.ports import Clock, Source, Store
from holdfast.runtime.streams.marks import Marks, Span
from holdfast.runtime.streams.part import Part
from holdfast.types import Place

_logger = logging.getLogger("holdfast.worker")

_LIMIT_S: Final = 2.0
"""How long a hand-over or a stop waits for the store."""
_OPEN_S: Final = 5.0
"""How long a new partition does: a server that says nothing is given up after several times as long."""


class Watch:
    """Used from one event loop. `is_on`: whether suspects could be run apart at all; otherwise it does nothing.

    A store that is away holds no message up for long: then its partitions begin unmarked, and are marked later.
    """

    def __init__(
        self,
        store: Store,
        source: Source,
        *,
        stream: str,
        worker: str,
        span: Span,
        clock: Clock,
        is_on: bool,
        on_ready: Callable[[], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        self._source = source
        self._stream = stream
        self._clock = clock
        self._is_on = is_on
        self._on_ready = on_ready
        self._on_trouble = on_trouble
        self._marks = Marks(store, stream, worker, span=span, ends=self._ends)
        self._tasks: set[asyncio.Task[None]] = set()

    def assigned(self, parts: Sequence[Part]) -> None:
        """These are ours, and wait until their marks are written: a message may kill this process at once."""
        if not self._is_on:
            return
        for part in parts:
            part.is_waiting = True
        self._marks.take({part.place: part.offsets.position for part in parts})
        self._soon(self._open(parts))

    async def revoked(self, parts: Sequence[Part]) -> None:
        """These are given back in good order, which the next holder must know of."""
        if not self._is_on or not parts:
            return
        self._marks.give_back({part.place: part.offsets.position for part in parts})
        await self._write_within(_LIMIT_S)

    def lost(self, places: Collection[Place]) -> None:
        """These are somebody else's already; but nobody has died."""
        if self._is_on:
            self._marks.lose(places)
            self._soon(self._write())

    async def catch_up(self) -> None:
        """Write what could not be written before."""
        if self._marks.is_behind:
            await self._write()

    async def close(self) -> None:
        """Write no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(self, parts: Sequence[Part]) -> None:
        try:
            await self._write_within(_OPEN_S)
        finally:
            for part in parts:
                if (mark := self._marks.of(part.place)) is not None:
                    part.suspects, part.careful_until = range(mark.position, mark.reach), mark.until
                part.is_waiting = False
            self._on_ready()
        if suspects := [part.place for part in parts if part.suspects]:
            _logger.error(
                "stream %s: its workers have died again and again; %d messages of %s run one by one in processes of "
                "their own until it is known which are to blame",
                self._stream,
                sum(len(part.suspects) for part in parts),
                ", ".join(f"{topic}/{number}" for topic, number in suspects),
            )

    async def _write_within(self, limit_s: float) -> None:
        with suppress(TimeoutError):  # then it is written later
            async with self._clock.timeout(limit_s):
                await self._write()

    async def _write(self) -> None:
        try:
            await self._marks.write()
        except StoreError as error:
            self._on_trouble(str(error))
            _logger.warning("stream %s: who has its partitions cannot be written now: %s", self._stream, error)

    async def _ends(self, topics: Collection[str]) -> Mapping[Place, int]:
        try:
            return {(one.topic, one.partition): one.end for one in await self._source.lags(sorted(topics))}
        except SourceError as error:
            self._on_trouble(str(error))
            return {}

    def _soon(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
