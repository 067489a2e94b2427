"""What Redis itself can do: redis-py with hiredis and one Lua script, the fewest commands that keep a queue's promises.

A job has a UUIDv7, a task, a payload and a due time. It is claimed in that order under a token, and acknowledged only
where the token still holds. Its record stays, as ours does.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import redis
from jobs_timing import BATCH, rate_of

from holdfast.clock import new_id

CLAIM = 200
QUEUE, PREFIX = "{raw}:queue", "{raw}:job:"
SCRIPT = (Path(__file__).parent / "jobs_raw_redis.lua").read_text()


def _client() -> redis.Redis:
    return redis.Redis.from_url(os.environ["HOLDFAST_URL"])


def _add(pipe: Any) -> None:
    job = new_id()
    pipe.hset(PREFIX + job, mapping={"task": "noop", "payload": b"{}", "state": 0, "attempt": 0})
    pipe.zadd(QUEUE, {job: time.time()})


def _insert(client: redis.Redis, count: int, batch: int) -> None:
    for _ in range(count // batch):
        with client.pipeline(transaction=True) as pipe:
            for _ in range(batch):
                _add(pipe)
            pipe.execute()


def enqueue(count: int) -> float:
    client = _client()
    return rate_of(count, lambda: _insert(client, count, 1))


def bulk(count: int) -> float:
    client = _client()
    return rate_of(count, lambda: _insert(client, count, BATCH))


def drain(count: int) -> float:
    """Of what is there: acknowledge the last 200 and claim the next in one call."""
    client = _client()
    return rate_of(count, lambda: _drain(client, count))


def _drain(client: redis.Redis, count: int) -> None:
    script = client.register_script(SCRIPT)
    acknowledged, last = 0, b""
    ids: list[bytes] = []
    while True:
        token = os.urandom(16)
        done, claimed = script(keys=[QUEUE, PREFIX], args=[last, token, time.time(), CLAIM, *ids])
        acknowledged += done
        last, ids = token, [one[0] for one in claimed]
        if not claimed:
            break
    if acknowledged != count:
        raise RuntimeError(f"{acknowledged} of {count} jobs were acknowledged")


def whole_life(count: int) -> float:
    """Enqueued, claimed and acknowledged, in batches of 200."""
    client = _client()

    def work() -> None:
        _insert(client, count, CLAIM)
        _drain(client, count)

    return rate_of(count, work)
