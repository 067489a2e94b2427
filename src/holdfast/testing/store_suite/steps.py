# ruff: noqa: S101
# The one assert here is a step of a test.
"""The steps that the suite's tests are made of, each a line in a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.clock import new_id, new_token
from holdfast.ports import (
    Changed,
    Claim,
    Delivery,
    Enqueued,
    Exchange,
    Exchanged,
    Operation,
    Page,
    Query,
    Settlement,
    Store,
    WorkerRecord,
)
from holdfast.types import Attempt, Change, FailureType, JobRecord, JobState, NewJob, Severity

Advance = Callable[[float], None]
"""Moves the store's clock."""

LEASE_S: Final = 60.0
"""The lease of the suite's workers: much longer than any test takes."""
KEY_WINDOW_S: Final = 86_400.0
"""The default of every store."""
HOUR_S: Final = 3600.0

ENDING: Final = (Change.COMPLETE, Change.BURY, Change.FAIL, Change.DISCARD)
"""The settling changes after which a job never runs again by itself."""
RETURNING: Final = (Change.RETRY, Change.PARK, Change.RELEASE)
"""The settling changes after which it is claimed again."""
SETTLING: Final = (*ENDING, *RETURNING)
ENDED: Final = tuple(state for state in JobState if state.is_terminal)
_CHANGE_TO: Final = {
    JobState.COMPLETED: Change.COMPLETE,
    JobState.FAILED: Change.FAIL,
    JobState.DEAD_LETTER: Change.BURY,
    JobState.RETRYING: Change.RETRY,
    JobState.WAITING: Change.PARK,
}


def is_near(instant: float | None, other: float) -> bool:
    """Whether two instants are the same, but for the time that a test takes on a slow machine."""
    return instant is not None and abs(instant - other) < 20.0


def is_same(instant: float | None, other: float) -> bool:
    """Whether two instants are the same, but for how a store writes them down."""
    return instant is not None and abs(instant - other) < 0.001


def new_job(task: str = "greet", payload: bytes = b"{}", **options: Any) -> NewJob:
    """A job with an id of its own."""
    return NewJob(id=new_id(), task=task, payload=payload, **options)


async def enqueue(store: Store, *jobs: NewJob) -> list[str]:
    """Put these in the store and return their ids; one plain job if none is given."""
    answers: list[Enqueued] = await store.enqueue(jobs or (new_job(),))
    return [answer.id for answer in answers]


async def beat(store: Store, worker: str = "w1", lease_s: float = LEASE_S) -> bool:
    """A heartbeat of a worker; whether it is alive."""
    return (await store.heartbeat(WorkerRecord(id=worker, lease_s=lease_s))).is_alive


async def exchange_claim(store: Store, limit: int = 100, worker: str = "w1", **options: Any) -> Exchanged:
    """A claim, with a token of its own unless one is given."""
    claim = Claim(worker=worker, token=options.pop("token", None) or new_token(), limit=limit, **options)
    return await store.exchange(Exchange(claim=claim))


async def claim(store: Store, limit: int = 100, worker: str = "w1", **options: Any) -> list[Delivery]:
    """A heartbeat and a claim: what the worker got."""
    await beat(store, worker)
    return list((await exchange_claim(store, limit, worker, **options)).deliveries)


async def claimed_ids(store: Store, limit: int = 100, **options: Any) -> list[str]:
    """The ids of what a claim brought, in its order."""
    return [delivery.id for delivery in await claim(store, limit, **options)]


async def start(store: Store, worker: str = "w1", *, is_alone: bool = False, **options: Any) -> Delivery:
    """Enqueue one job and claim it; nothing else may be ready."""
    job = new_job(**options)
    await enqueue(store, job)
    (delivery,) = await claim(store, worker=worker, is_alone=is_alone)
    assert delivery.id == job.id
    return delivery


