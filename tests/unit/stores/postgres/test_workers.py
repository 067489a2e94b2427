"""Workers whose clock, the server's, is set: their leases hold for as long as they should."""

from __future__ import annotations

from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Exchange, WorkerRecord
from holdfast.stores.postgres import PostgresStore
from holdfast.types import NewJob


async def test_a_dead_worker_is_given_up_in_time_after_the_clock_went_back(store: PostgresStore) -> None:
    await store.enqueue([NewJob(id=new_id(), task="greet", payload=b"{}")])
    for name, lease_s in (("dead", 2.0), ("alive", 600.0)):
        await store.heartbeat(WorkerRecord(id=name, lease_s=lease_s))
    held = await store.exchange(Exchange(claim=Claim(worker="dead", token=new_token(), limit=1)))
    store.clock_offset_s -= 3_600.0
    assert await store.reclaim("alive", new_token(), 10) == [], "its lease begins anew"
    assert all(worker.seen_at < held.now - 3_500.0 for worker in (await store.stats()).workers)
    store.clock_offset_s += 3.0
    orphans = await store.reclaim("alive", new_token(), 10)
    assert [one.id for one in orphans] == [one.id for one in held.deliveries]
