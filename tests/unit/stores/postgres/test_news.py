"""Wake-ups between processes, and only while somebody waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Exchange, ValueChange, WorkerRecord
from holdfast.stores.postgres import PostgresStore, news
from holdfast.types import NewJob
from tests.unit.stores.postgres.conftest import Plain

PROMPTLY_S = 10.0
LONG_S = 300.0


def new_job(**options: Any) -> NewJob:
    return NewJob(**{"id": new_id(), "task": "greet", "payload": b"{}", **options})


async def claim(store: PostgresStore, limit: int) -> int:
    """How many a claim brings."""
    claim = Claim(worker="w", token=new_token(), limit=limit)
    return len((await store.exchange(Exchange(claim=claim))).deliveries)


def listed(plain: Plain) -> int:
    return len(plain.execute("SELECT 1 FROM holdfast_listeners").fetchall())


@pytest.fixture
async def other(postgres_url: str) -> AsyncIterator[PostgresStore]:
    """The store of another process."""
    other = PostgresStore(postgres_url)
    yield other
    await other.close()


@pytest.fixture
async def idle(store: PostgresStore) -> PostgresStore:
    """A store whose worker has found nothing, and has looked again since."""
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    assert await claim(store, 5) == 0
    for _ in news._LOOKS_S:
        await store.wait(LONG_S)
        assert await claim(store, 5) == 0
    return store


async def test_a_job_of_another_process_wakes_an_idle_one(idle: PostgresStore, other: PostgresStore) -> None:
    for _ in range(3):
        waiting = asyncio.create_task(idle.wait(LONG_S))
        await other.enqueue([new_job()])
        async with asyncio.timeout(PROMPTLY_S):
            await waiting
        assert await claim(idle, 5) == 1


async def test_a_value_changed_by_another_process_wakes_an_idle_one(idle: PostgresStore, other: PostgresStore) -> None:
    waiting = asyncio.create_task(idle.wait(LONG_S))
    await other.exchange(Exchange(changes=[ValueChange("k", 0, b"1")]))
    async with asyncio.timeout(PROMPTLY_S):
        await waiting


async def test_a_process_that_is_busy_is_taken_from_the_list(idle: PostgresStore, plain: Plain) -> None:
    assert listed(plain) == 1
    await idle.enqueue([new_job() for _ in range(news._FULL_CLAIMS)])
    for n in range(news._FULL_CLAIMS):
        assert (await claim(idle, 1), listed(plain)) == (1, 1 if n < news._FULL_CLAIMS - 1 else 0)
    assert await claim(idle, 1) == 0
    assert listed(plain) == 1


async def test_nobody_is_told_when_nobody_waits(store: PostgresStore, other: PostgresStore, plain: Plain) -> None:
    assert store.capabilities
    found = plain.execute("SELECT value FROM holdfast_meta WHERE key = 'store'").fetchone()
    assert found is not None
    plain.execute(f'LISTEN "holdfast:{found[0]}"'.encode())
    await store.enqueue([new_job()])
    assert list(plain.notifies(timeout=0.05)) == []
    await other.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    assert await claim(other, 5) == 1
    await store.enqueue([new_job()])
    assert len(list(plain.notifies(timeout=PROMPTLY_S, stop_after=1))) == 1


async def test_a_store_that_is_closed_leaves_the_list(idle: PostgresStore, plain: Plain) -> None:
    await idle.close()
    assert listed(plain) == 0


async def test_a_process_that_listens_in_vain_hears_again(
    idle: PostgresStore, other: PostgresStore, plain: Plain
) -> None:
    plain.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()"
    )
    async with asyncio.timeout(PROMPTLY_S):
        await idle.wait(LONG_S)  # it is told that the line is cut
        while not idle._opened.news._is_heard:  # type: ignore[union-attr]
            await claim(idle, 5)
        for _ in news._LOOKS_S:
            await idle.wait(LONG_S)
    waiting = asyncio.create_task(idle.wait(LONG_S))
    await other.enqueue([new_job()])
    async with asyncio.timeout(PROMPTLY_S):
        await waiting


async def test_the_list_forgets_who_died(idle: PostgresStore, other: PostgresStore, plain: Plain) -> None:
    other.clock_offset_s += news._LISTED_S + 1
    await other.prune(1)
    assert listed(plain) == 0