async def settle(store: Store, delivery: Delivery, change: Change, **options: Any) -> bool:
    """Settle what was delivered; whether it took effect."""
    settlement = Settlement(id=delivery.id, token=delivery.token, change=change, **options)
    (is_settled,) = (await store.exchange(Exchange(settlements=[settlement]))).settled
    return is_settled


async def complete(store: Store, deliveries: Sequence[Delivery]) -> None:
    """Complete all of these together."""
    done = [Settlement(id=one.id, token=one.token, change=Change.COMPLETE) for one in deliveries]
    await store.exchange(Exchange(settlements=done))


async def reclaim(store: Store, worker: str = "w2", limit: int = 100) -> list[Delivery]:
    """A heartbeat of this worker, and what it gets to judge."""
    await beat(store, worker)
    return await store.reclaim(worker, new_token(), limit)


async def orphan(store: Store, advance: Advance, *, is_alone: bool = False) -> Delivery:
    """The delivery of a job whose worker w1 is silent since then, for longer than its lease."""
    delivery = await start(store, is_alone=is_alone)
    advance(LEASE_S + 30)
    return delivery


def failed_attempt(delivery: Delivery, **options: Any) -> Attempt:
    """How an attempt that began when it was claimed, and failed two seconds later, is remembered."""
    facts: dict[str, Any] = {
        "number": delivery.attempt,
        "started_at": delivery.claimed_at,
        "ended_at": delivery.claimed_at + 2.0,
        "worker": "w1",
        "outcome": Change.RETRY,
        "failure_type": FailureType.NETWORK,
        "severity": Severity.MEDIUM,
        "error_name": "ConnectionError",
        "message": "the line is dead",
        "traceback": "Traceback …",
        "fingerprint": "1:dead-line",
    }
    return Attempt(**(facts | options))


async def bury(store: Store, delivery: Delivery, keep_s: float | None = None, **failure: Any) -> None:
    """Make a dead letter of what was delivered, with a failure."""
    attempt = failed_attempt(delivery, outcome=Change.BURY, **failure)
    await settle(store, delivery, Change.BURY, attempt=attempt, keep_s=keep_s, reason="retries used up")


async def dead_letter(store: Store, keep_s: float | None = None, **options: Any) -> str:
    """Enqueue a job and make a dead letter of it; its id."""
    delivery = await start(store, **options)
    await bury(store, delivery, keep_s)
    return delivery.id


async def job_in(store: Store, state: JobState, **options: Any) -> str:
    """Enqueue a job and bring it to this state; its id. Nothing else may be ready."""
    if state is JobState.QUEUED:
        return (await enqueue(store, new_job(**options)))[0]
    delivery = await start(store, **options)
    if state is JobState.CANCELLED:
        await change(store, Change.CANCEL, delivery.id)
    elif state is not JobState.RUNNING:
        await settle(store, delivery, _CHANGE_TO[state])
    return delivery.id


async def change(store: Store, change: Change, *ids: str, **options: Any) -> list[Changed]:
    """An operation on these jobs."""
    return await store.change(Operation(change=change, ids=ids, **options))


async def record_of(store: Store, job_id: str) -> JobRecord:
    """The whole record of a job that is there."""
    (record,) = await store.get([job_id])
    assert record is not None, "the store has no such job"
    return record


async def state_of(store: Store, job_id: str) -> JobState | None:
    """The state of a job; None if it is not there."""
    (record,) = await store.get([job_id])
    return None if record is None else record.state


async def pages(store: Store, **query: Any) -> list[Page]:
    """Every page of a query, following the cursor."""
    found = [await store.find(Query(**query))]
    while found[-1].cursor:
        found.append(await store.find(Query(**(query | {"cursor": found[-1].cursor}))))
    return found


async def found_ids(store: Store, **query: Any) -> list[str]:
    """The ids of all that a query finds, in its order."""
    return [record.id for page in await pages(store, **query) for record in page.items]


async def now_of(store: Store) -> float:
    """The store's clock."""
    return (await store.exchange(Exchange())).now
