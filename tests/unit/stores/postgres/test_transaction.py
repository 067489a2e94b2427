"""A job's own transaction: what it may not do, and how long it may take."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from holdfast.clock import SystemClock, new_id, new_token
from holdfast.errors import IllegalChange, LeaseLost, StoreError
from holdfast.ports import Claim, Exchange, Settlement, WorkerRecord
from holdfast.stores.postgres import PostgresStore
from holdfast.testing import ManualClock
from holdfast.types import Change, JobState, NewJob
from tests.unit.stores.postgres.conftest import CheckBooks, Plain


@pytest.fixture
def orders(plain: Plain) -> Plain:
    """A table of the user's, and a look at it from outside."""
    plain.execute("CREATE TABLE orders (id serial PRIMARY KEY, name text)")
    return plain


def ids_of(orders: Plain) -> list[int]:
    return [number for (number,) in orders.execute("SELECT id FROM orders ORDER BY id").fetchall()]


async def settlement_of(store: PostgresStore, change: Change = Change.COMPLETE) -> Settlement:
    await store.enqueue([NewJob(id=new_id(), task="greet", payload=b"{}")])
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    got = await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=1)))
    return Settlement(id=got.deliveries[0].id, token=got.deliveries[0].token, change=change)


async def state_of(store: PostgresStore, settlement: Settlement) -> JobState:
    record = (await store.get([settlement.id]))[0]
    assert record is not None
    return record.state


def watchdog() -> threading.Thread:
    return next(thread for thread in threading.enumerate() if thread.name == "holdfast-transaction")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("COMMIT", "BEGIN, COMMIT and ROLLBACK"),
        ("  -- so\n /* or\n so */ rollback", "BEGIN, COMMIT and ROLLBACK"),
        ("BEGIN", "BEGIN, COMMIT and ROLLBACK"),
        ("END", "BEGIN, COMMIT and ROLLBACK"),
        ("START TRANSACTION", "BEGIN, COMMIT and ROLLBACK"),
        ("INSERT INTO orders VALUES (9, 'x'); COMMIT", "cannot insert multiple commands"),
        ("SAVEPOINT mine", "savepoints"),
        ("PREPARE TRANSACTION 'x'", "prepared transactions"),
        ("SET search_path = public", "settings would outlive"),
        ("LISTEN news", "listening"),
        ("INSERT INTO nowhere VALUES (1)", "does not exist"),
        ("SELEC 1", "syntax error"),
        ("INSERT INTO orders VALUES (1, 'twice')", "duplicate key"),
    ],
)
async def test_a_statement_that_is_not_for_it_is_refused_and_undoes_all(
    store: PostgresStore, orders: Plain, sql: str, message: str
) -> None:
    settlement = await settlement_of(store)
    with pytest.raises(StoreError, match=message), store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
        tx.execute(sql)
    assert ids_of(orders) == []
    assert await state_of(store, settlement) is JobState.RUNNING


async def test_a_failed_statement_that_is_caught_undoes_all_the_same(store: PostgresStore, orders: Plain) -> None:
    settlement = await settlement_of(store)
    with pytest.raises(StoreError, match="a statement has failed"), store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
        with pytest.raises(StoreError, match="duplicate key"):
            tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
    assert ids_of(orders) == []
    assert await state_of(store, settlement) is JobState.RUNNING


async def test_values_are_given_as_psycopg_takes_them(
    store: PostgresStore, orders: Plain, check_books: CheckBooks
) -> None:
    settlement = await settlement_of(store)
    with store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (%s, %s)", (1, "Ada"))
        tx.executemany("INSERT INTO orders VALUES (%s, %s)", [(2, "Bob"), (3, "Cy")])
        assert tx.execute("SELECT name FROM orders WHERE id = %(id)s", {"id": 2}) == [("Bob",)]
        assert tx.execute("SELECT name FROM orders WHERE name LIKE 'A%'") == [("Ada",)]
        assert tx.execute("SET LOCAL work_mem = '1MB'") == []
    assert ids_of(orders) == [1, 2, 3]
    assert await state_of(store, settlement) is JobState.COMPLETED
    check_books()


async def test_nothing_of_a_job_is_left_for_the_next_one(store: PostgresStore) -> None:
    with store.transaction(await settlement_of(store), 5.0) as tx:
        tx.execute("CREATE TEMPORARY TABLE scratch (n int)")
    with store.transaction(await settlement_of(store), 5.0) as tx:
        assert tx.execute("SELECT to_regclass('scratch') IS NULL") == [(True,)]


async def test_a_transaction_that_was_committed_before_is_not_committed_again(
    store: PostgresStore, orders: Plain
) -> None:
    settlement = await settlement_of(store)
    with store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders (name) VALUES ('Ada')")
    with pytest.raises(LeaseLost), store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders (name) VALUES ('Ada')")
    assert ids_of(orders) == [1]


