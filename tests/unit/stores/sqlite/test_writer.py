"""Group commit: together where it can be, and nobody fails for a neighbour."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import apsw
import pytest

from holdfast.clock import new_id
from holdfast.errors import StoreError
from holdfast.ports import Enqueued, Query
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.turns import Turn
from holdfast.testing import ManualClock
from holdfast.types import NewJob
from tests.unit.stores.sqlite.conftest import CheckBooks

UNWRITABLE = "lone \ud800 surrogate"


def new_job(task: str = "greet", payload: bytes = b"{}") -> NewJob:
    return NewJob(id=new_id(), task=task, payload=payload)


class OtherProcess:
    """Holds the write lock, as another process would."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))

    def __enter__(self) -> OtherProcess:
        self._db.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, *_: object) -> None:
        self._db.execute("ROLLBACK")
        self._db.close()


async def test_what_gathers_while_the_lock_is_taken_is_one_commit(store: SqliteStore, path: Path) -> None:
    assert store.capabilities
    await store.enqueue([new_job()])
    frames = path.with_name("jobs.db-wal").stat().st_size
    with OtherProcess(path):
        asks = [asyncio.ensure_future(store.enqueue([new_job()])) for _ in range(300)]
        for _ in range(5):
            await asyncio.sleep(0)  # noqa: TID251 - lets the asks reach the writer
    answers = await asyncio.gather(*asks)
    assert all(answer[0].is_new for answer in answers)
    pages_written = (path.with_name("jobs.db-wal").stat().st_size - frames) / 4096
    assert pages_written < 300  # a commit for each would be three pages each


async def test_one_that_cannot_be_written_fails_alone(store: SqliteStore, path: Path, check_books: CheckBooks) -> None:
    assert store.capabilities
    with OtherProcess(path):
        asks = [asyncio.ensure_future(store.enqueue([new_job(UNWRITABLE if n == 3 else "greet")])) for n in range(8)]
        for _ in range(5):
            await asyncio.sleep(0)  # noqa: TID251 - lets the asks reach the writer
    answers = await asyncio.gather(*asks, return_exceptions=True)
    assert [isinstance(answer, UnicodeEncodeError) for answer in answers] == [n == 3 for n in range(8)]
    assert len((await store.find(Query())).items) == 7
    check_books()


async def test_a_call_is_stored_whole_or_not_at_all(store: SqliteStore, check_books: CheckBooks) -> None:
    with pytest.raises(UnicodeEncodeError):
        store.enqueue_now([new_job("new"), new_job(UNWRITABLE)])
    assert (await store.find(Query())).items == []
    job = new_job("new")  # its lane was rolled back with the first call
    assert store.enqueue_now([job]) == [Enqueued(job.id)]
    assert [tally.task for tally in (await store.stats()).tallies] == ["new"]
    check_books()


async def test_threads_that_enqueue_side_by_side_each_get_their_own_answer(
    store: SqliteStore, check_books: CheckBooks
) -> None:
    jobs = [[new_job() for _ in range(20)] for _ in range(8)]
    answers: dict[int, list[Enqueued]] = {}

    def enqueue(number: int) -> None:
        answers[number] = [store.enqueue_now([job])[0] for job in jobs[number]]

    threads = [threading.Thread(target=enqueue, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert all(answers[number] == [Enqueued(job.id) for job in jobs[number]] for number in range(8))
    check_books()


def test_who_waits_too_long_for_the_lock_is_told(path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(path, clock=clock)
    assert store.capabilities
    began_at = clock.monotonic()
    with OtherProcess(path), pytest.raises(StoreError, match="another connection has been writing for 10 s"):
        store.enqueue_now([new_job()])
    assert 10.0 < clock.monotonic() - began_at < 10.1
    assert all(0.0002 <= sleep <= 0.003 for sleep in clock.sleeps)
    assert store.enqueue_now([new_job()])[0].is_new
    asyncio.run(store.close())


def test_who_has_just_written_pauses_for_one_who_waits(path: Path) -> None:
    clock = ManualClock()
    first, second = apsw.Connection(str(path)), apsw.Connection(str(path))
    mine, other = Turn(str(path), clock), Turn(str(path), clock)
    mine.begin(first)
    mine.end(first)
    mine.begin(first)
    assert clock.sleeps == []  # nobody waits
    with pytest.raises(StoreError):
        other.begin(second)
    mine.end(first)
    other._lock_queue()
    clock.sleeps.clear()
    mine.begin(first)
    assert len(clock.sleeps) == 1
    mine.end(first)
    other._leave_queue()
    for turn, db in ((mine, first), (other, second)):
        turn.close()
        db.close()
