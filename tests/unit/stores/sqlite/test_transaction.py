"""A job's own transaction: what it may not do, and how long it may take."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.clock import new_id, new_token
from holdfast.errors import IllegalChange, LeaseLost, StoreError
from holdfast.ports import Claim, Exchange, Settlement, WorkerRecord
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.transaction import JobTransaction
from holdfast.stores.sqlite.turns import Turn
from holdfast.testing import ManualClock
from holdfast.types import Change, JobState, NewJob
from tests.unit.stores.sqlite.conftest import CheckBooks


@pytest.fixture
def orders(path: Path) -> apsw.Connection:
    """A table of the user's, and a look at it from outside."""
    db = apsw.Connection(str(path))  # not sqlite3: two SQLite libraries in one process do not see each other's locks
    db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
    return db


async def settlement_of(store: SqliteStore, change: Change = Change.COMPLETE) -> Settlement:
    await store.enqueue([NewJob(id=new_id(), task="greet", payload=b"{}")])
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    got = await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=1)))
    return Settlement(id=got.deliveries[0].id, token=got.deliveries[0].token, change=change)


async def state_of(store: SqliteStore, settlement: Settlement) -> JobState:
    record = (await store.get([settlement.id]))[0]
    assert record is not None
    return record.state


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("COMMIT", "BEGIN, COMMIT and ROLLBACK"),
        ("ROLLBACK", "BEGIN, COMMIT and ROLLBACK"),
        ("BEGIN", "BEGIN, COMMIT and ROLLBACK"),
        ("END", "BEGIN, COMMIT and ROLLBACK"),
        ("INSERT INTO orders VALUES (9, 'x'); COMMIT", "BEGIN, COMMIT and ROLLBACK"),
        ("SAVEPOINT mine", "savepoints"),
        ("ATTACH 'other.db' AS other", "attached"),
        ("PRAGMA journal_mode = DELETE", "pragmas"),
        ("UPDATE holdfast_jobs SET state = 'queued'", "holdfast_jobs is Holdfast's own table"),
        ("DELETE FROM Holdfast_Jobs", "Holdfast's own table"),
        ("DROP TABLE holdfast_workers", "holdfast_workers is Holdfast's own table"),
        ("CREATE TRIGGER t AFTER UPDATE ON holdfast_jobs BEGIN DELETE FROM orders; END", "Holdfast's own table"),
        ("CREATE INDEX i ON holdfast_jobs (user)", "Holdfast's own table"),
        ("CREATE TEMP TABLE orders (id)", "temporary tables"),
        ("CREATE TABLE temp.scratch (id)", "temporary tables"),
        ("CREATE TEMP VIEW orders AS SELECT 1", "temporary tables, views"),
        ("CREATE TEMP TRIGGER t AFTER INSERT ON orders BEGIN DELETE FROM orders; END", "temporary tables"),
        ("CREATE VIRTUAL TABLE temp.words USING fts5 (text)", "temporary tables"),
        ("INSERT INTO nowhere VALUES (1)", "no such table"),
        ("SELEC 1", "syntax error"),
    ],
)
async def test_a_statement_that_is_not_for_it_is_refused_and_undoes_all(
    store: SqliteStore, orders: apsw.Connection, sql: str, message: str
) -> None:
    settlement = await settlement_of(store)
    with pytest.raises(StoreError, match=message), store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
        tx.execute(sql)
    assert orders.execute("SELECT count(*) FROM orders").fetchall() == [(0,)]
    assert await state_of(store, settlement) is JobState.RUNNING
    orders.close()


async def test_reads_before_the_first_write_leave_the_lock_to_others(
    store: SqliteStore, orders: apsw.Connection
) -> None:
    settlement = await settlement_of(store)
    with store.transaction(settlement, 5.0) as tx:
        assert tx.execute("SELECT * FROM orders") == []
        orders.execute("INSERT INTO orders VALUES (1, 'Ada')")
        assert tx.execute("SELECT name FROM orders WHERE id = :id", {"id": 1}) == [("Ada",)]
        tx.executemany("INSERT INTO orders VALUES (?, ?)", [(2, "Bob"), (3, "Cy")])
        with pytest.raises(apsw.BusyError):
            orders.execute("INSERT INTO orders VALUES (4, 'Di')")
    assert orders.execute("SELECT count(*) FROM orders").fetchall() == [(3,)]
    assert await state_of(store, settlement) is JobState.COMPLETED
    orders.close()


async def test_a_transaction_that_was_committed_before_is_not_committed_again(
    store: SqliteStore, orders: apsw.Connection
) -> None:
    settlement = await settlement_of(store)
    with store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders (name) VALUES ('Ada')")
    with pytest.raises(LeaseLost), store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders (name) VALUES ('Ada')")
    assert orders.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]
    orders.close()


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT OR ROLLBACK INTO orders VALUES (1, 'Bob')",
        "INSERT INTO watched VALUES (1)",  # whose trigger rolls back
        "SELECT broken()",  # which SQLite does not roll back, but nobody knows what the connection holds
    ],
)
@pytest.mark.parametrize("tries_more", [False, True])
async def test_after_a_statement_that_ended_the_transaction_nothing_more_is_written(
    store: SqliteStore, orders: apsw.Connection, check_books: CheckBooks, sql: str, tries_more: bool
) -> None:
    def broken(*_: Any) -> Any:
        raise apsw.CorruptError("a page is damaged")

    orders.execute("CREATE TABLE watched (id)")
    orders.execute("CREATE TRIGGER t BEFORE INSERT ON watched BEGIN SELECT RAISE(ROLLBACK, 'not this one'); END")
    settlement = await settlement_of(store)
    with pytest.raises(StoreError, match="a statement has failed"), store.transaction(settlement, 5.0) as tx:
        assert isinstance(tx, JobTransaction)
        tx._db.create_scalar_function("broken", broken)
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
        with pytest.raises(StoreError):
            tx.execute(sql)
        if tries_more:
            with pytest.raises(StoreError, match="a statement has failed"):
                tx.execute("INSERT INTO orders VALUES (2, 'Bob')")
            with pytest.raises(StoreError, match="a statement has failed"):
                tx.executemany("INSERT INTO orders VALUES (?, ?)", [(3, "Cy")])
    assert orders.execute("SELECT count(*) FROM orders").fetchall() == [(0,)]
    assert await state_of(store, settlement) is JobState.RUNNING
    check_books()
    orders.close()


