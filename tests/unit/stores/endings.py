"""A bit of everything that can happen to work that comes with its end; after each step the books are looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.clock import new_id, new_token
from holdfast.ports import Operation, Store, WorkerRecord
from holdfast.testing.store_suite import claim, enqueue, new_job, settle
from holdfast.testing.store_suite.ended_again import tried_since
from holdfast.testing.store_suite.ends import ended, tried, with_end
from holdfast.testing.store_suite.steps import failed_attempt
from holdfast.types import Change, End, NewJob

UNWRITABLE = "lone \ud800 surrogate"


class MovableStore(Store, Protocol):
    """A store whose clock tests can move."""

    clock_offset_s: float


def unwritable(place: str) -> NewJob:
    """A letter that cannot be written, for its reason or for what an attempt says."""
    reason, attempts = (UNWRITABLE, ()) if place == "reason" else ("", (tried(1, message=UNWRITABLE),))
    return NewJob(
        id=new_id(), task="greet", payload=b"{}", end=End(change=Change.BURY, attempts=attempts, reason=reason)
    )


async def live_and_end(store: MovableStore, check_books: Callable[[], None]) -> list[str]:
    """End jobs of every state, some of them with others in one call; the ids of all."""
    ids = await enqueue(
        store,
        *(new_job(task="ab"[n % 2], gates=(f"g{n % 3}",), tenant="t" * (n % 2), priority=n % 3) for n in range(10)),
        *(new_job(delay_s=600.0) for _ in range(2)),
    )
    held = await claim(store, limit=6)
    for delivery, change, delay_s in zip(held[:3], (Change.RETRY, Change.PARK, Change.PARK), (0, 0, 60), strict=True):
        await settle(store, delivery, change, delay_s=delay_s, attempt=failed_attempt(delivery), reason="later")
    check_books()
    new = [ended(change, tried(1), tried(2), keep_s=10.0) for change in (Change.BURY, Change.COMPLETE, Change.DISCARD)]
    keyed = [ended(Change.BURY, tried(1), idempotency_key=f"k{n % 2}", tenant="acme") for n in range(3)]
    queued = next(one for one in ids[:10] if one not in {delivery.id for delivery in held})
    known = [with_end(one.id, Change.BURY, tried(1), reason="why") for one in held[:4]]
    await store.enqueue([*new, *known, *keyed, with_end(queued), with_end(ids[-1]), *known, new[0]])
    check_books()
    letters = [new[0].id, keyed[0].id, queued, ids[-1], *(one.id for one in held[:4])]
    await store.change(Operation(change=Change.REPLAY, ids=letters, payload=b"[1]"))
    check_books()
    await claim(store, worker="w2", limit=3)
    check_books()
    await store.enqueue([with_end(one, Change.COMPLETE) for one in letters])
    check_books()
    again = [with_end(one, Change.BURY, await tried_since(store, 7)) for one in letters]
    again += [with_end(one.id, Change.BURY, await tried_since(store, 8), keep_s=5.0) for one in (*new, keyed[0])]
    await store.enqueue([*again, *again[:3], with_end(letters[0], Change.BURY, await tried_since(store, 9))])
    check_books()
    store.clock_offset_s += 100.0
    await store.heartbeat(WorkerRecord(id="w3", lease_s=60.0))
    orphans = await store.reclaim("w3", new_token(), 1)
    assert len(orphans) == 1
    await store.enqueue([with_end(one.id, Change.DISCARD) for one in held[4:]])
    check_books()
    assert await store.reclaim("w3", new_token(), 10) == []
    return [*ids, *(one.id for one in (*new, *keyed))]
