"""huey: on Redis with eight threads, on SQLite with one and `fsync=True`."""

from __future__ import annotations

import os
from pathlib import Path

from huey import RedisHuey, SqliteHuey
from jobs_timing import rate_of

from jobs_peers.starts import note, send_each

if (url := os.environ["HOLDFAST_URL"]).startswith("redis:"):
    huey = RedisHuey("bench", url=url)
else:
    huey = SqliteHuey(filename=str(Path(os.environ["HOLDFAST_BENCH_FOLDER"]) / "huey.db"), fsync=True)


@huey.task()
def noop() -> None:
    pass


@huey.task()
def stamp(sent_at: float) -> None:
    note(sent_at)


def enqueue(count: int) -> float:
    def work() -> None:
        for _ in range(count):
            noop()

    return rate_of(count, work)


def send(count: int) -> None:
    send_each(stamp, count)