async def test_a_statement_that_fails_by_itself_leaves_the_others_to_be_committed(
    store: SqliteStore, orders: apsw.Connection
) -> None:
    settlement = await settlement_of(store)
    with store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
        with pytest.raises(StoreError, match="UNIQUE"):
            tx.execute("INSERT INTO orders VALUES (1, 'Bob')")
    assert orders.execute("SELECT name FROM orders").fetchall() == [("Ada",)]
    assert await state_of(store, settlement) is JobState.COMPLETED
    orders.close()


async def test_the_lock_is_taken_back_from_one_that_holds_it_too_long(path: Path, orders: apsw.Connection) -> None:
    clock = ManualClock(auto=False)
    store = SqliteStore(path, clock=clock)
    settlement = await settlement_of(store)
    with pytest.raises(StoreError, match="longer than 5 s"), store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
        watchdog = next(thread for thread in threading.enumerate() if thread.name == "holdfast-transaction")
        clock.advance(5.1)
        await asyncio.to_thread(watchdog.join)
        orders.execute("INSERT INTO orders VALUES (2, 'Bob')")  # the lock is free before the block is left
        tx.execute("INSERT INTO orders VALUES (3, 'Cy')")
    assert orders.execute("SELECT id FROM orders").fetchall() == [(2,)]
    assert await state_of(store, settlement) is JobState.RUNNING
    orders.close()
    await store.close()


async def test_a_statement_that_never_ends_is_interrupted(path: Path, orders: apsw.Connection) -> None:
    clock = ManualClock(auto=False)
    store = SqliteStore(path, clock=clock)
    settlement = await settlement_of(store)

    def run() -> None:
        endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        with store.transaction(settlement, 5.0) as tx:
            tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
            loop.call_soon_threadsafe(clock.advance, 5.1)
            tx.execute(endless)

    loop = asyncio.get_running_loop()
    with pytest.raises(StoreError, match="longer than 5 s"):
        await asyncio.to_thread(run)
    assert await state_of(store, settlement) is JobState.RUNNING
    orders.close()
    await store.close()


async def test_rows_that_come_slowly_do_not_keep_the_lock_from_others(path: Path, orders: apsw.Connection) -> None:
    clock = ManualClock(auto=False)
    store = SqliteStore(path, clock=clock)
    settlement = await settlement_of(store)

    def rows() -> Iterator[tuple[int, str]]:
        yield (2, "Bob")
        watchdog = next(thread for thread in threading.enumerate() if thread.name == "holdfast-transaction")
        clock.advance(5.1)
        watchdog.join(30.0)
        assert not watchdog.is_alive()
        orders.execute("INSERT INTO orders VALUES (3, 'Cy')")

    with pytest.raises(StoreError, match="longer than 5 s"), store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
        tx.executemany("INSERT INTO orders VALUES (?, ?)", rows())
    assert orders.execute("SELECT id FROM orders").fetchall() == [(3,)]
    orders.close()
    await store.close()


async def test_a_commit_that_takes_longer_than_the_limit_is_a_commit(
    path: Path, orders: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(auto=False)
    store = SqliteStore(path, clock=clock)
    settlement = await settlement_of(store)
    real_end = Turn.end

    def end_slowly(turn: Turn, db: apsw.Connection) -> None:
        watchdog = next(thread for thread in threading.enumerate() if thread.name == "holdfast-transaction")
        clock.advance(5.1)
        watchdog.join(0.2)  # one that is wrong has interrupted by then, and waits for the block to be left
        real_end(turn, db)

    monkeypatch.setattr(Turn, "end", end_slowly)
    with store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
    monkeypatch.undo()
    assert orders.execute("SELECT id FROM orders").fetchall() == [(1,)]
    assert await state_of(store, settlement) is JobState.COMPLETED
    orders.close()
    await store.close()


async def test_a_watchdog_that_comes_late_leaves_the_connection_to_its_next_user(
    path: Path, orders: apsw.Connection
) -> None:
    store = SqliteStore(path)
    settlement = await settlement_of(store)
    with store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
    assert isinstance(tx, JobTransaction)
    tx._left.clear()  # as if its time had been over just before the block was left
    tx._limit_s = 0.0
    connection = tx._db
    count = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT max(late(i)) FROM n"

    def late(*numbers: Any) -> Any:
        if numbers[0] == 50:
            tx._watch()
        return numbers[0]

    connection.create_scalar_function("late", late)
    assert connection.execute(count).fetchall() == [(100_000,)]  # and no InterruptError
    orders.close()
    await store.close()


async def test_it_is_of_no_use_after_its_block(store: SqliteStore, orders: apsw.Connection) -> None:
    settlement = await settlement_of(store)
    with store.transaction(settlement, 5.0) as tx:
        pass
    with pytest.raises(StoreError, match="the block has been left"):
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
    orders.close()


async def test_only_a_completion_can_be_its_end(store: SqliteStore) -> None:
    settlement = await settlement_of(store, Change.RETRY)
    with pytest.raises(IllegalChange, match="completes the job"):
        store.transaction(settlement, 5.0)
