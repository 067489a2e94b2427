"""Opening: the tables are made once, whoever comes first; what cannot work is said in one line without a password."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast.clock import SystemClock, new_id
from holdfast.errors import ConfigError, StoreAway, StoreError
from holdfast.ports import Query
from holdfast.stores.postgres import PostgresStore, schema
from holdfast.stores.postgres.connection import address_of, connect
from holdfast.testing.store_suite import enqueue, new_job
from holdfast.testing.store_suite.steps import dead_letter
from holdfast.types import JobRecord, NewJob
from tests.servers import PostgresServer, free_port
from tests.unit.stores.postgres.conftest import CheckBooks, Plain

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


def test_a_heartbeat_reaches_the_second_host_while_the_first_one_swallows_everything(
    postgres_server: PostgresServer,
) -> None:
    parts = urlsplit(postgres_server.url())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]},{parts.hostname}:{parts.port}"
        where = parts._replace(netloc=parts.netloc.replace(f"{parts.hostname}:{parts.port}", hosts)).geturl()
        began_s = SystemClock().monotonic()
        with connect(address_of(where, "", 10.0), answer_s=2.0) as line:
            assert line.execute("SELECT 1").fetchone() == (1,)
        assert SystemClock().monotonic() - began_s < 5.0, "that long a lease may not be"


async def test_stores_that_race_to_an_empty_schema_make_its_tables_once(postgres_server: PostgresServer) -> None:
    for _ in range(5):
        schema = postgres_server.fresh_schema()
        stores = [PostgresStore(postgres_server.url(schema)) for _ in range(3)]
        try:
            found = await asyncio.gather(*(asyncio.to_thread(lambda one: one.capabilities, one) for one in stores))
            assert len({one.location for one in found}) == 1
            (answer,) = await stores[0].enqueue([NewJob(id=new_id(), task="greet", payload=b"{}")])
            assert await stores[2].get([answer.id]) == await stores[1].get([answer.id]) != [None]
        finally:
            for one in stores:
                await one.close()
            postgres_server.drop_schema(schema)


async def test_threads_that_race_open_it_once(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    answers = await asyncio.gather(*(asyncio.to_thread(lambda: store.capabilities) for _ in range(8)))
    assert len(set(answers)) == 1
    await store.close()


async def test_tables_of_a_newer_version_are_refused(store: PostgresStore, plain: Plain, postgres_url: str) -> None:
    assert store.capabilities
    plain.execute("UPDATE holdfast_meta SET value = '99' WHERE key = 'schema_version'")
    with pytest.raises(StoreError, match=r"made by a newer Holdfast \(schema 99, not 3\); upgrade"):
        PostgresStore(postgres_url).capabilities  # noqa: B018 - asking opens it


@pytest.mark.parametrize("columns", ["key text, value text", "something_else int"])
def test_somebody_elses_table_is_refused(plain: Plain, postgres_url: str, columns: str) -> None:
    plain.execute(f"CREATE TABLE holdfast_meta ({columns})".encode())
    with pytest.raises(StoreError, match="a table holdfast_meta that Holdfast did not make"):
        PostgresStore(postgres_url).capabilities  # noqa: B018


@pytest.fixture
def stranger(postgres_server: PostgresServer, plain: Plain) -> Iterator[str]:
    """The password and name of a role that was granted nothing, and the URL of the store for it."""
    plain.execute("CREATE ROLE stranger LOGIN PASSWORD 'right'")
    (found,) = plain.execute("SELECT current_schema()").fetchone() or ("",)
    yield postgres_server.url(found).replace(f"{postgres_server.user}:", "stranger:")
    plain.execute("DROP OWNED BY stranger")
    plain.execute("DROP ROLE stranger")


def refusal(url: str) -> str:
    """What is said when the store is opened."""
    with pytest.raises(StoreError) as caught:
        PostgresStore(url).capabilities  # noqa: B018
    assert not isinstance(caught.value, StoreAway)
    return str(caught.value)


@pytest.mark.parametrize("has_tables", [False, True])
async def test_a_role_without_rights_is_told_which_ones_it_needs(
    postgres_url: str, plain: Plain, stranger: str, has_tables: bool
) -> None:
    (schema,) = plain.execute("SELECT current_schema()").fetchone() or ("",)
    store = PostgresStore(postgres_url)
    if has_tables:
        assert store.capabilities
    grant = f"GRANT USAGE ON SCHEMA {schema} TO stranger"
    said = refusal(stranger)
    assert f"the role stranger has no rights on the schema {schema}" in said
    assert grant in said
    plain.execute(grant.encode())
    said = refusal(stranger)
    if has_tables:
        grant = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO stranger"
        assert f"the role stranger has no rights on the tables in the schema {schema}" in said
    else:
        grant = f"GRANT CREATE ON SCHEMA {schema} TO stranger"
        assert f"the role stranger may not make tables in the schema {schema}" in said
    assert grant in said
    plain.execute(grant.encode())
    theirs = PostgresStore(stranger)
    (answer,) = await theirs.enqueue([NewJob(id=new_id(), task="greet", payload=b"{}")])
    assert answer.is_new
    await theirs.close()
    await store.close()


def test_a_role_that_may_not_make_the_schema_is_told_so(stranger: str) -> None:
    said = refusal(stranger.partition("?")[0] + "?schema=nowhere")
    assert "there is no schema nowhere, and the role stranger may not make it" in said
    assert "CREATE SCHEMA nowhere AUTHORIZATION stranger" in said


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


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("postgresql://u:secret@a:1,b:44597/db", "postgresql://u@a:1,b:44597/db"),
        ("postgresql://a,b/db?schema=jobs", "postgresql://a,b/db?schema=jobs"),
        ("postgresql://a,b:2/db", "postgresql://a,b:2/db"),
        ("postgresql://a,b/db?port=7", "postgresql://a:7,b:7/db"),
        ("postgresql:///db", "postgresql://localhost/db"),
        ("postgresql://[::1]:5/db", "postgresql://[::1]:5/db"),
    ],
)
def test_a_location_names_each_host_with_its_port(url: str, location: str) -> None:
    assert address_of(url, "", 10.0).location == location


async def test_a_store_says_where_it_is_and_what_it_promises(store: PostgresStore, postgres_url: str) -> None:
    capabilities = store.capabilities
    parts = urlsplit(postgres_url)
    assert capabilities.location == f"postgresql://holdfast@127.0.0.1:{parts.port}/postgres?{parts.query}"
    assert capabilities.version.startswith("PostgreSQL ")
    assert (capabilities.is_durable, capabilities.takes_connections) == (False, True)  # the tests' server has no fsync
    assert "everything may be lost" in capabilities.durability
    assert [line.partition(" ")[0] for line in capabilities.warnings] == ["fsync"]


ON_DISK = "What is acknowledged is on the server's disk"
OUTLIVES = "it survives a crash of the server and a power cut"


@pytest.mark.parametrize(
    ("commit", "standbys", "words"),
    [
        ("on", "", f"{ON_DISK}: {OUTLIVES}."),
        ("remote_apply", "", f"{ON_DISK}: {OUTLIVES}."),
        ("remote_write", "", f"{ON_DISK}: {OUTLIVES}."),
        ("local", "", f"{ON_DISK}: {OUTLIVES}."),
        ("on", "replica", "is on the disks of the server and of a standby: it survives the loss of one."),
        ("remote_apply", "replica", "is on the disks of the server and of a standby: it survives the loss of one."),
        ("remote_write", "replica", f"{ON_DISK}, and in a standby's memory: {OUTLIVES}, and the loss of the server"),
        ("local", "replica", f"{ON_DISK}: {OUTLIVES}. No standby is waited for."),
    ],
)
def test_what_a_commit_waits_for_is_what_is_promised(commit: str, standbys: str, words: str) -> None:
    is_durable, said, warnings = schema._promises("on", "on", commit, standbys)
    assert (is_durable, warnings) == (True, ())
    assert words in said


@pytest.mark.parametrize("standbys", ["", "replica"])
@pytest.mark.parametrize(
    ("fsync", "full_pages", "commit", "words", "n_warnings"),
    [
        ("on", "on", "off", "the last moments may be lost", 1),
        ("off", "on", "on", "everything may be lost", 1),
        ("off", "off", "off", "everything may be lost", 2),
        ("on", "off", "on", "a power cut may damage the server's tables", 1),
        ("on", "off", "off", "a power cut may damage the server's tables", 2),
    ],
)
def test_settings_by_which_what_was_acknowledged_may_be_lost_are_not_durable(
    fsync: str, full_pages: str, commit: str, standbys: str, words: str, n_warnings: int
) -> None:
    is_durable, said, warnings = schema._promises(fsync, full_pages, commit, standbys)
    assert (is_durable, len(warnings)) == (False, n_warnings)
    assert words in said


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


UNDO = """
DROP TABLE holdfast_letters, holdfast_causes, holdfast_letter_hours, holdfast_counted;
DROP FUNCTION holdfast_digest;
DROP INDEX holdfast_jobs_lane, holdfast_jobs_tenant, holdfast_jobs_user, holdfast_jobs_project;
CREATE INDEX holdfast_jobs_cause ON holdfast_jobs USING hash (fingerprint) WHERE given_up = 2;
UPDATE holdfast_meta SET value = '1' WHERE key = 'schema_version';
"""


async def test_tables_of_the_first_version_are_counted_anew(
    store: PostgresStore, plain: Plain, postgres_url: str, check_books: CheckBooks
) -> None:
    for n in range(6):
        await dead_letter(store, task="ab"[n % 2], tenant=("", "acme", "globex")[n % 3])
    groups = await store.groups(Query())
    plain.execute(UNDO.encode())
    after = PostgresStore(postgres_url)
    try:
        assert await after.groups(Query()) == groups
        check_books()
    finally:
        await after.close()


async def test_names_longer_than_an_index_takes_are_found(store: PostgresStore, check_books: CheckBooks) -> None:
    owner = "t" * 9000
    await dead_letter(store, tenant=owner, user=owner, project=owner, task=owner)
    await enqueue(store, new_job(tenant=owner + "x"))
    assert len((await store.find(Query(tenant=owner))).items) == 1
    assert len((await store.find(Query(user=owner))).items) == 1
    (group,) = await store.groups(Query(tenant=owner))
    assert (group.tenants, group.count) == ((owner,), 1)
    check_books()


async def test_a_text_is_not_looked_for_by_workers_that_may_not_catch_errors(
    store: PostgresStore, plain: Plain
) -> None:
    assert store.capabilities
    found = "SELECT proparallel FROM pg_proc WHERE oid = 'holdfast_text(bytea)'::regprocedure"
    assert plain.execute(found.encode()).fetchone() == ("u",)
