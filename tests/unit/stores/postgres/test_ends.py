"""Work that comes with its end, in the tables, while others change the same jobs."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError, Unwritable
from holdfast.ports import Enqueued
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.store_suite import enqueue, new_job
from holdfast.testing.store_suite.ends import ended, tried, with_end
from holdfast.testing.store_suite.steps import found_ids, record_of
from holdfast.types import Change, JobState
from tests.unit.stores.endings import live_and_end, unwritable
from tests.unit.stores.postgres.conftest import CheckBooks, Plain

CLOCK = SystemClock()
SOMEBODY_WAITS = "SELECT 1 FROM pg_locks WHERE NOT granted"


async def test_the_books_agree_whatever_ends(store: PostgresStore, check_books: CheckBooks) -> None:
    ids = await live_and_end(store, check_books)
    await store.prune(100)
    check_books()
    assert set(await found_ids(store)) < set(ids)


@pytest.mark.parametrize("place", ["reason", "attempt"])
async def test_one_that_cannot_be_written_fails_alone(
    store: PostgresStore, check_books: CheckBooks, place: str
) -> None:
    good, bad, plain_job = ended(Change.BURY, tried(1)), unwritable(place), new_job()
    calls = (store.enqueue([good]), store.enqueue([ended(Change.BURY), bad]), store.enqueue([plain_job]))
    first, second, third = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(second, Unwritable)
    assert second.job_id == bad.id
    assert not isinstance(first, BaseException)
    assert not isinstance(third, BaseException)
    assert set(await found_ids(store)) == {plain_job.id, good.id}
    check_books()


async def end_while_others_change_it(store: PostgresStore, plain: Plain, job_id: str, *changes: str) -> Enqueued:
    """Send an end that must wait for somebody else's change of the same job; what it is answered."""
    with plain.transaction():
        for sql in changes:
            plain.execute(sql.encode(), {"id": job_id})
        ending = asyncio.ensure_future(store.enqueue([with_end(job_id, Change.BURY, tried(1))]))
        while not plain.execute(SOMEBODY_WAITS).fetchone():
            assert not ending.done(), "it did not wait"
            await CLOCK.asleep(0.005)
    (answer,) = await ending
    return answer


async def test_one_that_ended_a_moment_before_stays_so(store: PostgresStore, plain: Plain) -> None:
    (job_id,) = await enqueue(store, new_job())
    other = "UPDATE holdfast_jobs SET state = 'cancelled', given_up = 3 WHERE id = %(id)s"
    answer = await end_while_others_change_it(store, plain, job_id, other)
    assert answer == Enqueued(job_id, is_new=False, state=JobState.CANCELLED)
    record = await record_of(store, job_id)
    assert (record.state, record.attempts) == (JobState.CANCELLED, ())


async def test_one_that_was_removed_a_moment_before_is_stored_anew(
    store: PostgresStore, plain: Plain, check_books: CheckBooks
) -> None:
    (job_id,) = await enqueue(store, new_job())
    removals = (
        "DELETE FROM holdfast_ready",
        "DELETE FROM holdfast_tallies",
        "DELETE FROM holdfast_jobs WHERE id = %(id)s",
    )
    answer = await end_while_others_change_it(store, plain, job_id, *removals)
    assert answer == Enqueued(job_id, is_new=True, state=JobState.DEAD_LETTER)
    assert (await record_of(store, job_id)).attempts == (tried(1),)
    check_books()


async def test_an_end_is_not_written_by_a_callers_connection(store: PostgresStore, postgres_url: str) -> None:
    dsn = urlsplit(postgres_url)._replace(query="").geturl()
    job = ended(Change.BURY)
    connection: psycopg.Connection[Any]
    with psycopg.connect(dsn) as connection, pytest.raises(ConfigError, match=r"connection: .* comes with its end"):
        store.enqueue_now([new_job(), job], connection)
    async with await psycopg.AsyncConnection.connect(dsn) as aconnection:
        with pytest.raises(ConfigError, match=r"connection: .* comes with its end"):
            await store.enqueue([job], aconnection)
    assert await found_ids(store) == []
