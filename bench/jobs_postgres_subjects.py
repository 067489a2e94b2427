"""Whom PostgreSQL is measured with, each with the settings that are written here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from jobs_subject import Counter, Done, Peer, Place


def left(sql: str) -> Done:
    """What a peer's own tables say is left."""

    @contextmanager
    def counting(place: Place, total: int) -> Iterator[Counter]:
        with psycopg.connect(place.url, autocommit=True) as connection:
            yield lambda: total - sum(count for (count,) in connection.execute(sql.encode()))

    return counting


@contextmanager
def _started(place: Place, _: int) -> Iterator[Counter]:
    """What awa's handler has counted: a look into its tables takes seconds, and slows down what is looked at."""
    path = place.folder / "started"
    path.write_bytes(bytes(8))
    yield lambda: int.from_bytes(path.read_bytes(), sys.byteorder)


def _pgqueuer(batch: int, *, is_variant: bool) -> Peer:
    return Peer(
        f"pgqueuer, batch {batch}",
        "jobs_peers.on_pgqueuer",
        ("python", "-m", "jobs_call", "jobs_peers.on_pgqueuer", "work", json.dumps({"batch": batch})),
        left("SELECT count(*) FROM pgqueuer"),  # a job that is done has left the queue for the log
        has_bulk=True,
        has_schema=True,
        is_variant=is_variant,
    )


def _awa(name: str, *, is_variant: bool = False, has_storage: bool = False, **settings: int | None) -> Peer:
    return Peer(
        name,
        "jobs_peers.on_awa",
        ("python", "-m", "jobs_call", "jobs_peers.on_awa", "work", json.dumps(settings)),
        _started,
        has_bulk=True,
        has_schema=True,
        is_variant=is_variant,
        # An empty install goes over to the queue storage when its first worker starts, and what was enqueued at that
        # very moment is never seen again.
        has_starts=has_storage,
        environment={"AWA_QUEUE_STORAGE": "1"} if has_storage else {},
    )


PEERS = (
    _pgqueuer(100, is_variant=False),
    _pgqueuer(10, is_variant=True),
    _awa("awa, tuned", workers=200, claimers=2, batch=512),
    _awa("awa, default", is_variant=True, workers=50, claimers=None, batch=None),
    _awa("awa, queue storage", has_storage=True, workers=200, claimers=2, batch=512),
    Peer(
        "procrastinate",
        "jobs_peers.on_procrastinate",
        ("procrastinate", "--app=jobs_peers.on_procrastinate.app", "worker", "--concurrency=10"),
        left("SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"),
        has_bulk=True,
        has_schema=True,
    ),
)
