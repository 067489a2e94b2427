"""Another era: another server may have answered than last time, or one that has lost its last moments."""

from __future__ import annotations

import pytest

from holdfast.clock import new_token
from holdfast.ports import Claim, Exchange, WorkerRecord
from holdfast.stores.postgres import PostgresStore, exchange
from holdfast.testing.store_suite.steps import new_job
from tests.unit.stores.postgres.conftest import Plain


async def era_of(store: PostgresStore) -> int:
    return (await store.exchange(Exchange())).era


async def pid_of(store: PostgresStore) -> int:
    pid: int = await (await store._aopen()).writer.write(lambda db: db.row("SELECT pg_backend_pid()")[0])
    return pid


async def test_a_new_connection_begins_another_era_though_the_store_sends_again_by_itself(
    store: PostgresStore, plain: Plain
) -> None:
    first = await era_of(store)
    assert await era_of(store) == first
    pid = await pid_of(store)
    plain.execute("SELECT pg_terminate_backend(%s)", (pid,))
    while plain.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone():
        pass
    second = await era_of(store)
    assert second != first
    assert await era_of(store) == second


async def test_a_server_that_was_started_at_another_time_is_another_one(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await era_of(store)
    elsewhere = exchange._NOW.replace("pg_postmaster_start_time()", "to_timestamp(1)")
    monkeypatch.setattr(exchange, "_NOW", elsewhere)
    assert await era_of(store) != first, "behind a pooler the connection may be the same"


async def test_every_way_to_claim_knows_the_server(store: PostgresStore) -> None:
    first = await era_of(store)
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    for queue in ("a", "a", "b"):
        await store.enqueue([new_job(queue=queue)])
        reply = await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=5)))
        assert (len(reply.deliveries), reply.era) == (1, first)
