"""What PostgreSQL itself can do: psycopg, the fewest statements that keep a queue's promises, default durability.

A job has a UUIDv7, a task, a payload, a priority and a due time, as ours has. It is claimed in that order under a
token, and acknowledged only where the token still holds.
"""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

import psycopg
from jobs_timing import BATCH, rate_of

from holdfast.clock import new_id

CLAIM = 200
SCHEMA = b"""
CREATE TABLE IF NOT EXISTS job (
    row bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id uuid NOT NULL, task text NOT NULL, payload bytea NOT NULL,
    priority int NOT NULL, due_at timestamptz NOT NULL, state smallint NOT NULL, attempt int NOT NULL, token bytea
);
CREATE UNIQUE INDEX IF NOT EXISTS by_id ON job (id);
CREATE INDEX IF NOT EXISTS ready ON job (priority DESC, due_at, row) WHERE state = 0;
"""
INSERT = b"""
INSERT INTO job (id, task, payload, priority, due_at, state, attempt)
VALUES (%s, 'noop', %s, 0, clock_timestamp(), 0, 0)
"""
INSERT_MANY = b"""
INSERT INTO job (id, task, payload, priority, due_at, state, attempt)
SELECT new.id, 'noop', new.payload, 0, clock_timestamp(), 0, 0 FROM unnest(%b::uuid[], %b::bytea[]) AS new (id, payload)
"""
TAKE = b"""
UPDATE job SET state = 1, attempt = attempt + 1, token = %b WHERE row = ANY (ARRAY (
    SELECT row FROM job WHERE state = 0 AND due_at <= clock_timestamp()
    ORDER BY priority DESC, due_at, row LIMIT %b FOR UPDATE SKIP LOCKED
)) RETURNING row, id, task, payload, attempt
"""
ACKNOWLEDGE = b"UPDATE job SET state = 2 WHERE row = ANY (%b::bigint[]) AND state = 1 AND token = %b"

Connection = psycopg.Connection[Any]


def _connection() -> Connection:
    connection = psycopg.connect(os.environ["HOLDFAST_URL"], autocommit=True, prepare_threshold=0)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(1)")
        for statement in SCHEMA.split(b";")[:-1]:
            connection.execute(statement)
    return connection


def _insert(connection: Connection, count: int, batch: int) -> None:
    for _ in range(count // batch):
        connection.execute(INSERT_MANY, ([UUID(new_id()) for _ in range(batch)], [b"{}"] * batch))


def enqueue(count: int) -> float:
    connection = _connection()

    def work() -> None:
        for _ in range(count):
            connection.execute(INSERT, (UUID(new_id()), b"{}"))

    return rate_of(count, work)


def bulk(count: int) -> float:
    connection = _connection()
    return rate_of(count, lambda: _insert(connection, count, BATCH))


def drain(count: int) -> float:
    """Of what is there: acknowledge the last 200 and claim the next in one commit."""
    connection = _connection()
    return rate_of(count, lambda: _drain(connection, count))


def _drain(connection: Connection, count: int) -> None:
    acknowledged, token = 0, b""
    claimed: list[tuple[Any, ...]] = []
    while True:
        with connection.transaction():
            if claimed:
                acknowledged += connection.execute(ACKNOWLEDGE, ([row for row, *_ in claimed], token)).rowcount
            token = os.urandom(16)
            claimed = connection.execute(TAKE, (token, CLAIM), binary=True).fetchall()
        if not claimed:
            break
    if acknowledged != count:
        raise RuntimeError(f"{acknowledged} of {count} jobs were acknowledged")


def whole_life(count: int) -> float:
    """Enqueued, claimed and acknowledged, in batches of 200."""
    connection = _connection()

    def work() -> None:
        _insert(connection, count, CLAIM)
        _drain(connection, count)

    return rate_of(count, work)
