"""The SQLite part of bench-jobs: every file in WAL mode with synchronous=FULL, on one disk."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

import apsw
import jobs_holdfast
from jobs_bars import Bar, at_least, at_most, flat_bars, start_bars
from jobs_holdfast import COROUTINES, FLEET, Holdfast
from jobs_results import ALONE, ASYNC, AT_ONCE, DRAIN, MANY, ONE, OURS, RAW, RAW_LIFE, SYNC, Results
from jobs_rounds import QUICK, Sizes, measure_flat, measure_rounds, measure_starts, noted, say
from jobs_subject import Counter, Peer, Place, Raw
from jobs_timing import run

TITLE = "SQLite"
LONG = Sizes(rounds=3, one=4_000, many=60_000, sent=200, sent_to_peer=60, claims=200)
SLOW = {"localqueue": (60_000, 4_000)}
ACKNOWLEDGED = 2
"""A status of localqueue's."""
MEMORY_LIMIT_MB = 100.0
IDLE_LIMIT = 0.02
NEAR = 0.3
PUBLISHED: dict[tuple[str, str], tuple[float, float]] = {
    (DRAIN, RAW_LIFE): (44_000, 44_000),
    (DRAIN, "huey"): (2_178, 2_178),
    (DRAIN, "localqueue"): (1_500, 2_600),
    (ONE, "huey"): (2_961, 2_961),
    (ONE, "localqueue"): (3_185, 3_185),
}
"""Jobs a second on another machine, noted in November 2026: from, to."""


