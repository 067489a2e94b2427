"""Dead rows that vacuum cannot remove: the store says so, and who is to blame; not when they are no trouble."""

from __future__ import annotations

import re

import psycopg
import pytest

from holdfast import App
from holdfast.clock import SystemClock, new_id, new_token
from holdfast.ports import Claim, Exchange, Settlement, WorkerRecord
from holdfast.stores.postgres import PostgresStore, stats
from holdfast.types import Change, NewJob
from tests.unit.stores.postgres.conftest import Plain

JOBS = 200
_SEEN_WITHIN_S = 20.0


async def churn(store: PostgresStore) -> None:
    """Jobs that come and go, each of which leaves a dead row."""
    await store.heartbeat(WorkerRecord(id="w", lease_s=600.0))
    await store.enqueue([NewJob(id=new_id(), task="greet", payload=b"{}") for _ in range(JOBS)])
    got = await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=JOBS)))
    ends = [Settlement(id=one.id, token=one.token, change=Change.COMPLETE) for one in got.deliveries]
    await store.exchange(Exchange(settlements=ends))


async def troubles(store: PostgresStore, plain: Plain) -> tuple[str, ...] | None:
    """What the store tells of, once the server has counted; its sessions do that about a second late."""
    clock = SystemClock()
    limit_s = clock.monotonic() + _SEEN_WITHIN_S
    while plain.execute("SELECT pg_stat_get_dead_tuples('holdfast_ready'::regclass)").fetchall()[0][0] < JOBS:
        assert clock.monotonic() < limit_s, "the server does not count dead rows"
        await store.exchange(Exchange())
        await clock.asleep(0.05)
    return (await store.stats()).troubles


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Troubles are told of early."""
    monkeypatch.setattr(stats, "DEAD_ROWS", JOBS // 2)
    monkeypatch.setattr(stats, "HELD_S", 0.0)


async def test_a_snapshot_that_keeps_vacuum_from_its_work_is_named(
    store: PostgresStore, plain: Plain, postgres_url: str
) -> None:
    await store.stats()
    with psycopg.connect(plain.info.dsn, password=plain.info.password, application_name="report") as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        await churn(store)
        (line,) = await troubles(store, plain) or ()
        pid = reader.info.backend_pid
        assert re.fullmatch(rf"\d+ dead rows slow claims down, .*: session {pid} \(report\) .* for \d+ s; end it", line)

        app = App(postgres_url)
        health = await app.ahealth()
        await app.aclose()
        assert health.checks["upkeep"].status == "failed"
        assert health.checks["upkeep"].error is not None
        assert f"session {pid}" in health.checks["upkeep"].error
        assert health.status == "degraded"
        assert health.healthy
    assert (await store.stats()).troubles == ()


async def test_dead_rows_alone_are_no_trouble(store: PostgresStore, plain: Plain) -> None:
    await store.stats()
    await churn(store)
    assert await troubles(store, plain) == ()
