"""awa on PostgreSQL as `migrate()` leaves it, with its defaults or tuned for a hot queue, or with its queue storage."""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from awa import AsyncClient, Client
from jobs_timing import BATCH, rate_of

from jobs_peers.starts import note, send_each

URL = os.environ["HOLDFAST_URL"]
QUEUE = "default"
HAS_QUEUE_STORAGE = bool(os.environ.get("AWA_QUEUE_STORAGE"))
STARTED = Path(os.environ["HOLDFAST_BENCH_FOLDER"]) / "started"
"""How many no-op jobs it has started."""


@dataclass
class Noop:
    nothing: int = 0


@dataclass
class Stamp:
    sent_at: float


def prepare() -> None:
    client = Client(URL)
    client.migrate()
    if HAS_QUEUE_STORAGE:
        client.install_queue_storage()


def enqueue(count: int) -> float:
    client = Client(URL)
    job = Noop()

    def work() -> None:
        for _ in range(count):
            client.insert(job)

    return rate_of(count, work)


def bulk(count: int) -> float:
    client = Client(URL)
    insert = client.enqueue_many_copy if HAS_QUEUE_STORAGE else client.insert_many_copy

    def work() -> None:
        for _ in range(count // BATCH):
            insert([Noop() for _ in range(BATCH)])

    return rate_of(count, work)


def send(count: int) -> None:
    client = Client(URL)
    send_each(lambda sent_at: client.insert(Stamp(sent_at)), count)


def work(workers: int, claimers: int | None, batch: int | None) -> None:
    """Be its worker, until told to end."""

    if not STARTED.exists():
        STARTED.write_bytes(bytes(8))
    with STARTED.open("r+b") as file, mmap.mmap(file.fileno(), 8) as page:
        asyncio.run(_serve(workers, claimers, batch, memoryview(page).cast("q")))


async def _serve(workers: int, claimers: int | None, batch: int | None, started: memoryview) -> None:
    client = AsyncClient(URL)

    @client.task(Noop, queue=QUEUE)
    async def noop(_: Any) -> None:
        started[0] += 1

    @client.task(Stamp, queue=QUEUE)
    async def stamp(job: Any) -> None:
        note(job.args.sent_at)

    tuned = {} if claimers is None else {"claimers": claimers, "claim_batch_size": batch}
    await client.start([{"name": QUEUE, "max_workers": workers, **tuned}])
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await client.shutdown()
