"""All items of a crawl, from the store into an output, whether or not the crawl has come to its end."""

from __future__ import annotations

import asyncio
import os

from msgspec import Struct

from holdfast.crawl.book import Book
from holdfast.crawl.outputs import open_output
from holdfast.crawl.reconcile import reconcile
from holdfast.errors import NotFound
from holdfast.ports import Store
from holdfast.runtime.crawl_origins import queue_of
from holdfast.types import JobState


class Exported(Struct, frozen=True, kw_only=True):
    """What an output has now."""

    file: str
    """Its absolute path, or "-"."""
    pages: int
    """Completed pages whose items are in it."""
    new: int
    """Those of them that it lacked."""


async def export_items(store: Store, crawl: str, path: str | os.PathLike[str]) -> Exported:
    """Write what an output lacks of a crawl's items; it may be one that a run has begun, and the next run goes on with.

    NotFound where there is no such crawl; ConfigError and StoreError as for an output (see `Output`).
    """
    book = Book(store, crawl)
    await book.read()
    record = book.record
    if record is None and not await _has_pages(store, crawl):
        raise NotFound(f"there is no crawl {crawl!r}")
    output = await asyncio.to_thread(open_output, path, crawl, crawl_id="" if record is None else record.id)
    try:
        new = await reconcile(store, crawl, output)
        return Exported(file=output.path, pages=output.count, new=new)
    finally:
        await asyncio.to_thread(output.close)


async def _has_pages(store: Store, crawl: str) -> bool:
    stats = await store.stats()
    return any(one.n and one.queue == queue_of(crawl) and one.state is JobState.COMPLETED for one in stats.tallies)
