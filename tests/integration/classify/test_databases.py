"""redis, psycopg, SQLAlchemy, sqlite3 and apsw, failing in earnest against servers and files of their own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString

import apsw
import psycopg
import pytest
import redis
import redis.asyncio
import redis.asyncio.retry
import redis.backoff
import redis.retry
import sqlalchemy
import sqlalchemy.exc

from holdfast.policy.classify import classify

if TYPE_CHECKING:
    from tests.integration.classify.conftest import Ask, AskAsync, FailingServer
    from tests.servers import PostgresServer, RedisServer


# ---------------------------------------------------------------- redis
def connect_redis(port: int, password: str | None, timeout_s: float = 10.0) -> redis.Redis:
    return redis.Redis(
        port=port, password=password, socket_timeout=timeout_s, retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    )


@pytest.fixture
def redis_client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with connect_redis(redis_server.port, redis_server.password) as client:
        yield client


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_wrong_redis_password_is_an_authentication_failure(
    password: str | None, redis_server: RedisServer, failure_of: Ask
) -> None:
    with connect_redis(redis_server.port, password) as client:
        assert failure_of(client.ping).type == "authentication"


async def test_a_wrong_password_of_the_asyncio_client(redis_server: RedisServer, afailure_of: AskAsync) -> None:
    no_retries = redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0)
    async with redis.asyncio.Redis(port=redis_server.port, password="wrong", retry=no_retries) as client:
        assert (await afailure_of(lambda: client.get("key"))).type == "authentication"


def test_redis_refused_port_and_unknown_host(refused_url: str, failure_of: Ask) -> None:
    with connect_redis(int(refused_url.rpartition(":")[2]), None) as client:
        assert failure_of(client.ping).type == "network"
    with redis.Redis(host="nothing.invalid", retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0)) as client:
        assert failure_of(client.ping).type == "network"


def test_a_redis_that_never_answers_is_a_network_failure(redis_client: redis.Redis, failure_of: Ask) -> None:
    port = redis_client.connection_pool.connection_kwargs["port"]
    password = redis_client.connection_pool.connection_kwargs["password"]
    with connect_redis(port, password, timeout_s=0.1) as client:
        assert failure_of(lambda: client.blpop(["nothing"], timeout=5)).type == "network"


def test_a_lost_redis_connection_is_a_network_failure(
    redis_server: RedisServer, redis_client: redis.Redis, failure_of: Ask
) -> None:
    with connect_redis(redis_server.port, redis_server.password) as victim, victim.pubsub() as listener:
        listener.subscribe("news")
        listener.get_message(timeout=10)
        connection = listener.connection
        redis_client.client_kill_filter(_type="pubsub")
        assert connection is not None
        assert failure_of(connection.read_response).type == "network"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("LPUSH", "text", "x"), "permanent"),  # WRONGTYPE
        (("NO-SUCH-COMMAND",), "permanent"),
        (("EVALSHA", "0" * 40, "0"), "permanent"),
        (("EVAL", "return redis.error_reply('MISCONF cannot persist')", "0"), "system"),
        (("EVAL", "return redis.error_reply('LOADING the dataset')", "0"), "transient"),
        (("EVAL", "return redis.error_reply('READONLY replica')", "0"), "transient"),
        (("EVAL", "return redis.error_reply('CLUSTERDOWN')", "0"), "transient"),
        (("EVAL", "return redis.error_reply('NOREPLICAS not enough')", "0"), "transient"),
        (("EVAL", "return redis.error_reply('NOPERM this user')", "0"), "authentication"),
        (("EVAL", "return redis.error_reply('OOM command not allowed')", "0"), "system"),
    ],
)
def test_redis_error_replies(
    command: tuple[str, ...], expected: str, redis_client: redis.Redis, failure_of: Ask
) -> None:
    redis_client.set("text", "x")
    execute: Callable[..., object] = redis_client.execute_command
    assert failure_of(partial(execute, *command)).type == expected


# ---------------------------------------------------------------- psycopg
Run = Callable[[LiteralString], object]


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    with closing(psycopg.connect(postgres_server.dsn(), autocommit=True)) as connection:
        connection.execute("create table if not exists item (id int primary key, size int check (size > 0))")
        connection.execute("truncate item")
        connection.execute("insert into item values (1, 1), (2, 2)")
        yield connection


STATEMENTS: list[tuple[LiteralString, str]] = [
    ("insert into item values (1, 1)", "validation"),  # unique
    ("insert into item values (3, -1)", "validation"),  # check
    ("insert into item values (null, 1)", "validation"),
    ("select 1 / 0", "validation"),
    ("select 'x'::int", "validation"),
    ("selec 1", "permanent"),
    ("select * from nothing", "permanent"),
    ("set role pg_monitor; select pg_read_file('/etc/passwd')", "authentication"),
    ("set statement_timeout = '10ms'; select pg_sleep(10)", "transient"),
    ("do $$ begin raise exception 'no'; end $$", "permanent"),
    ("do $$ begin raise sqlstate '40001'; end $$", "transient"),
    ("do $$ begin raise sqlstate '53100'; end $$", "system"),
]


@pytest.mark.parametrize(("statement", "expected"), STATEMENTS)
def test_statements_that_postgres_refuses(
    statement: LiteralString, expected: str, postgres: psycopg.Connection, failure_of: Ask
) -> None:
    assert failure_of(lambda: postgres.execute(statement)).type == expected


@pytest.mark.parametrize(("statement", "expected"), STATEMENTS)
def test_sqlalchemy_is_known_by_the_error_it_wraps(
    statement: LiteralString, expected: str, postgres: psycopg.Connection, engine: sqlalchemy.Engine, failure_of: Ask
) -> None:
    with engine.connect() as connection:
        assert failure_of(lambda: connection.exec_driver_sql(statement)).type == expected


@pytest.fixture
def engine(postgres_server: PostgresServer) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(postgres_server.dsn()))
    yield engine
    engine.dispose()


def sqlalchemy_url(dsn: str) -> str:
    return dsn.replace("postgresql://", "postgresql+psycopg://")


def connect_psycopg(dsn: str) -> object:
    with psycopg.connect(dsn, connect_timeout=2) as connection:
        return connection.execute("select 1")


def connect_sqlalchemy(dsn: str) -> object:
    engine = sqlalchemy.create_engine(sqlalchemy_url(dsn), connect_args={"connect_timeout": 2})
    with engine.connect() as connection:
        return connection.execute(sqlalchemy.text("select 1"))


CONNECT = pytest.mark.parametrize("connect", [connect_psycopg, connect_sqlalchemy])


@CONNECT
def test_a_wrong_postgres_password_is_an_authentication_failure(
    connect: Callable[[str], object], postgres_server: PostgresServer, failure_of: Ask
) -> None:
    assert failure_of(lambda: connect(postgres_server.dsn(password="wrong"))).type == "authentication"


@CONNECT
def test_a_database_that_does_not_exist_is_permanent(
    connect: Callable[[str], object], postgres_server: PostgresServer, failure_of: Ask
) -> None:
    assert failure_of(lambda: connect(postgres_server.dsn(database="nothing"))).type == "permanent"


@CONNECT
def test_a_database_that_cannot_be_reached_is_a_system_failure(
    connect: Callable[[str], object], refused_url: str, server: FailingServer, failure_of: Ask
) -> None:
    refused = refused_url.replace("http://", "postgresql://u:p@") + "/db"
    not_postgres = server.url.replace("http://", "postgresql://u:p@") + "/db"
    for dsn in (refused, not_postgres, "postgresql://u:p@nothing.invalid/db"):
        assert failure_of(partial(connect, dsn)).type == "system"


def test_a_lost_postgres_connection_is_a_system_failure(
    postgres_server: PostgresServer, postgres: psycopg.Connection, failure_of: Ask
) -> None:
    with closing(psycopg.connect(postgres_server.dsn(), autocommit=True)) as victim:
        postgres.execute("select pg_terminate_backend(%s)", [victim.info.backend_pid])
        assert failure_of(lambda: victim.execute("select 1")).type == "system"
        assert failure_of(lambda: victim.execute("select 1")).type == "system"  # and now it is closed


def test_a_connection_that_sqlalchemy_lost_is_a_system_failure(
    engine: sqlalchemy.Engine, postgres: psycopg.Connection, failure_of: Ask
) -> None:
    with engine.connect() as victim:
        pid = victim.exec_driver_sql("select pg_backend_pid()").scalar_one()
        postgres.execute("select pg_terminate_backend(%s)", [pid])
        failure = failure_of(lambda: victim.exec_driver_sql("select 1"))
    assert failure.type == "system"
    assert isinstance(failure.error, sqlalchemy.exc.DBAPIError)
    assert failure.error.connection_invalidated


def test_a_row_that_somebody_else_holds_is_transient(
    postgres_server: PostgresServer, postgres: psycopg.Connection, failure_of: Ask
) -> None:
    with closing(psycopg.connect(postgres_server.dsn())) as holder:
        holder.execute("select * from item where id = 1 for update")
        waiting: list[LiteralString] = [
            "select * from item where id = 1 for update nowait",
            "set lock_timeout = '10ms'; select * from item where id = 1 for update",
        ]
        for statement in waiting:
            assert failure_of(partial(postgres.execute, statement)).type == "transient"


def test_a_deadlock_is_transient(postgres_server: PostgresServer, postgres: psycopg.Connection) -> None:
    async def deadlock() -> list[BaseException | None]:
        async with (
            await psycopg.AsyncConnection.connect(postgres_server.dsn()) as one,
            await psycopg.AsyncConnection.connect(postgres_server.dsn()) as two,
        ):
            await one.execute("set deadlock_timeout = '10ms'; update item set size = 5 where id = 1")
            await two.execute("set deadlock_timeout = '10ms'; update item set size = 5 where id = 2")
            crossed = (
                one.execute("update item set size = 5 where id = 2"),
                two.execute("update item set size = 5 where id = 1"),
            )
            ends = await asyncio.gather(*crossed, return_exceptions=True)
            await one.rollback()
            await two.rollback()
            return [end if isinstance(end, BaseException) else None for end in ends]

    errors = [error for error in asyncio.run(deadlock()) if error is not None]
    assert [classify(error).type for error in errors] == ["transient"]


def test_an_exhausted_sqlalchemy_pool_is_transient(postgres_server: PostgresServer, failure_of: Ask) -> None:
    engine = sqlalchemy.create_engine(
        sqlalchemy_url(postgres_server.dsn()), pool_size=1, max_overflow=0, pool_timeout=0.01
    )
    with engine.connect():
        assert failure_of(engine.connect).type == "transient"
    engine.dispose()


# ---------------------------------------------------------------- SQLite
def connect_sqlite3(path: Path) -> Any:
    return sqlite3.connect(path, timeout=0, isolation_level=None)


def connect_apsw(path: Path) -> Any:
    return apsw.Connection(str(path))


SQLITE = pytest.mark.parametrize("connect", [connect_sqlite3, connect_apsw])
Connect = Callable[[Path], Any]


@SQLITE
def test_a_locked_database_is_transient(connect: Connect, tmp_path: Path, failure_of: Ask) -> None:
    path = tmp_path / "a.db"
    with closing(connect(path)) as holder, closing(connect(path)) as other:
        holder.execute("begin immediate")
        assert failure_of(lambda: other.execute("begin immediate")).type == "transient"


@SQLITE
def test_a_full_disk_is_a_critical_system_failure(connect: Connect, tmp_path: Path, failure_of: Ask) -> None:
    with closing(connect(tmp_path / "a.db")) as database:
        database.execute("create table t (x)")
        database.execute("pragma max_page_count = 3").fetchall()
        failure = failure_of(lambda: database.execute("insert into t values (zeroblob(100000))"))
    assert (failure.type, failure.severity) == ("system", "critical")


@SQLITE
def test_a_corrupt_database_is_a_critical_system_failure(connect: Connect, tmp_path: Path, failure_of: Ask) -> None:
    path = tmp_path / "a.db"
    with closing(connect(path)) as database:
        database.execute("create table t (x)")
        for _ in range(50):
            database.execute("insert into t values (zeroblob(500))")
    damaged = bytearray(path.read_bytes())
    damaged[4096:] = b"\xff" * (len(damaged) - 4096)
    path.write_bytes(damaged)
    with closing(connect(path)) as database:
        failure = failure_of(lambda: database.execute("select count(*), max(length(x)) from t").fetchall())
    assert (failure.type, failure.severity) == ("system", "critical")


@SQLITE
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("insert into t values (1)", "validation"),
        ("selec 1", "permanent"),
        ("select * from nothing", "permanent"),
        ("insert into t values (zeroblob(2000000000))", "validation"),
    ],
)
def test_statements_that_sqlite_refuses(
    connect: Connect, statement: str, expected: str, tmp_path: Path, failure_of: Ask
) -> None:
    with closing(connect(tmp_path / "a.db")) as database:
        database.execute("create table t (x integer primary key)")
        database.execute("insert into t values (1)")
        assert failure_of(lambda: database.execute(statement)).type == expected


@SQLITE
def test_a_file_that_is_no_database_is_permanent(connect: Connect, tmp_path: Path, failure_of: Ask) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"this is a text" * 100)
    with closing(connect(path)) as database:
        assert failure_of(lambda: database.execute("select * from sqlite_master").fetchall()).type == "permanent"


@SQLITE
def test_a_folder_that_is_not_there_is_a_system_failure(connect: Connect, tmp_path: Path, failure_of: Ask) -> None:
    assert failure_of(lambda: connect(tmp_path / "nowhere" / "a.db")).type == "system"


@SQLITE
def test_the_wrong_number_of_bindings_is_not_retried(connect: Connect, tmp_path: Path, failure_of: Ask) -> None:
    with closing(connect(tmp_path / "a.db")) as database:
        assert not failure_of(lambda: database.execute("select ?", (1, 2))).is_retriable
