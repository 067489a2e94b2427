"""Work that comes with its end, in the tables."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from holdfast.errors import Unwritable
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.store_suite import new_job
from holdfast.testing.store_suite.ends import ended, tried
from holdfast.testing.store_suite.steps import found_ids
from holdfast.types import Change
from tests.unit.stores.endings import live_and_end, unwritable
from tests.unit.stores.sqlite.conftest import CheckBooks


async def test_the_books_agree_whatever_ends(store: SqliteStore, path: Path, check_books: CheckBooks) -> None:
    ids = await live_and_end(store, check_books)
    await store.prune(100)
    check_books()
    db = apsw.Connection(str(path))
    tokens = db.execute("SELECT count(*) FROM holdfast_claims WHERE worker = ''").fetchall()
    db.close()
    assert tokens == [(0,)], "an end leaves no claim of nobody behind"
    assert set(await found_ids(store)) < set(ids)


@pytest.mark.parametrize("place", ["reason", "attempt"])
async def test_one_that_cannot_be_written_fails_alone(store: SqliteStore, check_books: CheckBooks, place: str) -> None:
    good, bad, plain = ended(Change.BURY, tried(1)), unwritable(place), new_job()
    calls = (store.enqueue([good]), store.enqueue([ended(Change.BURY), bad]), store.enqueue([plain]))
    first, second, third = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(second, Unwritable)
    assert second.job_id == bad.id
    assert not isinstance(first, BaseException)
    assert not isinstance(third, BaseException)
    assert await found_ids(store) == [plain.id, good.id]
    check_books()
