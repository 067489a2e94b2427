"""What a claim costs with few jobs in the store and with a million, most of which may not be claimed.

The 999,000 are older than the 1,000 others, so they stand first in line. They have a queue, a breaker and a limit of
their own: each of these in turn is given no room, as a pause, an open breaker and an exhausted limit do.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median

from jobs_timing import BATCH

from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Exchange, Settlement, Store, WorkerRecord
from holdfast.types import Change, NewJob
from holdfast.wiring import open_store

LIMIT = 100
FREE = 1_000
HELD = "held"
GATES = ("breaker:held", "limit:held")
CAPS: dict[str, dict[str, int]] = {
    "all of them free": {},
    "behind an open breaker": {"breaker:held": 0},
    "in a paused queue": {"queue:held": 0},
    "of an exhausted limit": {"limit:held": 0},
}


def fill(url: str, held: int) -> float:
    """Enqueue so many jobs that can be held back, then 1,000 others; jobs a second."""

    async def work() -> float:
        store = open_store(url)
        began = time.perf_counter()
        for start in range(0, held, BATCH):
            count = min(BATCH, held - start)
            await store.enqueue([_job(HELD, GATES) for _ in range(count)])
        await store.enqueue([_job("default", ()) for _ in range(FREE)])
        rate = (held + FREE) / (time.perf_counter() - began)
        await store.close()
        return rate

    return asyncio.run(work())


def _job(queue: str, gates: tuple[str, ...]) -> NewJob:
    return NewJob(id=new_id(), task="noop", payload=b"{}", queue=queue, gates=gates)


def claim_ms(urls: list[str], rounds: int) -> list[dict[str, float]]:
    """Milliseconds to claim 100 jobs, the commit included: for each store the medians, by what holds jobs back.

    The stores take turns, so that all of them meet the same machine.
    """

    async def work() -> list[dict[str, float]]:
        stores = [open_store(url) for url in urls]
        worker = new_id()
        times: list[dict[str, list[float]]] = [{name: [] for name in CAPS} for _ in stores]
        for store in stores:
            await store.heartbeat(WorkerRecord(id=worker, lease_s=600.0))
        for _ in range(rounds):
            for name, caps in CAPS.items():
                for store, of_store in zip(stores, times, strict=True):
                    of_store[name].append(await _claim(store, worker, caps))
        for store in stores:
            await store.heartbeat(WorkerRecord(id=worker, lease_s=0.0))
            await store.close()
        return [{name: median(one) * 1e3 for name, one in of_store.items()} for of_store in times]

    return asyncio.run(work())


async def _claim(store: Store, worker: str, caps: dict[str, int]) -> float:
    """Seconds for one claim; what it brought is given back."""
    claim = Claim(worker=worker, token=new_token(), limit=LIMIT, caps=caps)
    began = time.perf_counter()
    answer = await store.exchange(Exchange(claim=claim))
    seconds = time.perf_counter() - began
    brought = answer.deliveries
    if len(brought) != LIMIT or (caps and any(one.queue == HELD for one in brought)):
        raise RuntimeError(f"claimed {len(brought)} jobs with {caps}")
    back = [Settlement(id=one.id, token=one.token, change=Change.RELEASE, is_refunded=True) for one in brought]
    released = await store.exchange(Exchange(settlements=back))
    if not all(released.settled):
        raise RuntimeError("a lease was lost")
    return seconds
