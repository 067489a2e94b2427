"""Completed pages, as a crawl leaves them in its store and hands them to its output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from holdfast.crawl.outputs import Done
from holdfast.crawl.urls import page_id
from holdfast.ports import Store
from holdfast.testing.store_suite import steps
from holdfast.types import Change, NewJob

CRAWL = "shop"


def url_of(n: int) -> str:
    return f"https://example.org/{n}"


def page(n: int, *items: Any, crawl: str = CRAWL) -> Done:
    """The n-th page; with one item unless others are given."""
    return Done(page_id(crawl, url_of(n)), url_of(n), items or ({"n": n},))


def pages(*numbers: int) -> list[Done]:
    return [page(n) for n in numbers]


async def complete(store: Store, *done: Done, crawl: str = CRAWL) -> None:
    """These are jobs of the store, and completed."""
    task = f"crawl:{crawl}"
    jobs = [NewJob(id=one.id, task=task, queue=task, payload=json.dumps({"url": one.url}).encode()) for one in done]
    await store.enqueue(jobs)
    results = {one.id: json.dumps({"items": one.items, "status": 200}).encode() for one in done}
    for delivery in await steps.claim(store, limit=len(done)):
        assert await steps.settle(store, delivery, Change.COMPLETE, result=results[delivery.id])


def lines(path: Path) -> list[Any]:
    """What is in a file of JSON lines."""
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n") or not text
    return [json.loads(line) for line in text.split("\n")[:-1]]


def items(path: Path) -> list[Any]:
    """What is in an output, in the order in which it was written."""
    return [json.loads(row[0]) for row in rows(path, "SELECT item FROM items")] if path.suffix == ".db" else lines(path)


def rows(path: Path, query: str) -> Sequence[tuple[Any, ...]]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(db.execute(query))
    finally:
        db.close()
