"""Crawls beside a bare aiohttp loop, Scrapy and crawlee, on one machine, in one run: `make bench-crawl`.

All crawl the same local site, which runs in a process of its own and writes every request down: what a crawler did is
read there and in its output, not asked of it. Exits with 1 when a bar is missed, and with 2 when others were using the
machine, whose figures then mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crawl_frontier import frontier_bars, measure_frontier, print_frontier
from crawl_kills import kill_bars, measure_kills, print_kills
from crawl_rates import measure_rates, print_rates, rate_bars
from crawl_subjects import DURABLE, all_subjects
from crawl_waits import SUBJECTS, measure_waits, print_waits, wait_bars
from jobs_bars import Bar, print_bars
from jobs_rounds import say
from jobs_timing import busy_share, filesystem, real_disk, workplace

BUSY = 0.1
"""More of the processors in use by others than this, and nothing is judged."""
PARTS = ("rates", "kills", "waits")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    pages: int = 2_000
    kill_pages: int = 2_000
    wait_pages: int = 120
    rounds: int | None = None
    """None: each subject's own number."""
    urls: int = 1_000_000


QUICK = Sizes(pages=400, kill_pages=400, wait_pages=60, rounds=1, urls=20_000)


def main() -> int:
    options = _options()
    sizes = QUICK if options.quick else Sizes()
    parts = options.part or PARTS
    began, share = time.monotonic(), busy_share()
    facts = _facts(options.dir)
    bars: list[Bar] = []
    report: dict[str, Any] = {"facts": facts}
    for fact, value in facts.items():
        print(f"{fact:9}{value}")
    print(flush=True)
    with workplace(options.dir) as folder:
        if "rates" in parts and not options.million:
            rates = measure_rates(all_subjects(sizes.pages), sizes.pages, folder, sizes.rounds)
            print_rates(rates, sizes.pages)
            bars += rate_bars(rates)
            report["rates"] = _plain(rates)
        if "kills" in parts and not options.million:
            kills = measure_kills(DURABLE, sizes.kill_pages, folder)
            print_kills(kills, sizes.kill_pages)
            bars += kill_bars(kills)
            report["kills"] = _plain(kills)
        if "waits" in parts and not options.million:
            waits = measure_waits(SUBJECTS, sizes.wait_pages, folder)
            print_waits(waits, sizes.wait_pages)
            bars += wait_bars(waits)
            report["waits"] = _plain(waits)
        if options.million:
            filled = measure_frontier(sizes.urls, folder)
            print_frontier(filled)
            bars += frontier_bars(filled)
            report["frontier"] = asdict(filled)
    shares = [share, busy_share()]
    facts["others"] = f"{' and '.join(f'{one:.0%}' for one in shares)} of the processors were in use, before and after"
    report["bars"] = [asdict(bar) for bar in bars]
    print(f"others   {facts['others']}\n")
    print_bars(bars)
    late = ", too quick to judge by" if options.quick else ""
    print(f"\n{sum(bar.is_met for bar in bars)} of {len(bars)} bars met\n{time.monotonic() - began:.0f} s{late}")
    if options.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    if max(shares) > BUSY:
        say("NOT JUDGED: others were using this machine. These figures say nothing; run it again when it is quiet.")
        return 2
    return 0 if all(bar.is_met for bar in bars) else 1


def _plain(found: Mapping[str, object]) -> dict[str, object]:
    return {
        name: asdict(one) if is_dataclass(one) and not isinstance(one, type) else one for name, one in found.items()
    }


def _facts(folder: Path) -> dict[str, str]:
    """What the figures depend on."""
    kind, mount = filesystem(folder)
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "python": platform.python_version(),
        "disk": f"{kind} on {mount}",
        "peers": ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "scrapy", "crawlee", "selectolax")),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time crawls against a bare loop, Scrapy and crawlee.")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given again [all]")
    parser.add_argument("--million", action="store_true", help="only the frontier with 1,000,000 URLs")
    parser.add_argument("--dir", type=Path, default=real_disk(), help="a folder on the disk to be used")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, too")
    parser.add_argument("--quick", action="store_true", help="one small round: a first look, too coarse to judge by")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
