"""Durable jobs beside huey, localqueue and SQLite itself, on one disk, in one run: `make bench-jobs`.

Every file is in WAL mode with synchronous=FULL. A rate is the best of several rounds, in which all take turns; drains
are clocked from outside, from the first completion to the last durable one. Exits with 1 when a bar is missed, and with
2 when others were using the machine, whose figures then mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median

import apsw
import jobs_flat
import jobs_holdfast
import jobs_peers
from jobs_bars import ASYNC, PEERS, SYNC, Bar, Results, bars, beside_published
from jobs_timing import busy_share, filesystem, fsync_times_us, percentile, real_disk, run, workplace

BUSY = 0.1
"""More of the processors in use by others than this, and nothing is judged: a commit that waits for its turn took 4 ms
where it takes 0.2 alone, which slows down those who commit often and hides what a claim costs."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rounds: int = 3
    one: int = 4_000
    """Jobs that are enqueued one by one, and those that a peer drains."""
    many: int = 60_000
    """Jobs that are enqueued in batches, and those that Holdfast and the raw loop drain."""
    sent: int = 200
    sent_to_peer: int = 60
    idle_s: float = 10.0
    held: int = 999_000
    claims: int = 200
    fleet: int = 80_000


QUICK = Sizes(
    rounds=1,
    one=1_000,
    many=10_000,
    sent=20,
    sent_to_peer=10,
    idle_s=3.0,
    held=49_000,
    claims=30,
    fleet=20_000,
)


def main() -> int:
    options = _options()
    began = time.monotonic()
    with workplace(options.dir) as folder:
        shares, fsync_us = [busy_share()], [fsync_times_us(folder)]
        results = _measure(folder, QUICK if options.quick else Sizes())
        shares.append(busy_share())
        fsync_us.append(fsync_times_us(folder))
    facts = _facts(options.dir, fsync_us, shares)
    checked = bars(results)
    if options.json:
        report = {"facts": facts, "results": asdict(results), "bars": [asdict(bar) for bar in checked]}
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        _print_tables(results, facts)
        _print_bars(checked)
        print(f"{time.monotonic() - began:.0f} s" + (", too quick to judge by" if options.quick else ""))
    if max(shares) > BUSY:
        _say("NOT JUDGED: others were using this machine. These figures say nothing; run it again when it is quiet.")
        return 2
    return 0 if all(bar.is_met for bar in checked) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time durable jobs against the peers.")
    parser.add_argument("--dir", type=Path, default=real_disk(), help="a folder on the disk to be used")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--quick", action="store_true", help="one small round: a first look, too coarse to judge by")
    return parser.parse_args()


# ---- measuring


def _measure(folder: Path, sizes: Sizes) -> Results:
    results = Results()
    for turn in range(sizes.rounds):
        for measure in (_measure_raw, _measure_huey, _measure_localqueue, _measure_enqueueing, _measure_drains):
            _say(f"round {turn + 1} of {sizes.rounds}: {measure.__name__.removeprefix('_measure_')}")
            _in_own_folder(folder, partial(measure, sizes=sizes, results=results))
    _say("starts on an idle worker")
    for peer in PEERS:
        _in_own_folder(folder, partial(_measure_peer_starts, peer=peer, sizes=sizes, results=results))
    _in_own_folder(folder, partial(_measure_starts, sizes=sizes, results=results))
    _say(f"a backlog of {sizes.held + jobs_flat.FREE:,} jobs")
    _in_own_folder(folder, partial(_measure_backlog, sizes=sizes, results=results))
    _say("four workers on one file")
    _in_own_folder(folder, partial(_measure_fleet, sizes=sizes, results=results))
    return results


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _in_own_folder(folder: Path, measure: Callable[[Path], None]) -> None:
    own = folder / "own"
    own.mkdir()
    measure(own)
    shutil.rmtree(own)
    os.sync()  # what this one left to be written is not the next one's burden


def _measure_raw(folder: Path, sizes: Sizes, results: Results) -> None:
    rows, jobs, life = (folder / name for name in ("rows", "jobs", "life"))
    for one in (rows, jobs, life):
        one.mkdir()
    results.add("one by one", "bare commit", run("jobs_raw", "commit_per_row", folder=rows, count=sizes.one))
    results.add("in batches", "raw batches", run("jobs_raw", "batches", folder=jobs, count=sizes.many))
    results.add("drain", "raw loop", run("jobs_raw", "claim_and_acknowledge", folder=jobs, count=sizes.many))
    results.add("drain", "raw, enqueued too", run("jobs_raw", "whole_life", folder=life, count=sizes.many))


def _measure_huey(folder: Path, sizes: Sizes, results: Results) -> None:
    results.add("one by one", "huey", run("jobs_peers", "huey_enqueue", folder=folder, count=sizes.one))
    results.add("drain", "huey", jobs_peers.huey_drain(folder, sizes.one))


def _measure_localqueue(folder: Path, sizes: Sizes, results: Results) -> None:
    results.add("one by one", "localqueue", run("jobs_peers", "localqueue_enqueue", folder=folder, count=sizes.one))
    results.add("drain", "localqueue", jobs_peers.localqueue_drain(folder, sizes.one))
    rate = run("jobs_peers", "localqueue_enqueue_many", folder=folder, count=sizes.many)
    results.add("in batches", "localqueue", rate)


