"""A crawl is forgotten: its pages, its values and the breakers of its domains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from holdfast.crawl.book import Book
from holdfast.errors import HoldfastError, NotFound
from holdfast.ports import Exchange, Operation, Query, Stats, Store, ValueChange, WorkerRecord
from holdfast.runtime.crawl_origins import queue_of
from holdfast.runtime.page_gates import breaker_name
from holdfast.runtime.shared.names import breaker_gate
from holdfast.runtime.this_process import is_dead
from holdfast.types import Change, JobRecord

_BATCH: Final = 1_000
_PASSES: Final = 5


async def remove_crawl(store: Store, crawl: str, *, on_progress: Callable[[int], None] | None = None) -> int:
    """Delete all pages of a crawl for good, then what else is stored of it; how many pages there were.

    What is pending is cancelled first. NotFound where there is no such crawl; HoldfastError while a process is on it.
    When it is interrupted, what is gone is gone, and the next call removes the rest. on_progress: is told how many are
    gone, now and then.
    """
    book = Book(store, crawl)
    await book.read()
    removed = 0
    for _ in range(_PASSES):
        stats = await store.stats()
        await _refuse_running(store, stats, crawl)
        left = _pages(stats, crawl)
        if not (left or removed or book.record):
            raise NotFound(f"there is no crawl {crawl!r}")
        if not left:
            await book.remove()
            await _remove_breakers(store, crawl)
            return removed
        removed = await _remove_pages(store, crawl, removed, on_progress)
    raise HoldfastError(f"pages of the crawl {crawl} keep coming: stop what adds them, then remove it")


async def _remove_pages(store: Store, crawl: str, removed: int, on_progress: Callable[[int], None] | None) -> int:
    """One walk over all of them; how many were removed until now."""
    query = Query(queue=queue_of(crawl), limit=_BATCH)
    while True:
        page = await store.find(query)
        removed += await _remove_these(store, page.items)
        if on_progress is not None:
            on_progress(removed)
        if not page.cursor:
            return removed
        query = replace(query, cursor=page.cursor)


async def _remove_these(store: Store, records: Sequence[JobRecord]) -> int:
    pending = [record.id for record in records if not record.state.is_terminal]
    if pending:
        await store.change(Operation(change=Change.CANCEL, ids=pending, reason="the crawl is removed"))
    ids = [record.id for record in records]
    if not ids:
        return 0
    return sum(one.is_done for one in await store.change(Operation(change=Change.REMOVE, ids=ids)))


async def _remove_breakers(store: Store, crawl: str) -> None:
    """Or the next crawl of this name would find its domains' breakers as this one has left them."""
    prefix = breaker_gate(breaker_name(crawl, ""))
    values = (await store.exchange(Exchange())).values
    changes = [
        ValueChange(one.key, one.version, None) for one in values if one.key.startswith(prefix) and one.data is not None
    ]
    for start in range(0, len(changes), _BATCH):
        await store.exchange(Exchange(changes=changes[start : start + _BATCH]))


def _pages(stats: Stats, crawl: str) -> int:
    queue = queue_of(crawl)
    return sum(tally.n for tally in stats.tallies if tally.queue == queue)


async def _refuse_running(store: Store, stats: Stats, crawl: str) -> None:
    """HoldfastError while a process is on it; those that were killed take leave, as no worker may be there to see."""
    on_it = [one for one in stats.workers if any(report.name == crawl for report in one.crawls)]
    alive = [one for one in on_it if not is_dead(one, stats.now)]
    if alive:
        where = f"{alive[0].host} {alive[0].pid}" + (f" and {len(alive) - 1} more" if len(alive) > 1 else "")
        raise HoldfastError(f"the crawl {crawl} runs in process {where}: stop it first")
    for one in on_it:
        await store.heartbeat(WorkerRecord(id=one.id, lease_s=0.0))
