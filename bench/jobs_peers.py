"""The peers on SQLite, each as its own documentation has it, with every commit synced.

huey: `fsync=True`, and its consumer with one worker. localqueue: `DurabilityMode.DURABLE`, and its `Worker`.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs_timing import BATCH, Worker, command_of, drain_rate, pauses, rate_of, run, serve, started

FOLDER = "HOLDFAST_BENCH_PEER"
"""The environment variable that tells huey's consumer where its file is."""
ACKNOWLEDGED = 2
"""A status of localqueue's."""

if folder_of_huey := os.environ.get(FOLDER):
    from huey import SqliteHuey

    huey = SqliteHuey(filename=str(Path(folder_of_huey) / "huey.db"), fsync=True)

    @huey.task()
    def noop() -> None:
        pass

    @huey.task()
    def stamp(sent_at: float) -> None:
        print(time.monotonic() - sent_at, flush=True)


# ---- huey


def _huey(folder: str) -> Any:
    """This module once more, and now with huey in it."""
    os.environ[FOLDER] = folder
    import jobs_peers

    return jobs_peers


def huey_enqueue(folder: str, count: int) -> float:
    """Jobs a second, one by one."""
    enqueue = _huey(folder).noop

    def work() -> None:
        for _ in range(count):
            enqueue()

    return rate_of(count, work)


def huey_drain(folder: Path, count: int) -> float:
    """Jobs a second. It forgets a job when it takes it, so this is to the last durable start."""
    db = sqlite3.connect(folder / "huey.db")
    first = db.execute("SELECT min(id) FROM task").fetchone()[0]

    def count_done() -> int:
        oldest: int | None = db.execute("SELECT min(id) FROM task").fetchone()[0]
        return count if oldest is None else oldest - first

    with _huey_consumer(folder) as consumer:
        return drain_rate(count_done, count, [consumer], folder / "huey.log")


def huey_send(folder: str, count: int) -> None:
    """Send jobs with pauses between them; the consumer prints how long each took to start."""
    send = _huey(folder).stamp
    for sent_at in pauses(count):
        send(sent_at)
    time.sleep(1.0)


@contextmanager
def _huey_consumer(folder: Path) -> Iterator[Worker]:
    command = [sys.executable, "-m", "huey.bin.huey_consumer", "jobs_peers.huey", "--quiet", "--workers=1"]
    with started(command, {FOLDER: str(folder)}, folder / "huey.log") as consumer:
        yield consumer


# ---- localqueue


def _open(folder: str) -> Any:
    from localqueue import DurabilityMode, SimpleQueue

    return SimpleQueue[Any](folder, durability=DurabilityMode.DURABLE)


def localqueue_enqueue(folder: str, count: int) -> float:
    """Jobs a second, one by one."""
    with _open(folder) as queue:

        def work() -> None:
            for _ in range(count):
                queue.put({})

        return rate_of(count, work)


def localqueue_enqueue_many(folder: str, count: int) -> float:
    """Jobs a second, 1,000 at a time."""
    with _open(folder) as queue:

        def work() -> None:
            for _ in range(count // BATCH):
                queue.put_many([{}] * BATCH)

        return rate_of(count, work)


def localqueue_drain(folder: Path, count: int) -> float:
    """Jobs a second, to the last durable acknowledgement."""
    db = sqlite3.connect(folder / "localqueue.db")
    done = 0

    def count_done() -> int:
        nonlocal done  # one worker takes them in the order of their ids, which start at 1
        while db.execute("SELECT status FROM messages WHERE id = ?", (done + 1,)).fetchone() == (ACKNOWLEDGED,):
            done += 1
        return done

    with _localqueue_worker(folder) as worker:
        return drain_rate(count_done, count, [worker], folder / "localqueue.log")


def localqueue_send(folder: str, count: int) -> None:
    """Send jobs with pauses between them; the worker prints how long each took to start."""
    with _open(folder) as queue:
        for sent_at in pauses(count):
            queue.put({"sent_at": sent_at})
        time.sleep(1.0)


def localqueue_work(folder: str) -> None:
    """Be its worker, until told to end."""
    import localqueue

    def handle(job: Any) -> None:
        if job.data:
            print(time.monotonic() - job.data["sent_at"], flush=True)

    with _open(folder) as queue:
        localqueue.Worker(queue, handle).run()


@contextmanager
def _localqueue_worker(folder: Path) -> Iterator[Worker]:
    with started(command_of("jobs_peers", "localqueue_work", folder=folder), {}, folder / "localqueue.log") as worker:
        yield worker


# ---- both


def latencies_s(peer: str, folder: Path, count: int) -> list[float]:
    """Seconds from enqueueing to the start on an idle worker of that peer."""
    workers = {"huey": _huey_consumer, "localqueue": _localqueue_worker}
    with workers[peer](folder):
        time.sleep(1.0)
        run("jobs_peers", f"{peer}_send", folder=folder, count=count)
    lines = (folder / f"{peer}.log").read_text().splitlines()
    times = [float(line) for line in lines]
    if len(times) != count:
        raise RuntimeError(f"{peer} ran {len(times)} of {count} jobs")
    return times


if __name__ == "__main__":
    serve(huey_enqueue, huey_send, localqueue_enqueue, localqueue_enqueue_many, localqueue_send, localqueue_work)
