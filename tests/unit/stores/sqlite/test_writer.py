"""Group commit: together where it can be, and nobody fails for a neighbour."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from holdfast.clock import SystemClock, new_id, new_token
from holdfast.errors import StoreError
from holdfast.ports import Claim, Enqueued, Exchange, Query, Settlement, WorkerRecord
from holdfast.stores.pen import Ask, Pen
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.files import files_of
from holdfast.stores.sqlite.turns import Turn
from holdfast.testing import ManualClock
from holdfast.types import Attempt, Change, FailureType, NewJob
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


class TimeIsUp(Exception):
    """What a signal's handler raises in a request that took too long."""


@pytest.mark.parametrize("has_heir", [False, True])
def test_a_caller_that_is_interrupted_while_it_waits_leaves_the_pen_to_others(path: Path, has_heir: bool) -> None:
    store = SqliteStore(path)
    store.enqueue_now([new_job()])
    pen = store._open().writer._pen
    given_up = new_job()

    def is_up(*_: object) -> None:
        raise TimeIsUp

    def wait_for(n_waiting: int) -> None:
        while len(pen._waiting) < n_waiting:
            clock.sleep(0.001)

    clock = SystemClock()
    before = signal.signal(signal.SIGALRM, is_up)
    threads = [threading.Thread(target=store.enqueue_now, args=([new_job()],)) for _ in range(3)]
    try:
        with OtherProcess(path):
            threads[0].start()  # has the pen, and waits for the lock
            while pen._holder is None or pen._waiting:
                clock.sleep(0.001)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(TimeIsUp):
                store.enqueue_now([given_up])
            if has_heir:
                threads[1].start()
                wait_for(1)
        threads[2].start()
        for thread in threads if has_heir else (threads[0], threads[2]):
            thread.join(30.0)
            assert not thread.is_alive()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert asyncio.run(store.get([given_up.id])) == [None]
    assert store.enqueue_now([new_job()])[0].is_new
    asyncio.run(store.close())


def test_a_caller_that_is_interrupted_with_the_pen_in_its_hand_passes_it_on(path: Path) -> None:
    store = SqliteStore(path)
    store.enqueue_now([new_job()])
    pen = store._open().writer._pen
    first, second = Ask(None, [new_job()], None), Ask(None, [new_job()], None)
    second.woken = threading.Lock()
    second.woken.acquire()
    with pen._mutex:
        pen._waiting += [first, second]
        pen._holder = first
    pen._withdraw(first)
    assert second.woken.acquire(blocking=False)
    pen._write_waiting(second)
    assert (second.is_done, second.error) == (True, None)
    assert store._open().writer._pen._holder is None
    asyncio.run(store.close())


async def test_a_settlement_that_cannot_be_written_names_its_job_and_harms_no_other(
    store: SqliteStore, check_books: CheckBooks
) -> None:
    await store.enqueue([new_job() for _ in range(3)])
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    got = (await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=3)))).deliveries
    attempt = Attempt(
        number=1, started_at=1.0, ended_at=2.0, outcome=Change.BURY, failure_type=FailureType.SYSTEM, message=UNWRITABLE
    )
    first, second, third = (Settlement(id=one.id, token=one.token, change=Change.BURY) for one in got)
    for bad in (replace(second, reason=UNWRITABLE), replace(second, attempt=attempt)):
        with pytest.raises(StoreError, match=f"job {second.id}: its settlement cannot be written") as caught:
            await store.exchange(Exchange(settlements=[first, bad, third]))
        assert getattr(caught.value, "job_id", None) == second.id
    assert (await store.exchange(Exchange(settlements=[first, second, third]))).settled == [True] * 3
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
    first.execute("PRAGMA journal_mode = WAL")
    first.execute("CREATE TABLE mine (x)")
    files = files_of(str(path))
    assert files is not None
    mine, other = Turn(str(path), files, clock), Turn(str(path), files, clock)
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


class Gate:
    """A `write` for a pen, which can be held up, and made to fail."""

    def __init__(self) -> None:
        self.is_reached, self.is_open = threading.Event(), threading.Event()
        self.errors: list[BaseException | None] = []
        """What the next batches fail with."""
        self.sizes: list[int] = []
        """Of the batches."""

    def write(self, asks: Sequence[Ask]) -> None:
        self.sizes.append(len(asks))
        self.is_reached.set()
        assert self.is_open.wait(30.0)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        for ask in asks:
            ask.answer, ask.is_done = "written", True


