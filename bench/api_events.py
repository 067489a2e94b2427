"""A worker's drain beside 200 open streams of events: the third part of bench-api."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import jobs_holdfast
from api_server import serving
from jobs_bars import Bar, at_least
from jobs_holdfast import Watch, worker
from jobs_rounds import say
from jobs_subject import Engine, Place
from jobs_timing import LOG_SHOWN, PYTHON, Failed, drain_rate, run, started

CLIENTS = 200
LEAST = 0.9
OPEN_WITHIN_S = 60.0
WITHOUT, WITH = "nobody listens", f"{CLIENTS} listen"


@dataclass(slots=True)
class Drains:
    """Jobs a second of each round, and the events that the clients heard."""

    rates: dict[str, list[float]] = field(default_factory=lambda: {WITHOUT: [], WITH: []})
    events: int = 0


def measure(engine: Engine, rounds: int, jobs: int) -> Drains:
    """The same drain with and without, in turns; the API runs beside both."""
    found = Drains()
    for turn in range(rounds):
        for name, clients in ((WITHOUT, 0), (WITH, CLIENTS)):
            say(f"drain, round {turn + 1} of {rounds}: {name}")
            with engine.place() as place:
                run(jobs_holdfast.ME, "enqueue_many", place.environment, count=jobs, task="noop")
                found.rates[name].append(_drain(place, jobs, clients, found))
    return found


def _drain(place: Place, jobs: int, clients: int, found: Drains) -> float:
    with (
        serving(place.environment, place.folder) as server,
        Watch(place) as watch,
        listening(server.port, clients, place.folder) as said,
        worker(place) as process,
    ):
        rate = drain_rate(watch.done, jobs, [process], place.log)
        if clients:
            found.events += json.loads(said.read_text())["events"]
        return rate


@contextmanager
def listening(port: int, clients: int, folder: Path) -> Iterator[Path]:
    """So many open streams, all in one process; the file says what they have heard."""
    said, log = folder / "listening", folder / "listening.log"
    if not clients:
        yield said
        return
    arguments = json.dumps({"port": port, "clients": clients, "said": str(said)})
    command = [str(PYTHON), "-m", "jobs_call", "api_client", "listen", arguments]
    with started(command, {}, log, is_killed=True) as process:
        began = time.monotonic()
        while _open(said) < clients:
            if process.poll() is not None or time.monotonic() - began > OPEN_WITHIN_S:
                raise Failed(f"{_open(said)} of {clients} streams are open: {log.read_text()[-LOG_SHOWN:]}")
            time.sleep(0.05)
        yield said
        if process.poll() is not None:
            raise Failed(f"the streams ended: {log.read_text()[-LOG_SHOWN:]}")


def _open(said: Path) -> int:
    try:
        found: int = json.loads(said.read_text())["open"]
    except (FileNotFoundError, json.JSONDecodeError):  # it is being written
        return 0
    return found


def bars(found: Drains) -> list[Bar]:
    text = f"a worker's drain with {CLIENTS} open streams: < 10 % slower than with none"
    without, listened = (median(found.rates[name]) for name in (WITHOUT, WITH))
    return [at_least(text, listened, without, LEAST, is_strict=True)]


def print_table(found: Drains) -> None:
    print(f"\n{'drain of no-op jobs, one worker':36}{'median':>10}{'best':>10}   rounds")
    for name, rates in found.rates.items():
        rounds = ", ".join(f"{rate:,.0f}" for rate in rates)
        print(f"  {name:34}{median(rates):10,.0f}{max(rates):10,.0f}   {rounds}")
    print(f"  the streams brought {found.events:,} events meanwhile")
