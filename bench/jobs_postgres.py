"""The PostgreSQL part of bench-jobs: a server as initdb leaves it, every commit synced."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from jobs_bars import Bar, at_least, server_bars
from jobs_holdfast import Holdfast
from jobs_postgres_subjects import PEERS
from jobs_results import ASYNC, DRAIN, ONE, OURS, RAW, SYNC, Results
from jobs_rounds import Sizes, measure_flat, measure_fleet, measure_rounds, measure_starts
from jobs_servers import postgres_server
from jobs_subject import Raw

TITLE = "PostgreSQL"
SLOW = {
    "pgqueuer, batch 10": (10_000, 10_000),
    "awa, tuned": (10_000, 10_000),
    "awa, default": (10_000, 10_000),
    "awa, queue storage": (40_000, 10_000),
    "procrastinate": (10_000, 1_500),
}
"""Jobs for those who are slow: enqueued in batches, and drained."""


def measure(folder: Path, sizes: Sizes) -> tuple[Results, dict[str, str]]:
    results = Results(tuple(peer.name for peer in PEERS))
    ours = (Holdfast(SYNC, "noop"), Holdfast(ASYNC, "anoop", is_variant=True))
    with postgres_server(folder / "postgres") as server:
        measure_rounds(server, (Raw("jobs_raw_postgres"), *PEERS, *ours), sizes, results, SLOW)
        measure_starts(server, (*PEERS, ours[0]), sizes, results)
        measure_fleet(server, sizes, results)
        measure_flat(server, sizes, results, lambda url, name: f"{url}?schema={name}")
        names = ("pgqueuer", "awa-pg", "procrastinate")
        facts = {
            "postgres": f"{server.version}, fsync and synchronous_commit on, as initdb leaves it",
            "clients": f"psycopg {version('psycopg')}; pgqueuer's worker has asyncpg {version('asyncpg')}",
            "peers": ", ".join(f"{name} {version(name)}" for name in names),
        }
    return results, facts


def bars(results: Results) -> list[Bar]:
    found = []
    for name in (SYNC, ASYNC):
        rate = results.best(DRAIN, name)
        pgqueuer = results.best(DRAIN, "pgqueuer, batch 100")
        found += [
            at_least(f"drain, {name}: ≥ 2 × pgqueuer at batch 100", rate, pgqueuer, 2),
            at_least(f"drain, {name}: ≥ 0.5 × the raw client", rate, results.best(DRAIN, RAW), 0.5),
        ]
    one = results.best(ONE, OURS)
    return [
        *found,
        at_least("enqueue one by one: ahead of every peer", one, results.fastest_peer(ONE), 1, is_strict=True),
        *server_bars(results),
    ]
