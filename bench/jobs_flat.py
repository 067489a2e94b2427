"""What a claim costs with few jobs in the file and with a million, most of which may not be claimed.

The 999,000 are older than the 1,000 others, so they stand first in line. They have a queue, a breaker and a limit of
their own: each of these in turn is given no room, as a pause, an open breaker and an exhausted limit do.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

from jobs_timing import BATCH, serve

from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Exchange, Settlement, WorkerRecord
from holdfast.stores.sqlite import SqliteStore
from holdfast.types import Change, NewJob

LIMIT = 100
FREE = 1_000
GATES = ("breaker:held", "limit:held")
CAPS: dict[str, dict[str, int]] = {
    "all of them free": {},
    "behind an open breaker": {"breaker:held": 0},
    "in a paused queue": {"queue:held": 0},
    "of an exhausted limit": {"limit:held": 0},
}


def fill(folder: str, held: int) -> float:
    """Enqueue so many jobs that can be held back, then 1,000 others; jobs a second."""

    async def work() -> float:
        store = SqliteStore(Path(folder) / "holdfast.db")
        began = time.perf_counter()
        for start in range(0, held, BATCH):
            count = min(BATCH, held - start)
            await store.enqueue([_job("held", GATES) for _ in range(count)])
        await store.enqueue([_job("default", ()) for _ in range(FREE)])
        rate = (held + FREE) / (time.perf_counter() - began)
        await store.close()
        return rate

    return asyncio.run(work())


def _job(queue: str, gates: tuple[str, ...]) -> NewJob:
    return NewJob(id=new_id(), task="noop", payload=b"{}", queue=queue, gates=gates)


def claim_ms(folder: str, rounds: int) -> dict[str, float]:
    """Milliseconds to claim 100 jobs, the commit included: the median, for each way of holding jobs back."""

    async def work() -> dict[str, float]:
        store = SqliteStore(Path(folder) / "holdfast.db")
        await store.heartbeat(WorkerRecord(id="bench", lease_s=600.0))
        times: dict[str, list[float]] = {name: [] for name in CAPS}
        for _ in range(rounds):
            for name, caps in CAPS.items():
                times[name].append(await _claim(store, caps))
        await store.heartbeat(WorkerRecord(id="bench", lease_s=0.0))
        await store.close()
        return {name: median(one) * 1e3 for name, one in times.items()}

    return asyncio.run(work())


async def _claim(store: SqliteStore, caps: dict[str, int]) -> float:
    claim = Claim(worker="bench", token=new_token(), limit=LIMIT, caps=caps)
    began = time.perf_counter()
    answer = await store.exchange(Exchange(claim=claim))
    seconds = time.perf_counter() - began
    if len(answer.deliveries) != LIMIT or (caps and any(one.queue == "held" for one in answer.deliveries)):
        raise RuntimeError(f"claimed {len(answer.deliveries)} jobs with {caps}")
    back = [
        Settlement(id=one.id, token=one.token, change=Change.RELEASE, is_refunded=True) for one in answer.deliveries
    ]
    released = await store.exchange(Exchange(settlements=back))
    if not all(released.settled):
        raise RuntimeError("a lease was lost")
    return seconds


if __name__ == "__main__":
    serve(fill, claim_ms)
