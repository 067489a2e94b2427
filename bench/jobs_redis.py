"""The Redis part of bench-jobs: without persistence, and once more with an append-only file."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import hiredis
import redis
from jobs_bars import Bar, at_least, server_bars
from jobs_holdfast import Holdfast
from jobs_redis_subjects import PEERS
from jobs_results import ASYNC, DRAIN, ONE, OURS, RAW, SYNC, Results
from jobs_rounds import Sizes, measure_flat, measure_fleet, measure_rounds, measure_starts
from jobs_servers import redis_server
from jobs_subject import Raw

TITLE = "Redis"
AOF = "appendfsync everysec"
ARQ_PINS = Path(__file__).parent / "arq.txt"
SLOW = {
    "saq": (2_000, 2_000),
    "celery, prefork": (1_500, 1_500),
    "celery, acks_late": (1_500, 1_500),
    "arq": (500, 500),
    "rq": (10_000, 400),
}
"""Jobs for those who are slow: enqueued in batches, and drained."""


def measure(folder: Path, sizes: Sizes) -> tuple[Results, dict[str, str]]:
    results = Results(tuple(peer.name for peer in PEERS))
    ours = (Holdfast(SYNC, "noop"), Holdfast(ASYNC, "anoop", is_variant=True))
    with redis_server(folder / "redis", appendfsync=None) as server:
        measure_rounds(server, (Raw("jobs_raw_redis"), *PEERS, *ours), sizes, results, SLOW)
        measure_starts(server, (*PEERS, ours[0]), sizes, results)
        measure_fleet(server, sizes, results)
        measure_flat(server, sizes, results, lambda url, name: f"{url}?prefix={name}")
        arq = dict(line.split("==") for line in ARQ_PINS.read_text().split() if "==" in line)
        names = ("dramatiq", "taskiq", "huey", "saq", "celery", "rq")
        facts = {
            "redis": f"{server.version} without persistence: nothing here survives the server",
            "clients": f"redis-py {redis.__version__}, hiredis {hiredis.__version__}; {arq['redis']} (arq)",
            "peers": ", ".join([*(f"{name} {version(name)}" for name in names), f"arq {arq['arq']}"]),
        }
    with redis_server(folder / "redis", appendfsync="everysec") as server:
        own = Results(())
        measure_rounds(server, (Raw("jobs_raw_redis"), ours[0]), sizes, own, SLOW)
        results.rates.update({f"{table}, {AOF}": rates for table, rates in own.rates.items()})
        results.failed.update({f"{name}, {AOF}": why for name, why in own.failed.items()})
    return results, facts


def bars(results: Results) -> list[Bar]:
    found = []
    for name in (SYNC, ASYNC):
        rate = results.best(DRAIN, name)
        found += [
            at_least(f"drain, {name}: ≥ 8 × dramatiq", rate, results.best(DRAIN, "dramatiq"), 8),
            at_least(f"drain, {name}: ahead of every peer", rate, results.fastest_peer(DRAIN), 1, is_strict=True),
            at_least(f"drain, {name}: ≥ 0.5 × the raw client", rate, results.best(DRAIN, RAW), 0.5),
        ]
    one = results.best(ONE, OURS)
    others = results.fastest_peer(ONE, but=("huey",))
    return [
        *found,
        at_least("enqueue one by one: ≥ 0.6 × huey", one, results.best(ONE, "huey"), 0.6),
        at_least("enqueue one by one: ahead of every other peer", one, others, 1, is_strict=True),
        *server_bars(results),
    ]
