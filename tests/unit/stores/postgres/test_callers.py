"""Jobs written through a caller's own connection: there if and only if its transaction commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import psycopg.rows
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast.clock import SystemClock, new_id, new_token
from holdfast.errors import ConfigError, StoreAway, StoreError
from holdfast.ports import Claim, Enqueued, Exchange, WorkerRecord
from holdfast.stores.postgres import PostgresStore
from holdfast.types import NewJob
from tests.servers import PostgresServer
from tests.unit.stores.postgres.conftest import CheckBooks, Plain


def new_job(**options: Any) -> NewJob:
    return NewJob(**{"id": new_id(), "task": "greet", "payload": b"{}", **options})


async def is_there(store: PostgresStore, job: NewJob) -> bool:
    return (await store.get([job.id]))[0] is not None


@pytest.fixture
def dsn(postgres_url: str) -> str:
    """A caller's URL: it looks into no schema of ours."""
    return urlsplit(postgres_url)._replace(query="").geturl()


@pytest.fixture
def theirs(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def engine(dsn: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(dsn.replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    engine.dispose()


@pytest.fixture
async def async_engine(dsn: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(dsn.replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    await engine.dispose()


# ---------------------------------------------------------------- if and only if it commits


async def test_a_job_is_there_when_the_callers_transaction_commits(
    store: PostgresStore, theirs: psycopg.Connection[Any], check_books: CheckBooks
) -> None:
    kept, dropped = new_job(delay_s=60.0), new_job()
    assert store.enqueue_now([kept], theirs) == [Enqueued(kept.id)]
    assert not await is_there(store, kept)
    theirs.commit()
    assert await is_there(store, kept)
    store.enqueue_now([dropped], theirs)
    theirs.rollback()
    assert not await is_there(store, dropped)
    check_books()


async def test_a_job_in_a_block_of_the_callers_goes_with_the_block(
    store: PostgresStore, theirs: psycopg.Connection[Any]
) -> None:
    outer, inner = new_job(), new_job()
    with theirs.transaction():
        store.enqueue_now([outer], theirs)
        with theirs.transaction(force_rollback=True):
            store.enqueue_now([inner], theirs)
    assert (await is_there(store, outer), await is_there(store, inner)) == (True, False)


async def test_in_autocommit_mode_a_job_is_there_at_once(store: PostgresStore, plain: Plain) -> None:
    job = new_job()
    store.enqueue_now([job], plain)
    assert await is_there(store, job)


async def test_an_async_connection_is_as_good(store: PostgresStore, dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        kept, dropped = new_job(), new_job()
        assert await store.enqueue([kept], connection) == [Enqueued(kept.id)]
        assert not await is_there(store, kept)
        await connection.commit()
        await store.enqueue([dropped], connection)
        await connection.rollback()
    assert (await is_there(store, kept), await is_there(store, dropped)) == (True, False)


async def test_a_connection_of_sqlalchemy_is_as_good(store: PostgresStore, engine: sqlalchemy.Engine) -> None:
    kept, dropped = new_job(), new_job()
    with engine.connect() as connection:
        assert store.enqueue_now([kept], connection) == [Enqueued(kept.id)]
        assert not await is_there(store, kept)
        connection.commit()
        store.enqueue_now([dropped], connection)
        connection.rollback()
    assert (await is_there(store, kept), await is_there(store, dropped)) == (True, False)


async def test_a_session_of_sqlalchemy_is_as_good(store: PostgresStore, engine: sqlalchemy.Engine) -> None:
    kept, dropped = new_job(), new_job()
    with Session(engine) as session:
        store.enqueue_now([kept], session)
        session.commit()
        store.enqueue_now([dropped], session)
    assert (await is_there(store, kept), await is_there(store, dropped)) == (True, False)


async def test_async_connections_and_sessions_of_sqlalchemy_are_as_good(
    store: PostgresStore, async_engine: AsyncEngine
) -> None:
    jobs = [new_job() for _ in range(4)]
    async with async_engine.connect() as connection:
        assert await store.enqueue(jobs[:1], connection) == [Enqueued(jobs[0].id)]
        await connection.commit()
        await store.enqueue(jobs[1:2], connection)
    async with AsyncSession(async_engine) as session:
        await store.enqueue(jobs[2:3], session)
        await session.commit()
        await store.enqueue(jobs[3:], session)
    assert [await is_there(store, job) for job in jobs] == [True, False, True, False]


async def test_the_commit_is_news_for_those_who_wait(store: PostgresStore, theirs: psycopg.Connection[Any]) -> None:
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    for _ in range(3):  # the first waits end by themselves
        await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=9)))
        await store.wait(0.3)
    waiting = asyncio.create_task(store.wait(300.0))
    store.enqueue_now([new_job()], theirs)
    theirs.commit()
    async with asyncio.timeout(10):
        await waiting


# ---------------------------------------------------------------- what does not go well leaves the transaction whole


async def test_a_conflict_leaves_the_callers_transaction_as_it_was(
    store: PostgresStore, theirs: psycopg.Connection[Any]
) -> None:
    first, after = new_job(idempotency_key="k"), new_job()
    await store.enqueue([first])
    clash = new_job(idempotency_key="k", payload=b"[]")
    assert store.enqueue_now([clash], theirs) == [Enqueued(first.id, is_new=False, is_conflict=True)]
    store.enqueue_now([after], theirs)
    theirs.commit()
    assert (await is_there(store, clash), await is_there(store, after)) == (False, True)


async def test_a_failure_undoes_only_what_was_enqueued(
    store: PostgresStore, theirs: psycopg.Connection[Any], dsn: str
) -> None:
    before, after = new_job(), new_job()
    store.enqueue_now([before], theirs)
    theirs.execute("SET LOCAL lock_timeout = '50ms'")
    with psycopg.connect(dsn) as other:
        store.enqueue_now([new_job(idempotency_key="k")], other)
        with pytest.raises(StoreError, match="holds the idempotency key 'k'"):
            store.enqueue_now([new_job(idempotency_key="k")], theirs)
    store.enqueue_now([after], theirs)
    theirs.commit()
    assert (await is_there(store, before), await is_there(store, after)) == (True, True)


async def test_a_key_that_another_transaction_holds_is_waited_for(
    store: PostgresStore, theirs: psycopg.Connection[Any]
) -> None:
    first, second = new_job(idempotency_key="k"), new_job(idempotency_key="k")
    store.enqueue_now([first], theirs)
    racing = asyncio.create_task(store.enqueue([second]))
    await asyncio.to_thread(theirs.execute, "SELECT pg_sleep(0.2)")
    assert not racing.done()
    theirs.commit()
    assert await racing == [Enqueued(first.id, is_new=False)]


# ---------------------------------------------------------------- a key that another transaction keeps


HELD = r"another transaction, which is still open, holds the idempotency key 'k'; send it again"
SOON_S = 4.0


async def test_a_callers_wait_for_a_held_key_ends_and_leaves_its_transaction_as_it_was(
    store: PostgresStore, theirs: psycopg.Connection[Any], dsn: str
) -> None:
    before, after = new_job(), new_job()
    store.enqueue_now([new_job(idempotency_key="k")], theirs)
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("SET LOCAL lock_timeout = '7min'")
        await store.enqueue([before], other)
        async with asyncio.timeout(8):
            with pytest.raises(StoreAway, match=HELD):
                await store.enqueue([new_job(idempotency_key="k")], other)
        await store.enqueue([after], other)
        assert await (await other.execute("SHOW lock_timeout")).fetchone() == ("7min",)
        await other.commit()
        assert await (await other.execute("SHOW lock_timeout")).fetchone() == ("0",)
    assert (await is_there(store, before), await is_there(store, after)) == (True, True)


async def test_a_held_key_keeps_those_who_want_others_waiting_for_no_long_time(
    store: PostgresStore, theirs: psycopg.Connection[Any]
) -> None:
    machine = SystemClock()
    await store.enqueue([new_job()])
    store.enqueue_now([new_job(idempotency_key="k")], theirs)
    began_s = machine.monotonic()
    held = [asyncio.create_task(store.enqueue([new_job(idempotency_key="k")])) for _ in range(5)]
    free = asyncio.create_task(store.enqueue([new_job(idempotency_key="another")]))
    async with asyncio.timeout(10):
        await store.enqueue([new_job()])
        await asyncio.to_thread(store.enqueue_now, [new_job()])
        assert not any(task.done() for task in held)  # plain ones have not waited at all
        assert (await free)[0].is_new
        answers = await asyncio.gather(*held, return_exceptions=True)
    assert machine.monotonic() - began_s < SOON_S
    assert [type(answer) for answer in answers] == [StoreAway] * 5
    assert HELD.split(";", maxsplit=1)[0] in str(answers[0])
    theirs.rollback()
    assert (await store.enqueue([new_job(idempotency_key="k")]))[0].is_new


@pytest.mark.parametrize("level", list(psycopg.IsolationLevel))
async def test_every_isolation_level_can_enqueue_into_a_lane_that_is_new(
    store: PostgresStore, theirs: psycopg.Connection[Any], level: psycopg.IsolationLevel, check_books: CheckBooks
) -> None:
    await store.enqueue([new_job()])
    theirs.isolation_level = level
    theirs.execute("SELECT 1")  # takes the snapshot
    await store.enqueue([new_job(task="made meanwhile")])
    jobs = [new_job(task="made meanwhile"), new_job(task="never seen before"), new_job(idempotency_key="k")]
    assert store.enqueue_now(jobs, theirs) == [Enqueued(job.id) for job in jobs]
    theirs.commit()
    assert all(await store.get([job.id for job in jobs]))
    check_books()


# ---------------------------------------------------------------- what is no use


async def test_a_connection_to_another_database_is_refused_and_stays_usable(
    store: PostgresStore, postgres_server: PostgresServer
) -> None:
    assert store.capabilities
    with psycopg.connect(postgres_server.dsn(database="template1")) as other:
        with pytest.raises(ConfigError, match="its database has no tables of"):
            store.enqueue_now([new_job()], other)
        assert other.execute("SELECT 1").fetchone() == (1,)


async def test_a_connection_of_the_wrong_kind_is_refused(
    store: PostgresStore, theirs: psycopg.Connection[Any], dsn: str, async_engine: AsyncEngine
) -> None:
    with pytest.raises(ConfigError, match=r"psycopg.Connection is of no use to an async call: give a"):
        await store.enqueue([new_job()], theirs)
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        with pytest.raises(ConfigError, match=r"psycopg.AsyncConnection is of no use to a sync call"):
            store.enqueue_now([new_job()], connection)
    async with async_engine.connect() as of_alchemy, AsyncSession(async_engine) as session:
        with pytest.raises(ConfigError, match=r"AsyncConnection is of no use to a sync call"):
            store.enqueue_now([new_job()], of_alchemy)
        with pytest.raises(ConfigError, match=r"AsyncSession is of no use to a sync call"):
            store.enqueue_now([new_job()], session)
    with pytest.raises(ConfigError, match=r"builtins.str is of no use"):
        store.enqueue_now([new_job()], "postgresql://…")


async def test_a_closed_connection_is_said_to_be_closed(
    store: PostgresStore, dsn: str, engine: sqlalchemy.Engine, async_engine: AsyncEngine
) -> None:
    closed = psycopg.connect(dsn)
    closed.close()
    closed_async = await psycopg.AsyncConnection.connect(dsn)
    await closed_async.close()
    alchemy = engine.connect()
    alchemy.close()
    alchemy_async = await async_engine.connect()
    await alchemy_async.close()
    for connection in (closed, alchemy):
        with pytest.raises(ConfigError, match="connection: it is closed; give one that is open"):
            store.enqueue_now([new_job()], connection)
    for connection_async in (closed_async, alchemy_async):
        with pytest.raises(ConfigError, match="connection: it is closed; give one that is open"):
            await store.enqueue([new_job()], connection_async)


async def test_a_connection_that_the_server_has_ended_is_said_to_be_broken(
    store: PostgresStore, plain: Plain, dsn: str
) -> None:
    with psycopg.connect(dsn) as ended:
        plain.execute("SELECT pg_terminate_backend(%s)", (ended.info.backend_pid,))
        with pytest.raises(StoreAway, match=r"told to end the connection|cannot be reached"):
            while True:  # until it hears of it
                store.enqueue_now([new_job()], ended)
        with pytest.raises(StoreAway, match="connection: it has broken"):
            store.enqueue_now([new_job()], ended)


async def test_a_connection_in_pipeline_mode_is_refused_and_stays_usable(
    store: PostgresStore, theirs: psycopg.Connection[Any], dsn: str
) -> None:
    job = new_job()
    with theirs.pipeline(), pytest.raises(ConfigError, match="connection: it is in pipeline mode; enqueue before"):
        store.enqueue_now([job], theirs)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection, connection.pipeline():
        with pytest.raises(ConfigError, match="connection: it is in pipeline mode"):
            await store.enqueue([job], connection)
    store.enqueue_now([job], theirs)
    theirs.commit()
    assert await is_there(store, job)


async def test_another_driver_of_sqlalchemy_is_refused(store: PostgresStore) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with (
        engine.connect() as connection,
        pytest.raises(ConfigError, match=r"driver is sqlite\+pysqlite; open the engine"),
    ):
        store.enqueue_now([new_job()], connection)
    engine.dispose()
