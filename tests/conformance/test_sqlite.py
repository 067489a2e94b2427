"""The SQLite store, held to what every store promises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.store_suite import Advance, StoreSuite


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db")
    yield store
    await store.close()


@pytest.fixture
def advance(store: SqliteStore) -> Advance:
    def advance(seconds: float) -> None:
        store.clock_offset_s += seconds

    return advance


class TestSqliteStore(StoreSuite):
    pass