class Disk:
    """A folder on a real disk, with one of its own for each subject."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def place(self) -> Iterator[Place]:
        own = self._folder / "own"
        own.mkdir()
        try:
            yield Place(f"sqlite:///{own.resolve() / 'holdfast.db'}", own)
        finally:
            shutil.rmtree(own)
            os.sync()  # what this one left to be written is not the next one's burden


# ---- the peers


@contextmanager
def _huey_done(place: Place, total: int) -> Iterator[Counter]:
    """It forgets a job when it takes it, so this is to the last durable start."""
    db = sqlite3.connect(place.folder / "huey.db")
    first = db.execute("SELECT min(id) FROM task").fetchone()[0]

    def done() -> int:
        oldest: int | None = db.execute("SELECT min(id) FROM task").fetchone()[0]
        return total if oldest is None else oldest - first

    yield done
    db.close()


@contextmanager
def _localqueue_done(place: Place, _: int) -> Iterator[Counter]:
    """To the last durable acknowledgement."""
    db = sqlite3.connect(place.folder / "localqueue.db")
    count = 0

    def done() -> int:
        nonlocal count  # one worker takes them in the order of their ids, which start at 1
        while db.execute("SELECT status FROM messages WHERE id = ?", (count + 1,)).fetchone() == (ACKNOWLEDGED,):
            count += 1
        return count

    yield done
    db.close()


PEERS = (
    Peer(
        "huey",
        "jobs_peers.on_huey",
        ("huey_consumer", "jobs_peers.on_huey.huey", "--quiet", "--workers=1"),
        _huey_done,
    ),
    Peer(
        "localqueue",
        "jobs_peers.on_localqueue",
        ("python", "-m", "jobs_call", "jobs_peers.on_localqueue", "work", "{}"),
        _localqueue_done,
        has_bulk=True,
    ),
)


# ---- measuring


def measure(folder: Path, sizes: Sizes) -> tuple[Results, dict[str, str]]:
    sizes = sizes if sizes is QUICK else LONG
    disk = Disk(folder)
    results = Results(tuple(peer.name for peer in PEERS))
    ours = (Holdfast(SYNC, "noop"), Holdfast(ASYNC, "anoop", is_variant=True))
    measure_rounds(disk, (Raw("jobs_raw_sqlite"), *PEERS, *ours), sizes, results, SLOW)
    for turn in range(sizes.rounds):
        say(f"round {turn + 1} of {sizes.rounds}: many callers")
        _measure_callers(disk, sizes, results)
    measure_starts(disk, (*PEERS, ours[0]), sizes, results)
    with noted(results, "an idle worker"), disk.place() as place:
        results.idle = jobs_holdfast.idle_share(place, sizes.idle_s)
    _measure_backlog(disk, sizes, results)
    say("four workers on one file")
    with noted(results, "four workers"), disk.place() as place:
        results.fleet_rate, results.shares, results.repeated = jobs_holdfast.fleet(place, sizes.fleet)
    facts = {
        "sqlite": f"{apsw.sqlite_lib_version()} (holdfast, raw), {sqlite3.sqlite_version} (huey), its own (localqueue)",
        "peers": ", ".join(f"{peer.name} {version(peer.name)}" for peer in PEERS),
    }
    return results, facts


def _measure_callers(disk: Disk, sizes: Sizes, results: Results) -> None:
    with noted(results, "many callers"), disk.place() as place:
        enqueue = partial(run, jobs_holdfast.ME, environment=place.environment, count=sizes.one)
        results.add(AT_ONCE, ALONE, enqueue(function="enqueue"))
        for callers, name in ((1, "one coroutine"), (COROUTINES, "100 coroutines")):
            results.add(AT_ONCE, name, enqueue(function="enqueue_from_coroutines", callers=callers))
        results.add(AT_ONCE, "16 threads", enqueue(function="enqueue_from_threads"))


def _measure_backlog(disk: Disk, sizes: Sizes, results: Results) -> None:
    def url_of(url: str, name: str) -> str:
        return url.replace("holdfast.db", f"{name}.db")

    def weigh(place: Place) -> None:
        small, large = (Place(url_of(place.url, name), place.folder) for name in ("small", "large"))
        results.memory_mb = (jobs_holdfast.memory_mb(small, 4.0), jobs_holdfast.memory_mb(large, 4.0))

    measure_flat(disk, sizes, results, url_of, weigh)


# ---- bars


def bars(results: Results) -> list[Bar]:
    return [*_drain_bars(results), *_enqueue_bars(results), *_rest(results)]


def _drain_bars(results: Results) -> list[Bar]:
    found = []
    for name in (SYNC, ASYNC):
        rate = results.best(DRAIN, name)
        found += [
            at_least(f"drain, {name}: ≥ 10 × the faster peer", rate, results.fastest_peer(DRAIN), 10),
            at_least(f"drain, {name}: ≥ 0.5 × the raw client", rate, results.best(DRAIN, RAW), 0.5),
        ]
    return found


def _enqueue_bars(results: Results) -> list[Bar]:
    one, many = results.best(ONE, OURS), results.best(MANY, OURS)
    # The faster way of being alone: the gain must not come from a slow way to wait.
    alone = max(results.best(AT_ONCE, ALONE) or 0.0, results.best(AT_ONCE, "one coroutine") or 0.0)
    return [
        at_least("enqueue one by one: ≥ 0.8 × the faster peer", one, results.fastest_peer(ONE), 0.8),
        at_least("enqueue one by one: ≥ 0.75 × a bare commit per row", one, results.best(ONE, RAW), 0.75),
        at_least("enqueue_many: ≥ 0.5 × raw batches of 1,000", many, results.best(MANY, RAW), 0.5),
        at_least("100 coroutines: ≥ 4 × a single caller", results.best(AT_ONCE, "100 coroutines"), alone, 4),
        at_least("16 threads: ≥ 2.5 × a single caller", results.best(AT_ONCE, "16 threads"), alone, 2.5),
    ]


def _rest(results: Results) -> list[Bar]:
    shares, repeated = results.shares, results.repeated
    least = min(shares) if len(shares) == FLEET else None
    megabytes = "{:.1f} MB".format
    memory = [
        at_most(f"worker memory with {jobs:,} jobs: < 100 MB", mb, MEMORY_LIMIT_MB, megabytes, is_strict=True)
        for jobs, mb in zip((1_000, results.backlog), results.memory_mb or (None, None), strict=True)
    ]
    return [
        *start_bars(results, 10, 50),
        at_most("idle worker: < 2 % of a core", results.idle, IDLE_LIMIT, "{:.2%}".format, is_strict=True),
        *flat_bars(results),
        *memory,
        at_least("four workers: none under 0.5 × its fair share", least, sum(shares) / FLEET, 0.5),
        Bar(
            "four workers: no lease lost, every job done at its first attempt",
            f"{repeated} were not",
            bool(shares) and not repeated,
        ),
    ]


# ---- beside another machine


def print_published(results: Results) -> None:
    """A line for each figure of `PUBLISHED`: near it, or as far from it as SQLite itself is on this machine."""
    print(f"\n{'beside another machine, jobs/s':36}{'here':>10}{'there':>14}")
    here = results.best(DRAIN, RAW_LIFE)
    for (table, name), (low, high) in PUBLISHED.items():
        rate = results.best(table, name)
        if rate is None or here is None:
            continue
        published = f"{low:,.0f}" if low == high else f"{low:,.0f}–{high:,.0f}"
        said = _compared(rate / min(max(rate, low), high), here / PUBLISHED[DRAIN, RAW_LIFE][0])
        print(f"  {name + ', ' + table:34}{rate:>10,.0f}{published:>14}   {said}")


def _compared(factor: float, machine: float) -> str:
    if _is_near(factor):
        return "within 30 %"
    if _is_near(factor / machine):
        return f"{factor:.2f} ×; SQLite itself here {machine:.2f} ×"
    return f"{factor:.2f} ×: NOT EXPLAINED by this machine, where SQLite itself has {machine:.2f} ×"


def _is_near(factor: float) -> bool:
    return 1 - NEAR <= factor <= 1 + NEAR
