"""A PostgreSQL store for each test, a plain connection beside it, and the check of its books."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from holdfast.stores.postgres import PostgresStore

CheckBooks = Callable[[], None]
Plain = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    yield store
    await store.close()


@pytest.fixture
def plain(postgres_url: str) -> Iterator[Plain]:
    """A connection of somebody else's, which looks into the schema of the store."""
    parts = urlsplit(postgres_url)
    schema = parse_qs(parts.query)["schema"][0]
    with psycopg.connect(parts._replace(query="").geturl(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}".encode())
        connection.execute(f"SET search_path = {schema}".encode())
        yield connection


LETTERS = """
SELECT job.seq, job.changed_at, holdfast_digest(job.fingerprint),
    holdfast_digest(job.fingerprint, lane.queue, lane.task, job.tenant, coalesce(job.failure_type, ''))
FROM holdfast_jobs AS job JOIN holdfast_lanes AS lane ON lane.lane = job.lane WHERE job.state = 'dead_letter' ORDER BY 1
"""
CAUSES = """
SELECT cause, max(fingerprint), max(queue), max(task), max(tenant), max(failure_type), sum(n)
FROM holdfast_causes GROUP BY 1 HAVING sum(n) <> 0 ORDER BY 1
"""
COUNTED = """
SELECT letter.cause, job.fingerprint, lane.queue, lane.task, job.tenant, coalesce(job.failure_type, ''), count(*)
FROM holdfast_letters AS letter JOIN holdfast_jobs AS job ON job.seq = letter.seq
JOIN holdfast_lanes AS lane ON lane.lane = job.lane
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1
"""


def check_letters(rows: Callable[[str], list[tuple[Any, ...]]]) -> None:
    """What is counted of dead letters is what the jobs say."""
    assert rows("SELECT seq, ended_at, fingerprint, cause FROM holdfast_letters ORDER BY 1") == rows(LETTERS)
    assert rows(CAUSES) == rows(COUNTED)
    hours = "SELECT hour, cause, sum(n) FROM holdfast_letter_hours GROUP BY 1, 2 HAVING sum(n) <> 0 ORDER BY 1, 2"
    counted = "SELECT floor(ended_at / 3600)::bigint, cause, count(*) FROM holdfast_letters GROUP BY 1, 2 ORDER BY 1, 2"
    assert rows(hours) == rows(counted)


@pytest.fixture
def check_books(plain: Plain) -> CheckBooks:
    """Says whether what is counted beside the jobs is what the jobs say."""

    def rows(sql: str) -> list[tuple[Any, ...]]:
        return plain.execute(sql.encode()).fetchall()

    def check() -> None:
        tallies = "SELECT lane, state, sum(n) FROM holdfast_tallies GROUP BY 1, 2 HAVING sum(n) <> 0 ORDER BY 1, 2"
        assert rows(tallies) == rows("SELECT lane, state, count(*) FROM holdfast_jobs GROUP BY 1, 2 ORDER BY 1, 2")
        held = "SELECT token, held FROM holdfast_claims WHERE held <> 0 ORDER BY 1"
        running = "SELECT token, count(*) FROM holdfast_jobs WHERE state = 'running' GROUP BY 1 ORDER BY 1"
        assert rows(held) == rows(running)
        waiting = (
            "SELECT lane, priority, due_at, seq FROM holdfast_jobs WHERE state IN ('queued', 'retrying', 'waiting')"
        )
        listed = (
            "SELECT lane, priority, due_at, seq FROM holdfast_ready "
            "UNION ALL SELECT lane, priority, wakes_at, seq FROM holdfast_delayed"
        )
        assert sorted(rows(waiting)) == sorted(rows(listed))
        right = "CASE state WHEN 'failed' THEN 1 WHEN 'dead_letter' THEN 2 WHEN 'cancelled' THEN 3 END"
        assert rows(f"SELECT id, state FROM holdfast_jobs WHERE given_up IS DISTINCT FROM {right}") == []
        noted = "SELECT seq FROM holdfast_jobs WHERE has_notes AND state <> 'completed' ORDER BY 1"
        assert rows("SELECT DISTINCT seq FROM holdfast_notes ORDER BY 1") == rows(noted)
        check_letters(rows)
        kept = "SELECT seq FROM holdfast_jobs WHERE keep_until IS NOT NULL"
        assert rows(f"{kept} AND seq NOT IN (SELECT unnest(seqs) FROM holdfast_kept)") == []

    return check
