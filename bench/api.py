"""The HTTP API beside a bare route, with few jobs and with a million, and with many who listen: `make bench-api`.

Exits with 1 when a bar is missed, and with 2 when others were using the machine, whose figures then mean nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

import api_events
import api_lists
import api_page
import api_submit
from jobs import BUSY, machine
from jobs_bars import Bar, print_bars
from jobs_rounds import say
from jobs_servers import postgres_server, redis_server
from jobs_sqlite import Disk
from jobs_subject import Engine
from jobs_timing import Failed, busy_share, fsync_times_us, real_disk, workplace

PARTS = ("submit", "lists", "events", "page")
STORES = ("sqlite", "postgres", "redis")
URLS: Mapping[str, Callable[[str, str], str]] = {
    "sqlite": lambda url, name: url.replace("holdfast.db", f"{name}.db"),
    "postgres": lambda url, name: f"{url}?schema={name}",
    "redis": lambda url, name: f"{url}?prefix={name}",
}
"""Two stores in one place."""


def main() -> int:
    options = _options()
    began = time.monotonic()
    shares: list[float] = [busy_share()]
    bars: list[Bar] = []
    with workplace(options.dir) as folder:
        fsync_us = [fsync_times_us(folder)]
        disk = Disk(folder)
        for part in options.part or PARTS:
            try:
                bars += MEASURES[part](options, folder, disk)
            except Failed as error:
                say(f"NOT MEASURED: {part}: {error}")
                bars.append(Bar(part, "not measured", is_met=False))
            sys.stdout.flush()
        fsync_us.append(fsync_times_us(folder))
    shares.append(busy_share())
    print()
    facts = {**machine(options.dir, fsync_us, shares), "servers": _versions()}
    for fact, value in facts.items():
        print(f"{fact:9}{value}")
    print()
    print_bars(bars)
    late = ", too quick to judge by" if options.quick else ""
    print(f"\n{sum(bar.is_met for bar in bars)} of {len(bars)} bars met\n{time.monotonic() - began:.0f} s{late}")
    if max(shares) > BUSY:
        say("NOT JUDGED: others were using this machine. These figures say nothing; run it again when it is quiet.")
        return 2
    return 0 if all(bar.is_met for bar in bars) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time the HTTP API.")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given again [all]")
    parser.add_argument("--store", action="append", choices=STORES, help="only this store; may be given again [all]")
    parser.add_argument("--jobs", type=int, help="completed jobs in the large store [1,000,000]")
    parser.add_argument("--letters", type=int, help="dead letters there [100,000]")
    parser.add_argument("--dir", type=Path, default=real_disk(), help="a folder on the disk to be used")
    parser.add_argument("--quick", action="store_true", help="small and few: a first look, too coarse to judge by")
    found = parser.parse_args()
    found.jobs = found.jobs or (20_000 if found.quick else 1_000_000)
    found.letters = found.letters or (2_000 if found.quick else 100_000)
    return found


def _versions() -> str:
    names = ", ".join(f"{name} {version(name)}" for name in ("fastapi", "pydantic", "uvicorn", "h11"))
    return f"{names}; one process each, asyncio's event loop"


@contextmanager
def _engine(name: str, folder: Path, disk: Disk) -> Iterator[Engine]:
    if name == "sqlite":
        yield disk
    elif name == "postgres":
        with postgres_server(folder / "postgres") as postgres:
            yield postgres
    else:
        with redis_server(folder / "redis", appendfsync="everysec") as redis:
            yield redis


# ---- the parts


def _submit(options: argparse.Namespace, folder: Path, disk: Disk) -> list[Bar]:
    with ExitStack() as stack:
        names = options.store or STORES
        engines = {name: stack.enter_context(_engine(name, folder, disk)) for name in names}
        found = api_submit.measure(engines, 1 if options.quick else 5, 1_500 if options.quick else 10_000)
    api_submit.print_table(found)
    return api_submit.bars(found) if "sqlite" in names else []


def _lists(options: argparse.Namespace, folder: Path, disk: Disk) -> list[Bar]:
    bars: list[Bar] = []
    for name in options.store or STORES:
        with _engine(name, folder, disk) as engine:
            calls = 10 if options.quick else 60
            found = api_lists.measure(name, engine, URLS[name], options.jobs, options.letters, calls)
        api_lists.print_table(name, found)
        bars += api_lists.bars(name, found)
    return bars


def _events(options: argparse.Namespace, folder: Path, disk: Disk) -> list[Bar]:
    found = api_events.measure(disk, 1 if options.quick else 5, 20_000 if options.quick else 200_000)
    api_events.print_table(found)
    return api_events.bars(found)


def _page(options: argparse.Namespace, folder: Path, disk: Disk) -> list[Bar]:
    sizes = api_page.measure(disk)
    if not sizes:
        print("\n*** THE PAGE HAS NOT BEEN BUILT, SO ITS SIZE WAS NOT MEASURED: make page ***")
        return []
    api_page.print_table(sizes)
    return api_page.bars(sizes)


MEASURES: Mapping[str, Callable[[argparse.Namespace, Path, Disk], list[Bar]]] = {
    "submit": _submit,
    "lists": _lists,
    "events": _events,
    "page": _page,
}


if __name__ == "__main__":
    sys.exit(main())
