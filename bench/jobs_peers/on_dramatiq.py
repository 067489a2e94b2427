"""dramatiq on Redis: one process, eight threads."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from jobs_timing import rate_of

from jobs_peers.starts import note, send_each

dramatiq.set_broker(RedisBroker(url=os.environ["HOLDFAST_URL"]))


@dramatiq.actor
def noop() -> None:
    pass


@dramatiq.actor
def stamp(sent_at: float) -> None:
    note(sent_at)


def enqueue(count: int) -> float:
    def work() -> None:
        for _ in range(count):
            noop.send()

    return rate_of(count, work)


def send(count: int) -> None:
    send_each(stamp.send, count)
