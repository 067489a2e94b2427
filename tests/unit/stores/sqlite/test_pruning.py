"""What nobody needs any more goes: lanes, tallies, claims and news of workers that are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Exchange, Operation, Query, Settlement, WorkerRecord
from holdfast.stores import lanes as lanes_module
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite import marks as marks_module
from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.enqueue import add_jobs
from holdfast.stores.sqlite.prune import prune_jobs
from holdfast.types import Change, NewJob
from tests.unit.stores.noting import end_with_notes
from tests.unit.stores.sqlite.conftest import CheckBooks


def rows_of(path: Path, table: str) -> int:
    db = apsw.Connection(str(path))
    (n,) = db.execute(f"SELECT count(*) FROM holdfast_{table}").fetchall()[0]
    db.close()
    assert isinstance(n, int)
    return n


def jobs_of(users: range, **options: Any) -> list[NewJob]:
    return [NewJob(id=new_id(), task="mail", payload=b"{}", gates=(f"user:{n}",), **options) for n in users]


async def claimed(store: SqliteStore, limit: int = 1000, **caps: int) -> list[Settlement]:
    claim = Claim(
        worker="w", token=new_token(), limit=limit, caps={name.replace("_", ":"): n for name, n in caps.items()}
    )
    got = (await store.exchange(Exchange(claim=claim))).deliveries
    return [Settlement(id=one.id, token=one.token, change=Change.COMPLETE, keep_s=10.0) for one in got]


async def run_all(store: SqliteStore) -> int:
    n = 0
    while done := await claimed(store):
        assert all((await store.exchange(Exchange(settlements=done))).settled)
        n += len(done)
    return n


async def prune_all(store: SqliteStore) -> None:
    while await store.prune(1000):
        continue


@pytest.fixture(params=[2, 1000])
def most_whole(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Few lanes are all known, many are not: the same must be true of both."""
    number: int = request.param
    monkeypatch.setattr(lanes_module, "_MOST_WHOLE", number)
    monkeypatch.setattr(lanes_module, "_MOST_KNOWN", 40 * number)
    return number


@pytest.mark.usefixtures("most_whole")
async def test_lanes_and_tallies_go_with_their_last_job(
    store: SqliteStore, path: Path, check_books: CheckBooks
) -> None:
    await store.heartbeat(WorkerRecord(id="w", lease_s=600.0))
    await store.enqueue(jobs_of(range(300)))
    await store.enqueue(jobs_of(range(7), delay_s=3600.0))
    assert await run_all(store) == 300
    store.clock_offset_s += 11
    await prune_all(store)
    assert (rows_of(path, "lanes"), rows_of(path, "tallies")) == (7, 7)
    check_books()
    await store.enqueue(jobs_of(range(5, 10)))
    assert await run_all(store) == 5
    check_books()
    assert {record.task for record in (await store.find(Query(task="mail"))).items} == {"mail"}


@pytest.mark.usefixtures("most_whole")
async def test_a_lane_that_another_process_dropped_is_made_again(
    store: SqliteStore, path: Path, check_books: CheckBooks
) -> None:
    other = SqliteStore(path)
    await store.heartbeat(WorkerRecord(id="w", lease_s=600.0))
    for _ in range(3):
        await store.enqueue(jobs_of(range(5)))
        await other.enqueue(jobs_of(range(5, 8)))
        assert await run_all(store) == 8
        for one in (store, other):
            one.clock_offset_s += 11
        await other.prune(100)
        assert rows_of(path, "lanes") == 0
        await store.enqueue(jobs_of(range(3)))  # known here under a number that is nobody's now
        await other.enqueue(jobs_of(range(4)))
        assert len((await store.find(Query(task="mail", queue="default"))).items) == 7
        check_books()
        assert await run_all(store) == 7
        for one in (store, other):
            one.clock_offset_s += 11
        await prune_all(store)
    await other.close()


async def test_a_prune_and_an_enqueue_in_one_transaction_do_not_lose_the_lane(
    store: SqliteStore, check_books: CheckBooks
) -> None:
    await store.heartbeat(WorkerRecord(id="w", lease_s=600.0))
    await store.enqueue(jobs_of(range(2)))
    assert await run_all(store) == 2
    store.clock_offset_s += 11
    writer = store._open().writer
    first, second = jobs_of(range(1)), jobs_of(range(2))
    writer.write_now(lambda batch: (add_jobs(batch, first), prune_jobs(batch, 10), add_jobs(batch, second)))
    check_books()
    assert len((await store.find(Query(task="mail"))).items) == 3
    assert await run_all(store) == 3


async def test_a_prune_that_is_rolled_back_leaves_the_lanes_as_they_were(
    store: SqliteStore, path: Path, check_books: CheckBooks
) -> None:
    await store.heartbeat(WorkerRecord(id="w", lease_s=600.0))
    await store.enqueue(jobs_of(range(3)))
    assert await run_all(store) == 3
    store.clock_offset_s += 11

    def fail(batch: Batch) -> None:
        prune_jobs(batch, 10)
        batch.lane_of(("default", "mail", ("user:9",)))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store._open().writer.write_now(fail)
    assert rows_of(path, "lanes") == 3
    await store.enqueue(jobs_of(range(5)))
    check_books()
    assert await run_all(store) == 5


