"""celery on Redis without a result backend: prefork, with early and with late acknowledgement."""

from __future__ import annotations

import os

from celery import Celery, group
from jobs_timing import BATCH, rate_of

from jobs_peers.starts import note, send_each

app = Celery("bench", broker=os.environ["HOLDFAST_URL"])
app.conf.task_ignore_result = True
app.conf.task_acks_late = bool(os.environ.get("CELERY_ACKS_LATE"))


@app.task(name="noop")
def noop() -> None:
    pass


@app.task(name="stamp")
def stamp(sent_at: float) -> None:
    note(sent_at)


def enqueue(count: int) -> float:
    def work() -> None:
        for _ in range(count):
            noop.delay()

    return rate_of(count, work)


def bulk(count: int) -> float:
    """Groups: what it has for many at a time."""

    def work() -> None:
        for start in range(0, count, BATCH):
            group(noop.s() for _ in range(min(BATCH, count - start))).apply_async()

    return rate_of(count, work)


def send(count: int) -> None:
    send_each(stamp.delay, count)
