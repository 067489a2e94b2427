"""What an output lacks of a crawl's completed pages is read from the store and added."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

from holdfast.crawl.outputs import Done, Output
from holdfast.ports import Query, Store
from holdfast.types import JobRecord, JobState

_PAGES: Final = 500
_logger = logging.getLogger("holdfast.crawl")


class _Payload(Struct):
    url: str = ""


class _Result(Struct):
    items: list[Raw] = []


_read_payload: Final = msgspec.json.Decoder(_Payload).decode
_read_result: Final = msgspec.json.Decoder(_Result).decode


class Walk:
    """One walk over the completed pages of a crawl, newest first, some at a time.

    Every page that was completed before the first step is in the output after the last one. It ends early when the
    output has as many pages as are completed: each of its pages is one of these, unless somebody has removed single
    completed pages from the store.
    """

    def __init__(self, store: Store, crawl: str, output: Output) -> None:
        self._store = store
        self._output = output
        self._query = Query(states=(JobState.COMPLETED,), task=f"crawl:{crawl}", limit=_PAGES)
        self._has_begun = False
        self.is_over = False
        self.added = 0

    async def step(self) -> None:
        """Add some more; what it has added is durable when it is over."""
        if not self._has_begun:
            self._has_begun = True
            if await self._is_complete():
                self.is_over = True
                return
        page = await self._store.find(self._query)
        added = await asyncio.to_thread(_add_missing, self._output, page.items)
        self.added += added
        self._query = msgspec.structs.replace(self._query, cursor=page.cursor)
        if not page.cursor:
            await asyncio.to_thread(self._output.sync)
            self.is_over = True
        elif added:
            self.is_over = await self._is_complete()

    async def _is_complete(self) -> bool:
        await asyncio.to_thread(self._output.sync)
        written = self._output.count  # first, since both go up meanwhile: what is written was completed before
        stats = await self._store.stats()
        wanted, task = (JobState.COMPLETED, self._query.task)
        return written == sum(one.n for one in stats.tallies if (one.state, one.task) == (wanted, task))


async def reconcile(store: Store, crawl: str, output: Output) -> int:
    """Add every completed page that the output lacks, durably; how many there were. It may run beside the crawl."""
    walk = Walk(store, crawl, output)
    while not walk.is_over:
        await walk.step()
    return walk.added


def _add_missing(output: Output, records: Sequence[JobRecord]) -> int:
    known = output.has([record.id for record in records])
    return output.add([_done(record) for record in records if record.id not in known])


def _done(record: JobRecord) -> Done:
    try:
        items = _read_result(record.result).items if record.result is not None else []
        return Done(record.id, _read_payload(record.payload).url, items)
    except msgspec.MsgspecError as error:
        _logger.warning(
            "page %s has a result that is none of a page, so its items are not written: %s", record.id, error
        )
        return Done(record.id, "")
