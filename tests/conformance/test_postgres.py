"""The PostgreSQL store, held to what every store promises."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.stores.postgres import PostgresStore
from holdfast.testing.store_suite import Advance, StoreSuite


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    yield store
    await store.close()


@pytest.fixture
def advance(store: PostgresStore) -> Advance:
    def advance(seconds: float) -> None:
        store.clock_offset_s += seconds

    return advance


class TestPostgresStore(StoreSuite):
    pass