def _measure_enqueueing(folder: Path, sizes: Sizes, results: Results) -> None:
    own = {"folder": folder, "count": sizes.one}
    rate = run("jobs_holdfast", "enqueue", **own)
    results.add("one by one", "holdfast", rate)
    results.add("at once", "one sync caller", rate)
    for callers, name in ((1, "one coroutine"), (jobs_holdfast.COROUTINES, "100 coroutines")):
        results.add("at once", name, run("jobs_holdfast", "enqueue_from_coroutines", **own, callers=callers))
    results.add("at once", "16 threads", run("jobs_holdfast", "enqueue_from_threads", **own))


def _measure_drains(folder: Path, sizes: Sizes, results: Results) -> None:
    for task, name in (("noop", SYNC), ("anoop", ASYNC)):
        own = folder / task
        own.mkdir()
        rate = run("jobs_holdfast", "enqueue_many", folder=own, count=sizes.many, task=task)
        results.add("in batches", "holdfast", rate)
        results.add("drain", name, jobs_holdfast.drain(own, sizes.many))


def _measure_peer_starts(folder: Path, peer: str, sizes: Sizes, results: Results) -> None:
    times = jobs_peers.latencies_s(peer, folder, sizes.sent_to_peer)
    results.starts_ms[peer] = [one * 1e3 for one in times]


def _measure_starts(folder: Path, sizes: Sizes, results: Results) -> None:
    results.idle, times = jobs_holdfast.idle_and_latencies(folder, sizes.sent, sizes.idle_s)
    results.starts_ms["holdfast"] = [one * 1e3 for one in times]


def _measure_backlog(folder: Path, sizes: Sizes, results: Results) -> None:
    small, large = folder / "small", folder / "large"
    for own, held in ((small, 0), (large, sizes.held)):
        own.mkdir()
        run("jobs_flat", "fill", folder=own, held=held)
    of_small, of_large = run("jobs_flat", "claim_ms", folders=[str(small), str(large)], rounds=sizes.claims)
    results.backlog = sizes.held + jobs_flat.FREE
    results.claims_ms = {name: (of_small[name], of_large[name]) for name in jobs_flat.CAPS}
    results.memory_mb = (jobs_holdfast.memory_mb(small, 4.0), jobs_holdfast.memory_mb(large, 4.0))


def _measure_fleet(folder: Path, sizes: Sizes, results: Results) -> None:
    results.fleet_rate, results.shares, results.repeated = jobs_holdfast.fleet(folder, sizes.fleet)


# ---- printing


def _facts(folder: Path, fsync_us: list[list[float]], shares: list[float]) -> dict[str, str]:
    kind, mount = filesystem(folder)
    syncs = " and ".join(f"{median(times):.0f} (p99 {percentile(times, 99):.0f})" for times in fsync_us)
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "python": platform.python_version(),
        "sqlite": f"{apsw.sqlite_lib_version()} (holdfast, raw), {sqlite3.sqlite_version} (huey), its own (localqueue)",
        "peers": ", ".join(f"{peer} {version(peer)}" for peer in PEERS),
        "disk": f"{kind} on {mount}; 4 KiB written and synced (fdatasync) in {syncs} µs, before and after",
        "others": f"{' and '.join(f'{share:.0%}' for share in shares)} of the processors were in use, before and after",
    }


def _print_tables(results: Results, facts: dict[str, str]) -> None:
    for name, fact in facts.items():
        print(f"{name:9}{fact}")
    print("Jobs a second: the best of interleaved rounds, and their median.")
    _print_rates(results, "drain", "drain of no-op jobs, one worker process", "raw loop")
    _print_rates(results, "one by one", "enqueue one by one", "bare commit")
    _print_rates(results, "in batches", "enqueue 1,000 at a time", "raw batches")
    _print_rates(results, "at once", "enqueue one by one, many callers in a process", "one sync caller")
    print(f"\n{'enqueue to start on an idle worker':36}{'p50 ms':>9}{'p99 ms':>9}")
    for name, times in results.starts_ms.items():
        print(f"  {name:34}{percentile(times, 50):9.1f}{percentile(times, 99):9.1f}")
    print(f"  idle worker of holdfast: {results.idle:.2%} of a core")
    print(f"\n{'claim of 100 jobs, median ms':36}{'1,000':>12}{results.backlog:12,}{'×':>7}")
    for name, (small, large) in results.claims_ms.items():
        print(f"  {name:34}{small:12.2f}{large:12.2f}{large / small:7.2f}")
    print(f"  {'worker memory, MB':34}{results.memory_mb[0]:12.1f}{results.memory_mb[1]:12.1f}")
    shares = ", ".join(f"{share:,}" for share in results.shares)
    print(f"\nfour workers on one file: {results.fleet_rate:,.0f} jobs/s; they completed {shares}")
    print(f"\n{'beside PEERS.md, jobs/s':32}{'here':>10}{'there':>14}")
    print("\n".join(beside_published(results)))
    print()


def _print_rates(results: Results, table: str, title: str, base: str) -> None:
    peers = [name for name in PEERS if name in results.rates[table]]
    print(f"\n{title:36}{'jobs/s':>10}{'median':>10}{'× ' + base:>18}" + ("   × faster peer" if peers else ""))
    for name, rates in results.rates[table].items():
        line = f"  {name:34}{max(rates):10,.0f}{median(rates):10,.0f}{max(rates) / results.best(table, base):18.2f}"
        print(line + (f"{max(rates) / results.faster_peer(table):16.2f}" if peers else ""))


def _print_bars(checked: list[Bar]) -> None:
    for bar in checked:
        print(f"{'PASS  ' if bar.is_met else 'MISSED'}  {bar.text}: {bar.measured}")
    missed = sum(not bar.is_met for bar in checked)
    print(f"\n{len(checked) - missed} of {len(checked)} bars met")


if __name__ == "__main__":
    sys.exit(main())
