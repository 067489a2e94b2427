"""Jobs with notes that come to their ends in every way: what is left of the notes is for the books to say."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from holdfast.ports import Note, Store
from holdfast.testing.store_suite import claim, enqueue, new_job, settle
from holdfast.types import Change, End


async def end_with_notes(store: Store, check_books: Callable[[], None]) -> list[str]:
    """Their ids: four that are completed, in three ways, and one dead letter."""
    jobs = [new_job() for _ in range(5)]
    ids = await enqueue(store, *jobs)
    deliveries = await claim(store)
    for one in deliveries:
        assert await store.note(Note(id=one.id, token=one.token, checkpoint=b"page", step=("a", b"1"), progress=0.5))
        assert await store.note(Note(id=one.id, token=one.token, step=("b", b"2")))
    check_books()
    plain, again, with_reason, ended, letter = deliveries
    await settle(store, plain, Change.COMPLETE, result=b"1")
    check_books()
    await settle(store, again, Change.RETRY)
    (again,) = await claim(store)
    await settle(store, again, Change.COMPLETE)
    check_books()
    await settle(store, with_reason, Change.COMPLETE, reason="why")
    check_books()
    await store.enqueue([structs.replace(jobs[3], end=End(change=Change.COMPLETE))])
    assert ended.id == ids[3]
    check_books()
    await settle(store, letter, Change.BURY)
    check_books()
    return ids
