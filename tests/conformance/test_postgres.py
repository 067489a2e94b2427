"""The PostgreSQL store, held to what every store promises."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from holdfast.stores.postgres import PostgresStore
from holdfast.testing.store_suite import Advance, StoreSuite
from tests.servers import PostgresServer


@pytest.fixture(scope="module")
def schema(postgres_server: PostgresServer) -> Iterator[str]:
    """A schema for all of these tests: to make and to drop its tables takes longer than most of them."""
    schema = postgres_server.fresh_schema()
    yield schema
    postgres_server.drop_schema(schema)


@pytest.fixture
async def store(postgres_server: PostgresServer, schema: str) -> AsyncIterator[PostgresStore]:
    """A store of its own, whose tables are as empty as new ones."""
    store = PostgresStore(postgres_server.url(schema))
    yield store
    await store.close()
    _empty(postgres_server.dsn(), schema)


def _empty(dsn: str, schema: str) -> None:
    """Delete every row but those that say what the tables are, and every table that a test has made."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        verbs = {name: "DELETE FROM" if name.startswith("holdfast_") else "DROP TABLE" for (name,) in found}
        del verbs["holdfast_meta"]
        connection.execute("; ".join(f'{verb} "{schema}"."{name}"' for name, verb in verbs.items()).encode())


@pytest.fixture
def advance(store: PostgresStore) -> Advance:
    def advance(seconds: float) -> None:
        store.clock_offset_s += seconds

    return advance


class TestPostgresStore(StoreSuite):
    pass
