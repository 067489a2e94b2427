"""Durable jobs beside the peers and beside the store's own client, on one machine, in one run: `make bench-jobs`.

A rate is the best of several rounds, in which all take turns; drains are clocked from outside, from the first
completion to the last durable one. Exits with 1 when a bar is missed, and with 2 when others were using the machine,
whose figures then mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median

import jobs_postgres
import jobs_redis
import jobs_sqlite
from jobs_bars import print_bars
from jobs_results import print_tables
from jobs_rounds import QUICK, Sizes, say
from jobs_timing import busy_share, filesystem, fsync_times_us, percentile, real_disk, workplace

BUSY = 0.1
"""More of the processors in use by others than this, and nothing is judged: a commit that waits for its turn took 4 ms
where it takes 0.2 alone, which slows down those who commit often and hides what a claim costs."""
PARTS = {"sqlite": jobs_sqlite, "redis": jobs_redis, "postgres": jobs_postgres}


def main() -> int:
    options = _options()
    sizes = QUICK if options.quick else Sizes()
    shares, are_met, report = [busy_share()], True, {}
    for name in options.store or PARTS:
        began, part = time.monotonic(), PARTS[name]
        with workplace(options.dir) as folder:
            fsync_us = [fsync_times_us(folder)]
            results, facts = part.measure(folder, sizes)
            fsync_us.append(fsync_times_us(folder))
        shares.append(busy_share())
        bars = part.bars(results)
        are_met = are_met and all(bar.is_met for bar in bars)
        facts = {**machine(options.dir, fsync_us, shares[-2:]), **facts}
        report[name] = {"facts": facts, "results": asdict(results), "bars": [asdict(bar) for bar in bars]}
        if not options.json:
            print(f"\n==== {part.TITLE}")
            for fact, value in facts.items():
                print(f"{fact:9}{value}")
            print("Jobs a second: the best of interleaved rounds, and their median.")
            print_tables(results)
            if part is jobs_sqlite:
                jobs_sqlite.print_published(results)
            print()
            print_bars(bars)
            late = ", too quick to judge by" if options.quick else ""
            print(
                f"\n{sum(bar.is_met for bar in bars)} of {len(bars)} bars met\n{time.monotonic() - began:.0f} s{late}"
            )
            sys.stdout.flush()
    if options.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    if max(shares) > BUSY:
        say("NOT JUDGED: others were using this machine. These figures say nothing; run it again when it is quiet.")
        return 2
    return 0 if are_met else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time durable jobs against the peers.")
    parser.add_argument("--store", action="append", choices=PARTS, help="only this part; may be given again [all]")
    parser.add_argument("--dir", type=Path, default=real_disk(), help="a folder on the disk to be used")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--quick", action="store_true", help="one small round: a first look, too coarse to judge by")
    return parser.parse_args()


def machine(folder: Path, fsync_us: list[list[float]], shares: list[float]) -> dict[str, str]:
    """What the figures depend on."""
    kind, mount = filesystem(folder)
    syncs = " and ".join(f"{median(times):.0f} (p99 {percentile(times, 99):.0f})" for times in fsync_us)
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "python": platform.python_version(),
        "disk": f"{kind} on {mount}; 4 KiB written and synced (fdatasync) in {syncs} µs, before and after",
        "others": f"{' and '.join(f'{share:.0%}' for share in shares)} of the processors were in use, before and after",
    }


if __name__ == "__main__":
    sys.exit(main())
