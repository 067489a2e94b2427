"""arq on Redis, in an environment of its own: it needs a redis-py older than what the others take."""

from __future__ import annotations

import asyncio
import os
from typing import Any, ClassVar

from arq import create_pool
from arq.connections import RedisSettings
from jobs_timing import async_rate_of

from jobs_peers.starts import async_send_each, note

server = RedisSettings.from_dsn(os.environ["HOLDFAST_URL"])


async def noop(_: Any) -> None:
    pass


async def stamp(_: Any, sent_at: float) -> None:
    note(sent_at)


class Settings:
    """Its worker's."""

    functions: ClassVar = [noop, stamp]
    redis_settings = server


def enqueue(count: int) -> float:
    async def timed() -> float:
        pool = await create_pool(server)

        async def work() -> None:
            for _ in range(count):
                await pool.enqueue_job("noop")

        rate = await async_rate_of(count, work)
        await pool.aclose()
        return rate

    return asyncio.run(timed())


def send(count: int) -> None:
    async def work() -> None:
        pool = await create_pool(server)
        await async_send_each(lambda sent_at: pool.enqueue_job("stamp", sent_at), count)
        await pool.aclose()

    asyncio.run(work())
