"""localqueue on SQLite: `DurabilityMode.DURABLE`, and its `Worker`."""

from __future__ import annotations

import os
from typing import Any

from jobs_timing import BATCH, rate_of
from localqueue import DurabilityMode, SimpleQueue, Worker

from jobs_peers.starts import note, send_each


def _open() -> Any:
    return SimpleQueue[Any](os.environ["HOLDFAST_BENCH_FOLDER"], durability=DurabilityMode.DURABLE)


def enqueue(count: int) -> float:
    with _open() as queue:

        def work() -> None:
            for _ in range(count):
                queue.put({})

        return rate_of(count, work)


def bulk(count: int) -> float:
    with _open() as queue:

        def work() -> None:
            for _ in range(count // BATCH):
                queue.put_many([{}] * BATCH)

        return rate_of(count, work)


def send(count: int) -> None:
    with _open() as queue:
        send_each(lambda sent_at: queue.put({"sent_at": sent_at}), count)


def work() -> None:
    """Be its worker, until told to end."""

    def handle(job: Any) -> None:
        if job.data:
            note(job.data["sent_at"])

    with _open() as queue:
        Worker(queue, handle).run()
