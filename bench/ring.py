"""The ring beside queues, janus and a ring that locks every operation, on one machine, in one run: `make bench-ring`.

All carry the same elements in turns, with as many under way at a time, and every consumer's sum is checked. Exits with
1 when a bar is missed or a run hangs, and with 2 when others were using the machine, whose figures then mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from jobs_bars import Bar, print_bars
from jobs_rounds import say
from jobs_timing import busy_share
from ring_bridge import measure_bridges, print_bridges
from ring_memory import measure_memory, memory_bars, print_memory
from ring_policy import policy_bars, policy_costs, print_costs
from ring_rounds import measure_rates, print_rates, rate_bars
from ring_wake import measure_wakes, print_wakes, wake_bars

BUSY = 0.1
"""More of the processors in use by others than this, and nothing is judged."""
PARTS = ("rates", "wake", "policy", "memory", "bridge")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rounds: int = 5
    seconds: float = 0.25
    """What a run of the quick ones takes; the slow ones carry one pass."""
    wake_rounds: int = 12
    wakes: int = 400
    pairs: int = 41
    pair_s: float = 0.1
    bridge_rounds: int = 5


QUICK = Sizes(rounds=1, seconds=0.05, wake_rounds=1, wakes=300, pairs=5, pair_s=0.05, bridge_rounds=1)


def main() -> int:
    options = _options()
    sizes = QUICK if options.quick else Sizes()
    parts = options.part or PARTS
    began, share = time.monotonic(), busy_share()
    facts = _facts()
    bars: list[Bar] = []
    report: dict[str, Any] = {"facts": facts}
    for fact, value in facts.items():
        print(f"{fact:9}{value}")
    print(flush=True)
    gc.collect()
    gc.freeze()  # what was imported is not looked at again before every run
    if "rates" in parts:
        rates = measure_rates(sizes.rounds, sizes.seconds)
        print_rates(rates)
        bars += rate_bars(rates)
        report["rates"] = [
            {"batch": batch, "shape": shape, "name": name, "rounds": found}
            for (batch, shape, name), found in rates.rounds.items()
        ]
    if "wake" in parts:
        wakes = measure_wakes(sizes.wake_rounds, sizes.wakes)
        print_wakes(wakes)
        bars += wake_bars(wakes)
        report["wake_us"] = wakes.rounds
    if "policy" in parts:
        costs = policy_costs(sizes.pairs, sizes.pair_s)
        print_costs(costs)
        bars += policy_bars(costs)
        report["policy"] = asdict(costs)
    if "memory" in parts:
        memory = measure_memory()
        print_memory(memory)
        bars += memory_bars(memory)
        report["memory"] = asdict(memory)
    if "bridge" in parts:
        bridges = measure_bridges(sizes.bridge_rounds)
        print_bridges(bridges)
        report["bridge"] = [
            {"name": name, "way": way, "batch": batch, "rounds": found}
            for (name, way, batch), found in bridges.rounds.items()
        ]
    shares = [share, busy_share()]
    facts["others"] = f"{' and '.join(f'{one:.0%}' for one in shares)} of the processors were in use, before and after"
    report["bars"] = [asdict(bar) for bar in bars]
    print(f"\nothers   {facts['others']}\n")
    print_bars(bars)
    late = ", too quick to judge by" if options.quick else ""
    met = sum(bar.is_met for bar in bars)
    print(f"\n{met} of {len(bars)} bars met\n{time.monotonic() - began:.0f} s{late}")
    if options.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    if max(shares) > BUSY:
        say("NOT JUDGED: others were using this machine. These figures say nothing; run it again when it is quiet.")
        return 2
    return 0 if all(bar.is_met for bar in bars) else 1


def _facts() -> dict[str, str]:
    """What the figures depend on."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "python": f"{platform.python_version()}, threads take turns every {sys.getswitchinterval() * 1e3:g} ms",
        "peers": f"the standard library's queues; janus {version('janus')}; a lock ring of our own",
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time the ring against queues and a ring with a lock.")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given again [all]")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, too")
    parser.add_argument("--quick", action="store_true", help="one small round: a first look, too coarse to judge by")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
