"""taskiq on a Redis list, which forgets a job when it is taken, or on a Redis stream, which waits for its end."""

from __future__ import annotations

import asyncio
import os

from jobs_timing import async_rate_of
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from jobs_peers.starts import async_send_each, note

KINDS = {"list": ListQueueBroker, "stream": RedisStreamBroker}
# Jobs that are there before the first worker are to be read, so the group of a stream begins at its beginning.
OPTIONS = {"list": {}, "stream": {"consumer_id": "0"}}
kind = os.environ["TASKIQ_BROKER"]
broker = KINDS[kind](os.environ["HOLDFAST_URL"], **OPTIONS[kind])


@broker.task(task_name="noop")
async def noop() -> None:
    pass


@broker.task(task_name="stamp")
async def stamp(sent_at: float) -> None:
    note(sent_at)


def enqueue(count: int) -> float:
    async def work() -> None:
        for _ in range(count):
            await noop.kiq()

    async def timed() -> float:
        await broker.startup()
        rate = await async_rate_of(count, work)
        await broker.shutdown()
        return rate

    return asyncio.run(timed())


def send(count: int) -> None:
    async def work() -> None:
        await broker.startup()
        await async_send_each(stamp.kiq, count)
        await broker.shutdown()

    asyncio.run(work())
