"""Claims of many at once, by the index, in their order."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import UUID

import pytest

from holdfast.clock import new_id, new_secret, new_token
from holdfast.ports import Claim, Enqueued, Exchange, Operation, Settlement, ValueChange, WorkerRecord
from holdfast.stores.picking import Head, pick
from holdfast.stores.postgres import PostgresStore, enqueue, writer
from holdfast.stores.postgres.arrays import ints
from holdfast.stores.postgres.claim import _TAKE
from holdfast.stores.postgres.connection import address_of, connect
from holdfast.stores.postgres.db import Db
from holdfast.types import Change, NewJob
from tests.unit.stores.postgres.conftest import CheckBooks, Plain


def new_job(**options: Any) -> NewJob:
    return NewJob(**{"id": new_id(), "task": "greet", "payload": b"{}", **options})


async def work(url: str, worker: str, n: int, done: list[str]) -> None:
    """A worker with a store of its own: claim and complete until so many are done by all."""
    store = PostgresStore(url)
    await store.heartbeat(WorkerRecord(id=worker, lease_s=60.0))
    settlements: list[Settlement] = []
    while len(done) < n:
        token = new_token()
        claim = Claim(worker=worker, token=token, limit=7)
        answer = await store.exchange(Exchange(settlements=settlements, claim=claim))
        assert all(answer.settled)
        done += [one.id for one in settlements]
        settlements = [Settlement(id=one.id, token=token, change=Change.COMPLETE) for one in answer.deliveries]
    await store.close()


@pytest.mark.parametrize("n_lanes", [1, 5, 40])
async def test_stores_that_race_share_the_jobs_out_without_a_double(
    store: PostgresStore, postgres_url: str, check_books: CheckBooks, n_lanes: int
) -> None:
    jobs = [new_job(task=f"t{n % n_lanes}", priority=n % 3) for n in range(300)]
    await store.enqueue(jobs)
    done: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: asyncio.run(work(postgres_url, f"w{n}", len(jobs), done))) for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 50.0)
    assert sorted(done) == sorted(job.id for job in jobs)
    check_books()


async def test_of_each_lane_no_more_heads_are_read_than_may_be_taken(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def spy(heads: list[Head], *rest: Any) -> Any:
        read.append(len(heads))
        return pick(heads, *rest)

    monkeypatch.setattr("holdfast.stores.postgres.claim.pick", spy)
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    await store.enqueue([new_job(task=f"t{n % 50}") for n in range(50 * 20)])
    claim = Claim(worker="w", token=new_token(), limit=32, per_lane=2)
    assert len((await store.exchange(Exchange(claim=claim))).deliveries) == 32
    assert read == [50 * 2]


@pytest.mark.parametrize("n_lanes", [1, 2])
async def test_what_others_hold_is_made_up_for_within_what_a_lane_may_give(
    store: PostgresStore, plain: Plain, n_lanes: int
) -> None:
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    jobs = [new_job(task=f"t{n % n_lanes}") for n in range(6 * n_lanes)]
    await store.enqueue(jobs)
    plain.execute("BEGIN")
    held = [job.id for job in jobs[:n_lanes]]
    plain.execute("SELECT 1 FROM holdfast_jobs WHERE id = ANY (%s) FOR UPDATE", (held,))
    claim = Claim(worker="w", token=new_token(), limit=30, per_lane=2)
    got = [one.id for one in (await store.exchange(Exchange(claim=claim))).deliveries]
    plain.execute("ROLLBACK")
    assert got == [job.id for job in jobs[n_lanes : 3 * n_lanes]]


async def test_a_batch_that_is_all_known_writes_nothing(store: PostgresStore, plain: Plain) -> None:
    jobs = [new_job(id=str(UUID(bytes=new_secret(), version=4)), task=f"t{n % 3}") for n in range(40)]
    await store.enqueue(jobs)
    sequence = "SELECT pg_get_serial_sequence('holdfast_jobs', 'seq')"
    ((name,),) = plain.execute(sequence).fetchall()
    before = plain.execute(f"SELECT last_value FROM {name}".encode()).fetchall()
    for some in (jobs[:20], jobs[20:], jobs[:1]):
        assert not any(answer.is_new for answer in await store.enqueue(some))
    assert plain.execute(f"SELECT last_value FROM {name}".encode()).fetchall() == before
    answers = await store.enqueue([*jobs, new := new_job(id=str(UUID(bytes=new_secret(), version=4))), new])
    assert [answer.is_new for answer in answers] == [*[False] * 40, True, False]


async def test_a_lane_whose_first_jobs_others_hold_does_not_hide_the_next_lane(
    store: PostgresStore, plain: Plain, check_books: CheckBooks
) -> None:
    first = [new_job(task="first", priority=9) for _ in range(5)]
    then = [new_job(task="then") for _ in range(5)]
    await store.enqueue([*first, *then])
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    claim = Claim(worker="w", token=new_token(), limit=5)
    with plain.transaction():
        plain.execute("SELECT 1 FROM holdfast_jobs WHERE priority = 9 FOR UPDATE")
        answer = await store.exchange(Exchange(claim=claim))
        assert [one.id for one in answer.deliveries] == [job.id for job in then]
    check_books()


async def test_a_claim_from_a_backlog_looks_only_at_the_first_of_it(
    store: PostgresStore, plain: Plain, postgres_url: str
) -> None:
    await store.enqueue([new_job() for _ in range(3000)])
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    line = connect(address_of(postgres_url, "", 10.0), is_hot=True)
    values = {"lanes": ints([1]), "limits": ints([5]), "worker": "w", "token": new_token()}
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {_TAKE}"
    ((plan,),) = Db(line, lambda: 0.0).rows(explain, **values, is_alone=False, is_more=False, newest=99)
    line.close()
    scans = list(_nodes(plan[0]["Plan"], "holdfast_ready"))
    assert any(node.get("Index Name") == "holdfast_ready_first" for node in scans)
    assert {node["Node Type"] for node in scans} <= {"Index Scan", "Index Only Scan", "Tid Scan", "ModifyTable"}
    assert max(node["Actual Rows"] for node in scans) <= 5
    assert plan[0]["Plan"]["Shared Hit Blocks"] < 400


def _nodes(plan: dict[str, Any], table: str) -> Any:
    if plan.get("Relation Name") == table:
        yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child, table)


async def test_values_come_to_light_in_the_order_of_their_versions(store: PostgresStore, postgres_url: str) -> None:
    """Nobody who has seen a version is told of a lower one later."""
    stores = [PostgresStore(postgres_url) for _ in range(3)]
    told: list[int] = []

    async def change(one: PostgresStore, key: str) -> None:
        version = 0
        for n in range(40):
            answer = await one.exchange(Exchange(changes=[ValueChange(key, version, b"%d" % n)], seen=version))
            assert list(answer.changed) == [True]
            version = next(value.version for value in answer.values if value.key == key)

    async def read() -> None:
        seen = 0
        while len(told) < 120:
            versions = [value.version for value in (await store.exchange(Exchange(seen=seen))).values]
            told.extend(versions)
            seen = max([seen, *versions])
            if seen == 120:
                return

    async with asyncio.timeout(50):
        await asyncio.gather(read(), *(change(one, f"k{n}") for n, one in enumerate(stores)))
    assert told == sorted(set(told))
    for one in stores:
        await one.close()


async def test_jobs_that_are_claimed_cancelled_and_due_at_one_time_leave_the_books_right(
    store: PostgresStore, postgres_url: str, check_books: CheckBooks
) -> None:
    jobs = [new_job(delay_s=0.0 if n % 2 else 30.0) for n in range(400)]
    await store.enqueue(jobs)
    other = PostgresStore(postgres_url)
    for one in (store, other):
        one.clock_offset_s = 60.0
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    claimed: list[str] = []

    async def claim() -> None:
        for _ in range(60):
            answer = await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=7)))
            claimed.extend(one.id for one in answer.deliveries)

    async def cancel() -> list[str]:
        done = []
        for n in range(0, 400, 5):
            ids = [job.id for job in jobs[n : n + 5]]
            done += [
                one.id for one in await other.change(Operation(change=Change.CANCEL, ids=ids[::-1])) if one.is_done
            ]
        return done

    async with asyncio.timeout(50):
        _, cancelled = await asyncio.gather(claim(), cancel())
    assert sorted(cancelled) == sorted(job.id for job in jobs)
    assert len(claimed) == len(set(claimed))
    check_books()
    await other.close()


async def test_more_jobs_than_one_statement_takes_are_all_there_or_none(
    store: PostgresStore, check_books: CheckBooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueue, "AT_ONCE", 10)
    monkeypatch.setattr(writer, "AT_ONCE", 10)
    jobs = [new_job() for _ in range(35)]
    again = [*jobs[:3], *(new_job() for _ in range(20)), jobs[1]]
    assert await store.enqueue(jobs) == [Enqueued(job.id) for job in jobs]
    assert [one.is_new for one in await store.enqueue(again)] == [False] * 3 + [True] * 20 + [False]
    with_keys = [new_job(idempotency_key=f"k{n}") for n in range(25)]
    assert all(one.is_new for one in await store.enqueue(with_keys))
    clash = [*(new_job(idempotency_key=f"x{n}") for n in range(25)), new_job(idempotency_key="k3", payload=b"[]")]
    assert not any(one.is_new for one in await store.enqueue(clash))
    assert (await store.stats()).tallies[0].n == 35 + 20 + 25
    check_books()


@pytest.mark.parametrize("is_delayed", [False, True])
async def test_a_job_in_a_lane_that_is_new_to_this_process_has_its_turn_by_its_priority(
    store: PostgresStore, postgres_url: str, is_delayed: bool
) -> None:
    async def claimed() -> list[str]:
        wish = Claim(worker="w", token=new_token(), limit=1)
        return [one.id for one in (await store.exchange(Exchange(claim=wish))).deliveries]

    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    await store.enqueue([new_job(), new_job()])
    assert len(await claimed()) == 1  # it knows one lane from now on
    urgent = new_job(task="urgent", priority=9)
    other = PostgresStore(postgres_url)
    await other.enqueue([urgent, *([new_job(delay_s=0.001)] if is_delayed else [])])
    await other.close()
    assert await claimed() == [urgent.id]
