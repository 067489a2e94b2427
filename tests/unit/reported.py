"""Streams as a worker reports them, and as an app registers them, made by hand."""

from __future__ import annotations

from typing import Any

from holdfast import App
from holdfast.clock import new_id
from holdfast.ports import Count, Exchange, PartitionReport, StreamReport, WorkerRecord
from holdfast.runtime.streams.spec import StreamSpec


def handle(value: Any) -> None:
    """Stands for a handler."""


def stream_spec(name: str = "bill", *, topic: str = "orders", group: str = "billing", **fields: Any) -> StreamSpec:
    """A stream that an app has registered."""
    app = App("memory://")
    task = app.task(name=name)(handle)
    given: dict[str, Any] = {
        "task": task.spec,
        "url": f"kafka://127.0.0.1:1/{topic}",
        "location": f"kafka://127.0.0.1:1/{topic}",
        "topic": topic,
        "group": group,
        "in_flight": 100,
        "max_gap": 10_000,
        "batch": 0,
        "is_ordered": True,
        "is_blocking": True,
        "is_bisected": True,
        "is_transactional": False,
        "start": "earliest",
    }
    return StreamSpec(**given | fields)


def part(partition: int = 0, topic: str = "orders", **fields: Any) -> PartitionReport:
    """A partition as its consumer sees it."""
    return PartitionReport(topic=topic, partition=partition, **fields)


def stream_report(name: str = "bill", *partitions: PartitionReport, **fields: Any) -> StreamReport:
    """A stream in one worker."""
    given: dict[str, Any] = {"group": "billing", "topic": "orders", "location": "kafka://127.0.0.1:1/orders"}
    return StreamReport(name=name, partitions=partitions, **given | fields)


def worker_with(*streams: StreamReport, id: str = "", **fields: Any) -> WorkerRecord:  # noqa: A002
    """A worker that tells of its streams."""
    return WorkerRecord(id=id or new_id(), lease_s=600.0, streams=streams, **fields)


async def reported(app: App, *streams: StreamReport, id: str = "") -> WorkerRecord:  # noqa: A002
    """A real heartbeat of a worker with these streams."""
    worker = worker_with(*streams, id=id)
    await app.store.heartbeat(worker)
    return worker


async def counted(app: App, task: str, *, minutes_ago: int = 0, **names: int) -> None:
    """Count so many of each name, in a minute and in all."""
    minute = int((await app.store.exchange(Exchange())).now // 60) - minutes_ago
    counts = [Count(at, task, name, n) for name, n in names.items() for at in (minute, 0)]
    await app.store.exchange(Exchange(counts=counts))
