"""What the dead held goes to others in time: once the server's clock was set, and from who is frozen amid a request."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.clock import SystemClock, new_id, new_token
from holdfast.ports import Claim, Exchange, WorkerRecord
from holdfast.stores.postgres import PostgresStore
from holdfast.types import NewJob
from tests.unit.stores.postgres.conftest import Plain


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


@pytest.mark.parametrize(
    "locked",
    ["SELECT 1 FROM holdfast_workers WHERE id = 'frozen'", "SELECT 1 FROM holdfast_claims WHERE worker = 'frozen'"],
    ids=["heartbeat", "settlement"],
)
async def test_what_a_frozen_worker_has_locked_keeps_the_jobs_of_others_from_nobody(
    store: PostgresStore, plain: Plain, locked: str
) -> None:
    await store.enqueue([NewJob(id=new_id(), task="greet", payload=b"{}") for _ in range(4)])
    held = {}
    for name in ("frozen", "dead"):
        await store.heartbeat(WorkerRecord(id=name, lease_s=2.0))
        held[name] = (await store.exchange(Exchange(claim=Claim(worker=name, token=new_token(), limit=2)))).deliveries
    store.clock_offset_s += 3.0
    await store.heartbeat(WorkerRecord(id="alive", lease_s=600.0))
    with plain.transaction():
        plain.execute(f"{locked} FOR UPDATE".encode())
        orphans = await store.reclaim("alive", new_token(), 10)
        assert [one.id for one in orphans] == [one.id for one in held["dead"]]
        assert await store.reclaim("alive", new_token(), 10) == []
    orphans = await store.reclaim("alive", new_token(), 10)
    assert [one.id for one in orphans] == [one.id for one in held["frozen"]]


async def test_half_of_a_request_that_has_only_a_lock_is_ended_too(postgres_url: str, plain: Plain) -> None:
    store = PostgresStore(postgres_url, answer_s=1.0)
    await store.heartbeat(WorkerRecord(id="alive", lease_s=600.0))
    plain.execute(b"SET application_name = 'holdfast'")
    with pytest.raises(psycopg.OperationalError, match="closed the connection"), plain.pipeline():
        plain.execute(b"SELECT pg_advisory_xact_lock(1) AS holdfast")
        SystemClock().sleep(1.0)  # longer than the limit of the store
        await store.reclaim("alive", new_token(), 10)
    await store.close()
