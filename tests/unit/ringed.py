"""Rings as a process reports them, and letters as they give elements up, made by hand."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import App
from holdfast.clock import new_id
from holdfast.ports import ConsumerReport, RingReport, WorkerRecord
from holdfast.types import Attempt, Change, End, FailureType, NewJob, Severity


def consumer(name: str = "enrich", **fields: Any) -> ConsumerReport:
    """A consumer of a ring."""
    return ConsumerReport(name=name, **fields)


def ring_report(name: str = "prices", *consumers: ConsumerReport, **fields: Any) -> RingReport:
    """A ring in one process."""
    return RingReport(**{"name": name, "size": 1024, "consumers": consumers, **fields})


def process_with(*rings: RingReport, **fields: Any) -> WorkerRecord:
    """A process that tells of its rings."""
    given: dict[str, Any] = {"id": new_id(), "lease_s": 600.0, "host": "mill", "pid": 7}
    return WorkerRecord(**given | fields, rings=rings)


async def turning(app: App, *rings: RingReport, **fields: Any) -> WorkerRecord:
    """A real heartbeat of a process with these rings."""
    process = process_with(*rings, **fields)
    await app.store.heartbeat(process)
    return process


def ring_letter(ring: str = "prices", consumer: str = "enrich", *elements: Any, offset: int | None = None) -> NewJob:
    """Elements that were given up, as they are handed to a store."""
    origin = {
        "kind": "ring",
        "ring": ring,
        "consumer": consumer,
        "batch": 12,
        "offset": offset,
        "count": len(elements),
    }
    attempt = Attempt(
        number=1,
        started_at=0.0,
        ended_at=1.0,
        outcome=Change.BURY,
        failure_type=FailureType.PERMANENT,
        severity=Severity.MEDIUM,
        error_name="ValueError",
        message="no price",
        fingerprint=f"1:{ring}",
    )
    return NewJob(
        id=new_id(),
        task=f"{ring}/{consumer}",
        queue=f"ring:{ring}",
        gates=("ring",),
        payload=msgspec.json.encode({"origin": origin, "elements": elements}),
        end=End(change=Change.BURY, attempts=(attempt,), reason="not retriable"),
    )