async def test_one_that_is_open_for_too_long_is_rolled_back(
    postgres_url: str, store: PostgresStore, orders: Plain
) -> None:
    clock = ManualClock(auto=False)
    slow = PostgresStore(postgres_url, clock=clock)
    settlement = await settlement_of(slow)
    with pytest.raises(StoreError, match="longer than 5 s"), slow.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
        dog = watchdog()
        clock.advance(5.1)
        await asyncio.to_thread(dog.join)
        orders.execute("INSERT INTO orders VALUES (1, 'Bob')")  # the lock is free before the block is left
        tx.execute("INSERT INTO orders VALUES (3, 'Cy')")
    assert ids_of(orders) == [1]
    assert await state_of(slow, settlement) is JobState.RUNNING
    await slow.close()


async def test_a_statement_that_never_ends_is_interrupted(
    postgres_url: str, store: PostgresStore, orders: Plain
) -> None:
    clock = ManualClock(auto=False)
    slow = PostgresStore(postgres_url, clock=clock)
    settlement = await settlement_of(slow)
    loop = asyncio.get_running_loop()

    def run() -> None:
        with slow.transaction(settlement, 5.0) as tx:
            tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
            loop.call_soon_threadsafe(clock.advance, 5.1)
            tx.execute("SELECT pg_sleep(30)")

    async with asyncio.timeout(20):
        with pytest.raises(StoreError, match="longer than 5 s"):
            await asyncio.to_thread(run)
    assert ids_of(orders) == []
    assert await state_of(slow, settlement) is JobState.RUNNING
    await slow.close()


async def test_rows_that_come_slowly_do_not_keep_it_open(
    postgres_url: str, store: PostgresStore, orders: Plain
) -> None:
    clock = ManualClock(auto=False)
    slow = PostgresStore(postgres_url, clock=clock)
    settlement = await settlement_of(slow)

    def rows() -> Iterator[tuple[int, str]]:
        yield (2, "Bob")
        dog = watchdog()
        clock.advance(5.1)
        dog.join(30.0)
        assert not dog.is_alive()

    with pytest.raises(StoreError, match="longer than 5 s"), slow.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
        tx.executemany("INSERT INTO orders VALUES (%s, %s)", rows())
    assert ids_of(orders) == []
    await slow.close()


async def test_rows_are_sent_together_so_that_a_process_that_stands_still_amid_them_leaves_no_lock(
    store: PostgresStore, orders: Plain
) -> None:
    free: list[bool] = []

    class Slow(Sequence[int]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: Any) -> Any:
            if index:
                raise IndexError(index)
            SystemClock().sleep(0.2)
            free.append(orders.execute("SELECT pg_try_advisory_xact_lock(7)").fetchall() == [(True,)])
            return 8

    with store.transaction(await settlement_of(store), 5.0) as tx:
        tx.execute("SELECT 1")
        tx.executemany("SELECT pg_advisory_xact_lock(%s)", [(7,), Slow()])
        assert orders.execute("SELECT pg_try_advisory_xact_lock(7)").fetchall() == [(False,)]
    assert free, "it was not asked: this run shows nothing"
    assert all(free)


async def test_the_server_ends_it_too_when_the_process_stands_still(store: PostgresStore, orders: Plain) -> None:
    settlement = await settlement_of(store)
    with pytest.raises(StoreError), store.transaction(settlement, 60.0) as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
        assert tx.execute("SHOW idle_in_transaction_session_timeout") == [("1min",)]
        orders.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'")
        tx.execute("INSERT INTO orders VALUES (2, 'Bob')")
    assert ids_of(orders) == []
    assert await state_of(store, settlement) is JobState.RUNNING


async def test_a_connection_that_broke_while_it_lay_idle_is_replaced(store: PostgresStore, orders: Plain) -> None:
    with store.transaction(await settlement_of(store), 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'Ada')")
    settlement = await settlement_of(store)
    orders.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'")
    with store.transaction(settlement, 5.0) as tx:
        tx.execute("INSERT INTO orders VALUES (2, 'Bob')")
    assert ids_of(orders) == [1, 2]
    assert await state_of(store, settlement) is JobState.COMPLETED


async def test_it_is_of_no_use_after_its_block(store: PostgresStore) -> None:
    settlement = await settlement_of(store)
    with store.transaction(settlement, 5.0) as tx:
        pass
    with pytest.raises(StoreError, match="the block has been left"):
        tx.execute("SELECT 1")


async def test_only_a_completion_can_be_its_end(store: PostgresStore) -> None:
    settlement = await settlement_of(store, Change.RETRY)
    with pytest.raises(IllegalChange, match="completes the job"):
        store.transaction(settlement, 5.0)
