"""pgqueuer on PostgreSQL with asyncpg, its documentation's first choice; sync producers have psycopg."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import psycopg
import uvloop
from jobs_timing import BATCH, rate_of
from pgqueuer import PgQueuer
from pgqueuer.adapters.cli import supervisor
from pgqueuer.db import AsyncpgDriver, SyncPsycopgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries, SyncQueries

from jobs_peers.starts import note, send_each

URL = os.environ["HOLDFAST_URL"]


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    """Its worker's factory."""
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))

    @queue.entrypoint("noop")
    async def noop(_: Job) -> None:
        pass

    @queue.entrypoint("stamp")
    async def stamp(job: Job) -> None:
        note(float(job.payload or b""))

    yield queue


def work(batch: int) -> None:
    """Be its worker, until told to end: what `pgq run` does, whose options the newest typer no longer reads."""
    uvloop.run(supervisor.run(main, dequeue_timeout=timedelta(seconds=30), batch_size=batch))


def prepare() -> None:
    async def work() -> None:
        connection = await asyncpg.connect(URL)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    asyncio.run(work())


def _producer() -> SyncQueries:
    return SyncQueries(SyncPsycopgDriver(psycopg.connect(URL, autocommit=True)))


def enqueue(count: int) -> float:
    queries = _producer()

    def work() -> None:
        for _ in range(count):
            queries.enqueue("noop", b"{}")

    return rate_of(count, work)


def bulk(count: int) -> float:
    queries = _producer()

    def work() -> None:
        for _ in range(count // BATCH):
            queries.enqueue(["noop"] * BATCH, [b"{}"] * BATCH, [0] * BATCH)

    return rate_of(count, work)


def send(count: int) -> None:
    queries = _producer()
    send_each(lambda sent_at: queries.enqueue("stamp", str(sent_at).encode()), count)
