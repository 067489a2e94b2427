"""rq on Redis: its default worker, which forks for every job; it has the task's module before it forks, as its
documentation advises.
"""

from __future__ import annotations

import os

from jobs_timing import BATCH, rate_of
from redis import Redis
from rq import Queue, Worker

from jobs_peers.starts import note, send_each

queue = Queue(connection=Redis.from_url(os.environ["HOLDFAST_URL"]))


def noop() -> None:
    pass


def stamp(sent_at: float) -> None:
    note(sent_at)


def enqueue(count: int) -> float:
    def work() -> None:
        for _ in range(count):
            queue.enqueue(noop)

    return rate_of(count, work)


def bulk(count: int) -> float:
    def work() -> None:
        for start in range(0, count, BATCH):
            queue.enqueue_many([Queue.prepare_data(noop) for _ in range(min(BATCH, count - start))])

    return rate_of(count, work)


def send(count: int) -> None:
    send_each(lambda sent_at: queue.enqueue(stamp, sent_at), count)


def work() -> None:
    """Be its worker, until told to end."""
    Worker([queue], connection=queue.connection).work(logging_level="WARNING")
