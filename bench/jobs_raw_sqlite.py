"""What SQLite itself can do: the same file settings, no library, the fewest statements that keep a queue's promises.

A job has a UUIDv7, a task, a payload, a priority and a due time, as ours has. It is claimed in that order under a
token, and acknowledged only where the token still holds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
from jobs_timing import BATCH, rate_of

from holdfast.clock import new_id

CLAIM = 200
SCHEMA = """
CREATE TABLE IF NOT EXISTS job (
    row INTEGER PRIMARY KEY, id TEXT NOT NULL, task TEXT NOT NULL, payload BLOB NOT NULL, priority INTEGER NOT NULL,
    due_at REAL NOT NULL, state INTEGER NOT NULL, attempt INTEGER NOT NULL, token BLOB
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS by_id ON job (id);
CREATE INDEX IF NOT EXISTS ready ON job (priority DESC, due_at, row) WHERE state = 0;
"""
INSERT = "INSERT INTO job (id, task, payload, priority, due_at, state, attempt) VALUES (?, 'noop', ?, 0, ?, 0, 0)"
TAKE = """
UPDATE job SET state = 1, attempt = attempt + 1, token = ?1 WHERE row IN (
    SELECT row FROM job WHERE state = 0 AND due_at <= ?2 ORDER BY priority DESC, due_at, row LIMIT ?3
) RETURNING row, id, task, payload, attempt
"""
ACKNOWLEDGE = "UPDATE job SET state = 2 WHERE row = ? AND state = 1 AND token = ?"


def open_file() -> apsw.Connection:
    db = apsw.Connection(str(Path(os.environ["HOLDFAST_BENCH_FOLDER"]) / "raw.db"))
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        db.execute(f"PRAGMA {pragma}")
    db.execute(SCHEMA)
    return db


def rows(count: int) -> Iterator[tuple[str, bytes, float]]:
    for _ in range(count):
        yield new_id(), b"{}", time.time()


def enqueue(count: int) -> float:
    """Rows a second, each in a commit of its own."""
    db = open_file()

    def work() -> None:
        for row in rows(count):
            db.execute(INSERT, row)

    return rate_of(count, work)


def bulk(count: int) -> float:
    """Rows a second, in commits of 1,000."""
    db = open_file()

    def work() -> None:
        for _ in range(count // BATCH):
            db.execute("BEGIN IMMEDIATE")
            db.executemany(INSERT, rows(BATCH))
            db.execute("COMMIT")

    return rate_of(count, work)


def drain(count: int) -> float:
    """Jobs a second of what is in the file: acknowledge the last 200 and claim the next in one commit."""
    db = open_file()
    acknowledged = 0

    def work() -> None:
        nonlocal acknowledged
        token = b""
        claimed: list[tuple[Any, ...]] = []
        while True:
            db.execute("BEGIN IMMEDIATE")
            if claimed:
                before = db.total_changes()
                db.executemany(ACKNOWLEDGE, [(row, token) for row, *_ in claimed])
                acknowledged += db.total_changes() - before
            token = os.urandom(16)
            claimed = db.execute(TAKE, (token, time.time(), CLAIM)).fetchall()
            db.execute("COMMIT")
            if not claimed:
                return

    rate = rate_of(count, work)
    if acknowledged != count:
        raise RuntimeError(f"{acknowledged} of {count} rows were acknowledged")
    return rate


def whole_life(count: int) -> float:
    """Jobs a second, enqueued, claimed and acknowledged in batches of 200."""
    db = open_file()

    def work() -> None:
        for _ in range(count // CLAIM):
            db.execute("BEGIN IMMEDIATE")
            db.executemany(INSERT, rows(CLAIM))
            db.execute("COMMIT")
        drain(count)

    return rate_of(count, work)
