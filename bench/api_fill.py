"""Fills a store for bench-api: so many completed jobs and so many dead letters, through the store's own verbs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

from msgspec import json

from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Delivery, Exchange, Settlement, Store, WorkerRecord
from holdfast.types import Attempt, Change, FailureType, NewJob
from holdfast.wiring import open_store

TASKS = ("charge", "mail", "resize", "export", "sync")
TENANTS = ("", "acme", "globex", "initech", "umbrella", "hooli")
GROUPS = 40
AT_ONCE = 1000
_TYPES = tuple(FailureType)
_LEASE_S = 3600.0
_WORKER = "fill"


def fill(url: str, jobs: int, letters: int) -> None:
    """Put so many completed jobs, and so many dead letters of 40 causes over 5 tasks and 6 tenants, into a store.

    The letters are spread evenly among the jobs. Nothing else may be ready in the store.
    """
    asyncio.run(_fill(url, jobs, letters))


async def _fill(url: str, jobs: int, letters: int) -> None:
    store = open_store(url)
    try:
        total = jobs + letters
        settlements: Sequence[Settlement] = ()
        buried = 0
        for begun in range(0, total, AT_ONCE):
            n = min(AT_ONCE, total - begun)
            await store.heartbeat(WorkerRecord(id=_WORKER, lease_s=_LEASE_S))
            await store.enqueue([_job(begun + place) for place in range(n)])
            claim = Claim(worker=_WORKER, token=new_token(), limit=n)
            answer = await store.exchange(Exchange(settlements=settlements, claim=claim))
            due = letters * (begun + n) // total - buried
            settlements = [_letter(one) if place < due else _done(one) for place, one in enumerate(answer.deliveries)]
            buried += due
        await store.exchange(Exchange(settlements=settlements))
        await store.prune(1)  # nothing is old, but what was counted is summed up
        await _check(store, jobs, letters)
    finally:
        await store.heartbeat(WorkerRecord(id=_WORKER, lease_s=0.0))
        await store.close()


async def _check(store: Store, jobs: int, letters: int) -> None:
    found: dict[str, int] = {}
    for tally in (await store.stats()).tallies:
        found[tally.state.value] = found.get(tally.state.value, 0) + tally.n
    if found.get("completed", 0) < jobs or found.get("dead_letter", 0) < letters:
        raise SystemExit(f"the store was to have {jobs} jobs and {letters} letters, and has {found}")


def _job(number: int) -> NewJob:
    payload = b'{"order": %d, "cents": 1999, "note": "of the bench"}' % number
    task, tenant = TASKS[number % len(TASKS)], TENANTS[number // len(TASKS) % len(TENANTS)]
    return NewJob(id=new_id(), task=task, payload=payload, tenant=tenant)


def _done(one: Delivery) -> Settlement:
    return Settlement(
        id=one.id, token=one.token, change=Change.COMPLETE, result=b'"done"', elapsed_s=0.01, started_at=one.claimed_at
    )


def _letter(one: Delivery) -> Settlement:
    """Of a cause that follows from the job, so that a large store has the causes of a small one, and more of each."""
    number = json.decode(one.payload)["order"]
    cause = number % GROUPS
    failure_type = _TYPES[cause % len(_TYPES)]
    attempt = Attempt(
        number=one.attempt,
        started_at=one.claimed_at,
        ended_at=one.claimed_at + 0.01,
        worker=_WORKER,
        outcome=Change.BURY,
        failure_type=failure_type,
        severity=failure_type.severity,
        error_name=f"shop.Error{cause}",
        message=f"cause {cause}: order {number} was refused",
        traceback="Traceback (most recent call last): …",
        fingerprint=f"1:cause-{cause}",
    )
    return Settlement(
        id=one.id,
        token=one.token,
        change=Change.BURY,
        elapsed_s=0.01,
        started_at=one.claimed_at,
        attempt=attempt,
        reason="retries used up",
    )


def main() -> None:
    """`python bench/api_fill.py URL [jobs] [letters]`."""
    url, *sizes = sys.argv[1:]
    jobs, letters = (int(size) for size in (*sizes, 1_000_000, 100_000)[:2])
    began = time.perf_counter()
    fill(url, jobs, letters)
    print(f"{jobs:,} jobs and {letters:,} letters in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
