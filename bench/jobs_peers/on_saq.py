"""saq on Redis, with its default of ten jobs at a time."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from jobs_timing import async_rate_of
from saq import Queue

from jobs_peers.starts import async_send_each, note

queue = Queue.from_url(os.environ["HOLDFAST_URL"])


async def noop(_: Any) -> None:
    pass


async def stamp(_: Any, *, sent_at: float) -> None:
    note(sent_at)


settings = {"queue": queue, "functions": [noop, stamp]}


def enqueue(count: int) -> float:
    async def work() -> None:
        for _ in range(count):
            await queue.enqueue("noop")

    async def timed() -> float:
        await queue.connect()
        rate = await async_rate_of(count, work)
        await queue.disconnect()
        return rate

    return asyncio.run(timed())


def send(count: int) -> None:
    async def work() -> None:
        await queue.connect()
        await async_send_each(lambda sent_at: queue.enqueue("stamp", sent_at=sent_at), count)
        await queue.disconnect()

    asyncio.run(work())