@pytest.mark.usefixtures("most_whole")
async def test_a_shut_gate_is_passed_over_among_many_lanes(store: SqliteStore) -> None:
    await store.heartbeat(WorkerRecord(id="w", lease_s=600.0))
    await store.enqueue(jobs_of(range(100)))
    shut = {f"user_{n}": 0 for n in range(99)}
    assert len(await claimed(store, **shut)) == 1
    assert len(await claimed(store, **shut)) == 0
    assert len(await claimed(store, task_mail=0)) == 0
    assert len(await claimed(store)) == 99


async def test_where_too_many_lanes_are_shut_the_next_claims_go_on(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("_MOST_WHOLE", 10), ("_MOST_LOOKED_INTO", 4), ("_MOST_PASSED_OVER", 16)):
        monkeypatch.setattr(lanes_module, name, number)
    await store.heartbeat(WorkerRecord(id="w", lease_s=600.0))
    await store.enqueue(jobs_of(range(100)))
    caps = {f"user:{n}": 0 for n in range(99)}
    answers = [
        await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=5, caps=caps))) for _ in range(7)
    ]
    assert [len(answer.deliveries) for answer in answers] == [0] * 6 + [1]
    assert all(answer.next_due_s is not None and answer.next_due_s < 0.1 for answer in answers[:6])


async def test_the_claims_of_workers_that_are_gone_are_forgotten(store: SqliteStore, path: Path) -> None:
    for n in range(5):
        await store.heartbeat(WorkerRecord(id=f"w{n}", lease_s=600.0))
        await store.enqueue(jobs_of(range(1)))
        claim = Claim(worker=f"w{n}", token=new_token(), limit=1)
        (one,) = (await store.exchange(Exchange(claim=claim))).deliveries
        await store.exchange(Exchange(settlements=[Settlement(id=one.id, token=one.token, change=Change.COMPLETE)]))
        if n:
            await store.heartbeat(WorkerRecord(id=f"w{n}", lease_s=0.0))
    await store.prune(10)
    assert rows_of(path, "claims") == 1  # of the one that lives: it may be sent again


async def test_a_held_claim_of_a_worker_that_is_gone_stays_for_who_takes_it_over(store: SqliteStore) -> None:
    await store.heartbeat(WorkerRecord(id="w", lease_s=600.0))
    await store.enqueue(jobs_of(range(1)))
    assert len(await claimed(store)) == 1
    await store.heartbeat(WorkerRecord(id="w", lease_s=0.0))
    await store.prune(10)
    await store.heartbeat(WorkerRecord(id="heir", lease_s=600.0))
    assert len(await store.reclaim("heir", new_token(), 10)) == 1


async def test_what_was_to_be_told_to_a_worker_that_is_gone_is_forgotten(store: SqliteStore, path: Path) -> None:
    for worker in ("w", "gone"):
        await store.heartbeat(WorkerRecord(id=worker, lease_s=600.0))
        await store.enqueue(jobs_of(range(1)))
        claim = Claim(worker=worker, token=new_token(), limit=1)
        (one,) = (await store.exchange(Exchange(claim=claim))).deliveries
        await store.change(Operation(change=Change.CANCEL, ids=[one.id]))
    assert rows_of(path, "cancelled") == 2
    await store.heartbeat(WorkerRecord(id="gone", lease_s=0.0))
    await store.prune(10)
    assert rows_of(path, "cancelled") == 1


async def test_marks_go_with_the_last_job_of_their_block(
    store: SqliteStore, path: Path, check_books: CheckBooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks_module, "_SWEPT_AT_ONCE", 5)  # so that it takes several turns
    jobs = [NewJob(id=new_id(), task="mail", payload=b"{}", tenant=f"t{n // 100}") for n in range(1000)]
    await store.enqueue(jobs)
    await store.change(Operation(change=Change.CANCEL, ids=[job.id for job in jobs[:900]], keep_s=0.0))
    check_books()
    for _ in range(8):
        await store.prune(1000)
    db = apsw.Connection(str(path))
    assert {block for (block,) in db.execute("SELECT block FROM holdfast_marks")} == {3}
    db.close()
    check_books()
    assert len((await store.find(Query(tenant="t9", limit=200))).items) == 100
    assert (await store.find(Query(tenant="t1"))).items == []


async def test_nothing_is_left_of_the_notes_of_what_completes(store: SqliteStore, check_books: CheckBooks) -> None:
    ids = await end_with_notes(store, check_books)
    assert [one.notes is not None for one in await store.get(ids) if one] == [False] * 4 + [True]
    await store.change(Operation(change=Change.REMOVE, ids=ids))
    check_books()
