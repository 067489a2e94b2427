"""Opening: the tables are made once, whoever comes first; what cannot work is said in one line without a password."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast.errors import ConfigError, StoreAway, StoreError
from holdfast.stores.postgres import PostgresStore, schema
from holdfast.types import JobRecord
from tests.servers import PostgresServer, free_port
from tests.unit.stores.postgres.conftest import Plain

OPEN_AND_ENQUEUE = """
import asyncio, sys
from holdfast.clock import new_id
from holdfast.stores.postgres import PostgresStore
from holdfast.types import NewJob

store = PostgresStore(sys.argv[1])
print(store.enqueue_now([NewJob(id=new_id(), task="greet", payload=b"{}")])[0].id)
asyncio.run(store.close())
"""


def test_starters_that_race_make_the_tables_once(postgres_url: str) -> None:
    command = [sys.executable, "-c", OPEN_AND_ENQUEUE, postgres_url]
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    ids = [starter.communicate(timeout=60)[0].strip() for starter in starters]
    assert [starter.returncode for starter in starters] == [0] * 4

    async def found() -> list[JobRecord | None]:
        store = PostgresStore(postgres_url)
        try:
            return await store.get(ids)
        finally:
            await store.close()

    assert all(asyncio.run(found()))


async def test_threads_that_race_open_it_once(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    answers = await asyncio.gather(*(asyncio.to_thread(lambda: store.capabilities) for _ in range(8)))
    assert len(set(answers)) == 1
    await store.close()


async def test_tables_of_a_newer_version_are_refused(store: PostgresStore, plain: Plain, postgres_url: str) -> None:
    assert store.capabilities
    plain.execute("UPDATE holdfast_meta SET value = '99' WHERE key = 'schema_version'")
    with pytest.raises(StoreError, match=r"made by a newer Holdfast \(schema 99, not 1\); upgrade"):
        PostgresStore(postgres_url).capabilities  # noqa: B018 - asking opens it


@pytest.mark.parametrize("columns", ["key text, value text", "something_else int"])
def test_somebody_elses_table_is_refused(plain: Plain, postgres_url: str, columns: str) -> None:
    plain.execute(f"CREATE TABLE holdfast_meta ({columns})".encode())
    with pytest.raises(StoreError, match="a table holdfast_meta that Holdfast did not make"):
        PostgresStore(postgres_url).capabilities  # noqa: B018


async def test_an_older_server_is_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_OLDEST", 990_000)
    with pytest.raises(StoreError, match="is too old; 13 is the first one that works"):
        PostgresStore(postgres_url).capabilities  # noqa: B018


@pytest.fixture
def latin_database(postgres_server: PostgresServer) -> Iterator[str]:
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        yield postgres_server.dsn(database="latin")
        connection.execute("DROP DATABASE latin WITH (FORCE)")


def test_a_database_that_cannot_hold_every_text_is_refused(latin_database: str) -> None:
    with pytest.raises(StoreError, match="is in LATIN1; create one WITH ENCODING 'UTF8'"):
        PostgresStore(latin_database).capabilities  # noqa: B018


def test_what_is_wrong_is_said_in_one_line_without_the_password(postgres_server: PostgresServer) -> None:
    cases = {
        postgres_server.dsn(password="hunter2"): (StoreError, "does not accept the password"),
        postgres_server.dsn(database="nowhere"): (StoreError, "no such database"),
        f"postgresql://u:hunter2@127.0.0.1:{free_port()}/db": (StoreAway, "cannot be reached"),
    }
    for url, (kind, words) in cases.items():
        with pytest.raises(kind) as caught:
            PostgresStore(url).capabilities  # noqa: B018
        message = str(caught.value)
        assert words in message
        assert "\n" not in message
        assert "hunter2" not in message
        assert f":{postgres_server.password}@" not in message


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://h/db?nonsense=1", "url: cannot be read"),
        ("postgresql://h/db?synchronous_commit=maybe", "synchronous_commit='maybe' is none of on, off"),
    ],
)
def test_a_url_that_cannot_work_is_refused_at_once(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        PostgresStore(url)


def test_settings_that_cannot_work_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="key_window_s"):
        PostgresStore("postgresql://h/db", key_window_s=-1)
    with pytest.raises(ConfigError, match="answer_s"):
        PostgresStore("postgresql://h/db", answer_s=0)


async def test_a_store_says_where_it_is_and_what_it_promises(store: PostgresStore, postgres_url: str) -> None:
    capabilities = store.capabilities
    parts = urlsplit(postgres_url)
    assert capabilities.location == f"postgresql://holdfast@127.0.0.1:{parts.port}/postgres?{parts.query}"
    assert capabilities.version.startswith("PostgreSQL ")
    assert (capabilities.is_durable, capabilities.takes_connections) == (False, True)  # the tests' server has no fsync
    assert "everything may be lost" in capabilities.durability
    assert [line.partition(" ")[0] for line in capabilities.warnings] == ["fsync"]


def test_what_the_settings_of_a_server_promise() -> None:
    durable, words, warnings = schema._promises("on", "on", "on", "")
    assert (durable, warnings) == (True, ())
    assert "survives a crash of the server and a power cut" in words
    durable, words, warnings = schema._promises("on", "on", "off", "")
    assert (durable, len(warnings)) == (False, 1)
    assert "the last moments may be lost" in words
    assert schema._promises("on", "off", "on", "")[0] is True
    assert "standby" in schema._promises("on", "on", "on", "replica")[1]


async def test_the_url_may_ask_for_less_durability(postgres_url: str) -> None:
    store = PostgresStore(f"{postgres_url}&synchronous_commit=off")
    assert any("synchronous_commit is off" in line for line in store.capabilities.warnings)
    await store.close()


async def test_a_closed_store_stays_closed(store: PostgresStore) -> None:
    await store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        await store.get([])
    with pytest.raises(StoreError, match="the store is closed"):
        store.enqueue_now([])
