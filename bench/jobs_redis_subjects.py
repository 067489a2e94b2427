"""Whom Redis is measured with, each with the settings that are written here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis
from jobs_subject import Counter, Done, Peer, Place
from jobs_timing import PYTHON

ARQ = PYTHON.parent.parent / "arq" / "bin" / "python"
"""arq's own environment: it wants redis-py < 6, taskiq-redis wants 8."""


def left(count: Callable[[Any], Any]) -> Done:
    """What a peer's own keys say is left."""

    @contextmanager
    def counting(place: Place, total: int) -> Iterator[Counter]:
        with redis.Redis.from_url(place.url) as client:
            yield lambda: total - int(count(client))

    return counting


def _stream_left(client: Any) -> int:
    """Entries that were not read, and those that were and have not been acknowledged."""
    groups = client.xinfo_groups("taskiq")
    return int(sum(group["pending"] + group["lag"] for group in groups) if groups else client.xlen("taskiq"))


def _celery_left(client: Any) -> int:
    return int(client.llen("celery") + client.hlen("unacked"))


def _rq_left(client: Any) -> int:
    return int(client.llen("rq:queue:default") + client.zcard("rq:wip:default"))


PEERS = (
    Peer(
        "dramatiq",
        "jobs_peers.on_dramatiq",
        ("dramatiq", "jobs_peers.on_dramatiq", "--processes=1", "--threads=8"),
        left(lambda client: client.hlen("dramatiq:default.msgs")),
    ),
    Peer(
        "taskiq, list",
        "jobs_peers.on_taskiq",
        ("taskiq", "worker", "jobs_peers.on_taskiq:broker", "--workers=1", "--log-level=WARNING"),
        left(lambda client: client.llen("taskiq")),
        environment={"TASKIQ_BROKER": "list"},
    ),
    Peer(
        "taskiq, stream",
        "jobs_peers.on_taskiq",
        ("taskiq", "worker", "jobs_peers.on_taskiq:broker", "--workers=1", "--log-level=WARNING"),
        left(_stream_left),
        environment={"TASKIQ_BROKER": "stream"},
    ),
    Peer(
        "huey",
        "jobs_peers.on_huey",
        ("huey_consumer", "jobs_peers.on_huey.huey", "--quiet", "--workers=8"),
        left(lambda client: client.llen("huey.redis.bench")),
    ),
    Peer(
        "saq",
        "jobs_peers.on_saq",
        ("saq", "jobs_peers.on_saq.settings", "--quiet"),
        left(lambda client: client.zcard("saq:default:incomplete")),
    ),
    Peer(
        "celery, prefork",
        "jobs_peers.on_celery",
        ("celery", "-A", "jobs_peers.on_celery", "worker", "--concurrency=2", "--loglevel=WARNING"),
        left(_celery_left),
        has_bulk=True,
    ),
    Peer(
        "celery, acks_late",
        "jobs_peers.on_celery",
        ("celery", "-A", "jobs_peers.on_celery", "worker", "--concurrency=2", "--loglevel=WARNING"),
        left(_celery_left),
        has_bulk=True,
        is_variant=True,
        environment={"CELERY_ACKS_LATE": "1"},
    ),
    Peer(
        "arq",
        "jobs_peers.on_arq",
        ("arq", "jobs_peers.on_arq.Settings"),
        left(lambda client: client.zcard("arq:queue")),
        python=ARQ,
    ),
    Peer(
        "rq",
        "jobs_peers.on_rq",
        ("python", "-m", "jobs_call", "jobs_peers.on_rq", "work", "{}"),
        left(_rq_left),
        has_bulk=True,
    ),
)