def a_run() -> None:
    """What is asked for; the gate does not run it."""


async def test_what_the_pens_thread_fails_at_is_told_to_those_who_asked_and_it_goes_on() -> None:
    gate = Gate()
    gate.is_open.set()
    gate.errors.append(ZeroDivisionError("a bug"))
    pen = Pen("test", "here", gate.write)
    async with asyncio.timeout(10.0):
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await pen.ask(a_run)
        assert await pen.ask(a_run) == "written"
        assert pen.ask_now(a_run) == "written"
        await asyncio.to_thread(pen.close)


async def test_a_caller_in_a_batch_that_the_pens_thread_fails_at_is_told_so_and_does_not_write_itself() -> None:
    gate = Gate()
    pen = Pen("test", "here", gate.write)
    async with asyncio.timeout(10.0):
        first = asyncio.ensure_future(pen.ask(a_run))
        await asyncio.to_thread(gate.is_reached.wait)  # the thread writes, and the others make the next batch
        other = asyncio.ensure_future(pen.ask(a_run))
        await asyncio.sleep(0)  # noqa: TID251 - lets it ask
        caller = asyncio.ensure_future(asyncio.to_thread(pen.ask_now, a_run))
        while len(pen._waiting) < 2:
            await asyncio.sleep(0)  # noqa: TID251 - until the caller has asked
        gate.errors += [None, ZeroDivisionError("a bug")]
        gate.is_open.set()
        assert await first == "written"
        for one in (other, caller):
            with pytest.raises(ZeroDivisionError, match="a bug"):
                await one
        assert gate.sizes == [1, 2]
        await asyncio.to_thread(pen.close)


async def test_what_a_caller_fails_at_is_told_to_that_caller_alone() -> None:
    gate = Gate()
    pen = Pen("test", "here", gate.write)
    async with asyncio.timeout(10.0):
        caller = asyncio.ensure_future(asyncio.to_thread(pen.ask_now, a_run))
        await asyncio.to_thread(gate.is_reached.wait)
        other = asyncio.ensure_future(pen.ask(a_run))
        await asyncio.sleep(0)  # noqa: TID251 - lets it ask
        gate.errors.append(ZeroDivisionError("a bug"))
        gate.is_open.set()
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await caller
        assert await other == "written"
        await asyncio.to_thread(pen.close)


@pytest.mark.parametrize("has_other", [False, True])
async def test_a_pen_that_is_closed_while_a_caller_writes_answers_those_who_wait_behind(has_other: bool) -> None:
    gate = Gate()
    gate.is_open.set()
    pen = Pen("test", "here", gate.write)
    async with asyncio.timeout(10.0):
        await pen.ask(a_run)
        thread = pen._thread
        assert thread is not None
        gate.is_open.clear()
        gate.is_reached.clear()
        asks = [asyncio.ensure_future(asyncio.to_thread(pen.ask_now, a_run))]
        await asyncio.to_thread(gate.is_reached.wait)
        if has_other:
            asks.append(asyncio.ensure_future(pen.ask(a_run)))
            await asyncio.sleep(0)  # noqa: TID251 - lets it ask
        closing = asyncio.ensure_future(asyncio.to_thread(pen.close))
        await asyncio.to_thread(thread.join, 0.2)  # one that is wrong has ended by then
        gate.is_open.set()
        assert await asyncio.gather(*asks) == ["written"] * len(asks)
        await closing
        assert not thread.is_alive()
        with pytest.raises(StoreError, match="closed"):
            await pen.ask(a_run)


async def test_a_pen_whose_thread_cannot_be_started_serves_the_next_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    gate = Gate()
    gate.is_open.set()
    pen = Pen("test", "here", gate.write)
    async with asyncio.timeout(10.0):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError, match="start new thread"):
                await pen.ask(a_run)
            assert pen.ask_now(a_run) == "written"
        assert await pen.ask(a_run) == "written"
        await asyncio.to_thread(pen.close)
