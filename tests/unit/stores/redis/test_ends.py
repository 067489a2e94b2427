"""Work that comes with its end, in the keys."""

from __future__ import annotations

import asyncio

import pytest
import redis

from holdfast.errors import Unwritable
from holdfast.ports import Operation, WorkerRecord
from holdfast.stores.redis import RedisStore
from holdfast.testing.store_suite import new_job
from holdfast.testing.store_suite.ends import ended, tried
from holdfast.testing.store_suite.steps import found_ids
from holdfast.types import Change
from tests.unit.stores.endings import live_and_end, unwritable
from tests.unit.stores.redis.conftest import CheckBooks

DAY_S = 86_400.0


async def test_the_books_agree_whatever_ends_and_nothing_is_left_of_it(
    store: RedisStore, check_books: CheckBooks, client: redis.Redis, prefix: str
) -> None:
    ids = await live_and_end(store, check_books)
    for worker in ("w1", "w2", "w3"):
        await store.heartbeat(WorkerRecord(id=worker, lease_s=0))
    for change in (Change.CANCEL, Change.REMOVE):
        await store.change(Operation(change=change, ids=ids))
    check_books()
    store.clock_offset_s += 9 * DAY_S
    for _ in range(3):
        await store.prune(100)
    left = {key for key in client.scan_iter(f"{{{prefix}}}:*") if int(client.ttl(key)) < 0}
    assert left == {f"{{{prefix}}}:meta".encode()}, "all else ends by itself"


@pytest.mark.parametrize("place", ["reason", "attempt"])
async def test_one_that_cannot_be_written_fails_alone(store: RedisStore, check_books: CheckBooks, place: str) -> None:
    good, bad, plain = ended(Change.BURY, tried(1)), unwritable(place), new_job()
    calls = (store.enqueue([good]), store.enqueue([ended(Change.BURY), bad]), store.enqueue([plain]))
    first, second, third = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(second, Unwritable)
    assert second.job_id == bad.id
    assert not isinstance(first, BaseException)
    assert not isinstance(third, BaseException)
    assert set(await found_ids(store)) == {plain.id, good.id}
    check_books()
