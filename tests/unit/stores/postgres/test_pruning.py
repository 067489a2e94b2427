"""Pruning: what is over goes, lanes without jobs go, and nobody who enqueues meanwhile loses a job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Count, Enqueued, Exchange, Operation, Settlement, WorkerRecord
from holdfast.stores.postgres import PostgresStore, exchange, lanes
from holdfast.types import Change, NewJob
from tests.unit.stores.noting import end_with_notes
from tests.unit.stores.postgres.conftest import CheckBooks, Plain


def new_job(**options: Any) -> NewJob:
    return NewJob(**{"id": new_id(), "task": "greet", "payload": b"{}", **options})


def count(plain: Plain, table: str) -> int:
    found = plain.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert found is not None
    return int(found[0])


async def claim_all(store: PostgresStore) -> list[Settlement]:
    await store.heartbeat(WorkerRecord(id="w", lease_s=600.0))
    got = await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=1000)))
    return [Settlement(id=one.id, token=one.token, change=Change.COMPLETE, keep_s=0.0) for one in got.deliveries]


async def test_a_record_that_somebody_has_locked_is_pruned_later(
    store: PostgresStore, plain: Plain, check_books: CheckBooks
) -> None:
    jobs = [new_job() for _ in range(3)]
    await store.enqueue(jobs)
    await store.exchange(Exchange(settlements=await claim_all(store)))
    store.clock_offset_s += 1
    with plain.transaction():
        plain.execute("SELECT 1 FROM holdfast_jobs WHERE id = %s FOR UPDATE", (jobs[1].id,))
        assert await store.prune(100) == 2
    assert await store.prune(100) == 1
    assert count(plain, "holdfast_kept") == 0
    check_books()


async def test_what_is_left_over_stays_on_the_list(store: PostgresStore, plain: Plain, check_books: CheckBooks) -> None:
    await store.enqueue([new_job() for _ in range(10)])
    await store.exchange(Exchange(settlements=await claim_all(store)))  # one entry for all of them
    assert count(plain, "holdfast_kept") == 1
    store.clock_offset_s += 1
    assert [await store.prune(4) for _ in range(4)] == [4, 4, 2, 0]
    assert count(plain, "holdfast_jobs") == count(plain, "holdfast_kept") == 0
    check_books()


async def test_lanes_without_jobs_are_dropped_and_made_again(
    store: PostgresStore, plain: Plain, check_books: CheckBooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_FEW", 2)
    jobs = [new_job(task=f"t{n}") for n in range(5)]
    await store.enqueue(jobs)
    settlements = await claim_all(store)
    await store.exchange(Exchange(settlements=settlements[1:]))
    store.clock_offset_s += 1
    assert await store.prune(100) == 4
    assert count(plain, "holdfast_lanes") == 1
    again = [new_job(task=f"t{n}") for n in range(5)]
    assert await store.enqueue(again) == [Enqueued(job.id) for job in again]  # their numbers were known, and are gone
    assert {one.id for one in await claim_all(store)} == {job.id for job in again}
    check_books()


async def test_a_lane_into_which_somebody_enqueues_is_not_dropped(
    store: PostgresStore, plain: Plain, check_books: CheckBooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_FEW", 1)
    await store.enqueue([new_job()])
    await store.exchange(Exchange(settlements=await claim_all(store)))
    store.clock_offset_s += 1
    late = new_job()
    plain.execute("BEGIN")
    store.enqueue_now([late], plain)  # not committed yet
    assert await store.prune(100) == 1
    plain.execute("COMMIT")
    assert [one.id for one in await claim_all(store)] == [late.id]
    check_books()


async def test_many_who_enqueue_while_lanes_are_dropped_lose_nothing(
    store: PostgresStore, postgres_url: str, check_books: CheckBooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_FEW", 1)
    others = [PostgresStore(postgres_url) for _ in range(2)]
    is_over = False
    enqueued: list[str] = []

    async def produce(one: PostgresStore) -> None:
        for n in range(60):
            jobs = [new_job(task=f"t{n % 7}"), new_job(task=f"t{n % 5}", idempotency_key=new_id())]
            enqueued.extend(answer.id for answer in await one.enqueue(jobs) if answer.is_new)

    async def consume() -> list[str]:
        done: list[str] = []
        while not is_over or len(done) < len(enqueued):
            settlements = await claim_all(store)
            await store.exchange(Exchange(settlements=settlements))
            done += [one.id for one in settlements]
            store.clock_offset_s += 1
            await store.prune(1000)
        return done

    async with asyncio.timeout(50):
        consumer = asyncio.create_task(consume())
        await asyncio.gather(*(produce(one) for one in others))
        is_over = True
        done = await consumer
    assert len(enqueued) == 240
    assert sorted(done) == sorted(enqueued)
    check_books()
    for one in others:
        await one.close()


async def test_counts_and_tallies_are_summed_up_and_stay_the_same(
    store: PostgresStore, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_SUM_EVERY", 10_000)
    for n in range(20):
        await store.enqueue([new_job(task=f"t{n % 2}")])
        await store.exchange(Exchange(counts=[Count(30_000_000, "greet", "completed", n)]))
    before = await store.stats(since_minute=0)
    assert (count(plain, "holdfast_tallies"), count(plain, "holdfast_counts")) == (20, 20)
    await store.prune(1)
    assert (count(plain, "holdfast_tallies"), count(plain, "holdfast_counts")) == (2, 1)
    after = await store.stats(since_minute=0)
    assert (after.tallies, after.counts) == (before.tallies, before.counts)


async def test_a_sum_that_somebody_else_is_making_is_left_to_them(
    store: PostgresStore, plain: Plain, postgres_url: str
) -> None:
    await store.enqueue([new_job()])
    await store.enqueue([new_job()])
    with plain.transaction():
        plain.execute("SELECT 1 FROM holdfast_tallies LIMIT 1 FOR UPDATE")
        async with asyncio.timeout(5):
            await store.prune(1)
    assert [tally.n for tally in (await store.stats()).tallies] == [2]


async def test_nothing_is_left_of_the_notes_of_what_completes(store: PostgresStore, check_books: CheckBooks) -> None:
    ids = await end_with_notes(store, check_books)
    assert [one.notes is not None for one in await store.get(ids) if one] == [False] * 4 + [True]
    await store.change(Operation(change=Change.REMOVE, ids=ids))
    check_books()
