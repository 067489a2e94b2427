"""Streams beside the peers and beside each server's own client, on one machine, in one run: `make bench-streams`.

One broker, and topics that were filled once; every subject reads them as a group of its own, in a process of its own,
and all take turns. A rate goes from the first message in the hands of a no-op handler to the last one handled, and to
the last one committed, as the server says. Exits with 1 when a bar is missed, and with 2 when others were using the
machine, whose figures then mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka
import streams_kafka
import streams_redis
import streams_stuck
from jobs_bars import Bar, print_bars
from jobs_rounds import say
from jobs_timing import Failed, busy_share, workplace
from streams_results import measure_rounds, print_table
from streams_servers import PARTITIONS, kafka, redis_streams
from streams_subject import Size, measure

BUSY = 0.1
"""More of the processors in use by others than this, and nothing is judged."""
PARTS = ("kafka", "stuck", "redis")
QUIX_PINS = Path(__file__).parent / "quix.txt"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rounds: int = 3
    messages: Mapping[Size, int] = field(default_factory=lambda: {"many": 1_000_000, "some": 60_000, "few": 10_000})
    """In Kafka; a key is stuck in the largest topic."""
    entries: Mapping[Size, int] = field(default_factory=lambda: {"many": 200_000, "some": 60_000, "few": 10_000})
    """In Redis."""


QUICK = Sizes(
    rounds=1,
    messages={"many": 100_000, "some": 10_000, "few": 2_000},
    entries={"many": 30_000, "some": 10_000, "few": 2_000},
)


def main() -> int:
    options = _options()
    sizes = QUICK if options.quick else Sizes()
    parts = options.part or PARTS
    began, share = time.monotonic(), busy_share()
    bars: list[Bar] = []
    report: dict[str, Any] = {"facts": _facts()}
    with workplace(Path(tempfile.gettempdir())) as folder:
        if not {"kafka", "stuck"}.isdisjoint(parts):
            _measure_kafka(sizes, parts, folder, bars, report)
        if "redis" in parts:
            _measure_redis(sizes, folder, bars, report)
    shares = [share, busy_share()]
    report["facts"]["others"] = (
        f"{' and '.join(f'{one:.0%}' for one in shares)} of the processors were in use, before and after"
    )
    report["bars"] = [asdict(bar) for bar in bars]
    if options.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        print()
        for fact, value in report["facts"].items():
            print(f"{fact:9}{value}")
        print()
        print_bars(bars)
        late = ", too quick to judge by" if options.quick else ""
        met = sum(bar.is_met for bar in bars)
        print(f"\n{met} of {len(bars)} bars met\n{time.monotonic() - began:.0f} s{late}")
    if max(shares) > BUSY:
        say("NOT JUDGED: others were using this machine. These figures say nothing; run it again when it is quiet.")
        return 2
    return 0 if all(bar.is_met for bar in bars) else 1


def _measure_kafka(sizes: Sizes, parts: Any, folder: Path, bars: list[Bar], report: dict[str, Any]) -> None:
    say("Kafka is started and filled")
    with kafka() as server:
        report["facts"]["kafka"] = (
            f"{server.version}, one broker, {PARTITIONS} partitions; topics of {_counts(sizes.messages)} messages, "
            "for the quick, the others and the slow"
        )
        topics = {size: server.fill(f"{size}-orders", count) for size, count in sizes.messages.items()}
        first = streams_kafka.SUBJECTS[0]
        measure(
            first, topics["many"], "bench-warm", folder / "warm", server.left
        )  # the broker's own compiler has its time
        if "kafka" in parts:
            results = measure_rounds(
                streams_kafka.SUBJECTS,
                lambda subject: topics[subject.size],
                server.left,
                folder,
                sizes.rounds,
            )
            title = "Kafka, messages a second"
            print_table(title, streams_kafka.SUBJECTS, results, streams_kafka.BARE)
            bars += streams_kafka.bars(results)
            report["kafka"] = asdict(results)
        if "stuck" in parts:
            try:
                outcome = streams_stuck.measure_stuck(server, topics["many"], folder)
            except Failed as error:
                say(f"NOT MEASURED: a stuck key: {error}")
                bars.append(Bar("a stuck key", "not measured", is_met=False))
            else:
                streams_stuck.print_outcome(outcome)
                bars += streams_stuck.bars(outcome)
                report["stuck"] = asdict(outcome)


def _measure_redis(sizes: Sizes, folder: Path, bars: list[Bar], report: dict[str, Any]) -> None:
    say("Redis is started and filled")
    with redis_streams(folder) as server:
        report["facts"]["redis"] = f"{server.version} without persistence; streams of {_counts(sizes.entries)} entries"
        topics = {size: server.fill(f"{size}-orders", count) for size, count in sizes.entries.items()}
        results = measure_rounds(
            streams_redis.SUBJECTS,
            lambda subject: topics[subject.size],
            server.left,
            folder,
            sizes.rounds,
            server.forget,
        )
        title = "Redis Streams, messages a second"
        print_table(title, streams_redis.SUBJECTS, results, streams_redis.RAW)
        bars += streams_redis.bars(results)
        report["redis"] = asdict(results)


def _counts(sizes: Mapping[Size, int]) -> str:
    return ", ".join(f"{count:,}" for count in sizes.values())


def _facts() -> Mapping[str, str]:
    """What the figures depend on."""
    quix = dict(line.split("==") for line in QUIX_PINS.read_text().split() if "==" in line)
    names = ("faststream", "aiokafka")
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "python": platform.python_version(),
        "clients": f"confluent-kafka {confluent_kafka.__version__}; {quix['confluent-kafka']} (Quix Streams); "
        f"redis-py {version('redis')}, hiredis {version('hiredis')}",
        "peers": ", ".join([*(f"{name} {version(name)}" for name in names), f"quixstreams {quix['quixstreams']}"]),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time streams against the peers.")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given again [all]")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, too")
    parser.add_argument("--quick", action="store_true", help="one small round: a first look, too coarse to judge by")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
