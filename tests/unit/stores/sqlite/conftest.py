"""A SQLite store for each test, and the check of its books."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import apsw
import pytest

from holdfast.stores.sqlite import SqliteStore

CheckBooks = Callable[[], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    await store.close()


LETTERS = """
SELECT job.seq, cause.cause, job.changed_at, job.fingerprint
FROM holdfast_jobs AS job JOIN holdfast_lanes AS lane ON lane.lane = job.lane
LEFT JOIN holdfast_causes AS cause ON cause.fingerprint = job.fingerprint AND cause.queue = lane.queue
    AND cause.task = lane.task AND cause.tenant = job.tenant AND cause.failure_type = coalesce(job.failure_type, '')
WHERE job.state = 'dead_letter' ORDER BY 1
"""
UNMARKED = """
SELECT job.id FROM holdfast_jobs AS job
WHERE ('l' || job.lane, job.seq / 256) NOT IN (SELECT name, block FROM holdfast_marks)
    OR job.tenant <> '' AND ('t' || job.tenant, job.seq / 256) NOT IN (SELECT name, block FROM holdfast_marks)
"""


def check_letters(db: apsw.Connection) -> None:
    """What is counted of dead letters is what the jobs say, and each job is marked where it is."""
    for found, counted in (
        ("SELECT seq, cause, ended_at, fingerprint FROM holdfast_letters ORDER BY 1", LETTERS),
        (
            "SELECT cause, n FROM holdfast_causes ORDER BY 1",
            "SELECT cause, count(*) FROM holdfast_letters GROUP BY 1 ORDER BY 1",
        ),
        (
            "SELECT hour, cause, n FROM holdfast_letter_hours ORDER BY 1, 2",
            "SELECT CAST(ended_at / 3600 AS INTEGER), cause, count(*) FROM holdfast_letters "
            "GROUP BY 1, 2 ORDER BY 1, 2",
        ),
    ):
        assert db.execute(found).fetchall() == db.execute(counted).fetchall()
    assert db.execute(UNMARKED).fetchall() == []


@pytest.fixture
def check_books(path: Path) -> CheckBooks:
    """Says whether what is counted beside the jobs is what the jobs say."""

    def check() -> None:
        db = apsw.Connection(str(path))
        try:
            tallies = db.execute("SELECT lane, state, n FROM holdfast_tallies WHERE n <> 0 ORDER BY 1, 2").fetchall()
            counted = db.execute(
                "SELECT lane, state, count(*) FROM holdfast_jobs GROUP BY 1, 2 ORDER BY 1, 2"
            ).fetchall()
            assert tallies == counted
            held = db.execute("SELECT token, held FROM holdfast_claims WHERE held <> 0 ORDER BY 1").fetchall()
            running = "SELECT token, count(*) FROM holdfast_jobs WHERE state = 'running' GROUP BY 1 ORDER BY 1"
            assert held == db.execute(running).fetchall()
            for condition in (
                "(is_ready IS NOT NULL OR wakes_at IS NOT NULL) <> (state IN ('queued', 'retrying', 'waiting'))",
                "is_ready IS NOT NULL AND wakes_at IS NOT NULL",
                "given_up IS NOT CASE state WHEN 'failed' THEN 1 WHEN 'dead_letter' THEN 2 WHEN 'cancelled' THEN 3 END",
            ):
                assert db.execute(f"SELECT id, state FROM holdfast_jobs WHERE {condition}").fetchall() == []
            noted = db.execute("SELECT seq FROM holdfast_jobs WHERE has_notes ORDER BY 1").fetchall()
            assert db.execute("SELECT DISTINCT seq FROM holdfast_notes ORDER BY 1").fetchall() == noted
            check_letters(db)
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        finally:
            db.close()

    return check
