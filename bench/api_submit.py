"""POST /jobs beside a bare FastAPI route with the same typed body: the first part of bench-api."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from api_server import serving
from jobs_bars import Bar, at_least
from jobs_rounds import say
from jobs_subject import Engine
from jobs_timing import cpu_s, run

BARE = "bare FastAPI route"
CONNECTIONS = 32
LEAST = 0.5


@dataclass(slots=True)
class Submits:
    """Requests a second of each round, what one costs the server, and the most of a core that the client took."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    """Microseconds of processor time in the server's process, by round."""
    client: float = 0.0

    def best(self, name: str) -> float | None:
        return max(self.rates.get(name, ()), default=None)


def measure(engines: Mapping[str, Engine], rounds: int, requests: int) -> Submits:
    """All take turns; each has a server process, and a store, of its own in each round."""
    found = Submits()
    some = next(iter(engines.values()))
    for turn in range(rounds):
        for name, engine in {BARE: some, **engines}.items():
            say(f"submit, round {turn + 1} of {rounds}: {name}")
            module = "api_bare" if name == BARE else "api_server"
            with engine.place() as place, serving(place.environment, place.folder, module) as server:
                used_s = cpu_s(server.pid)
                got = run("api_client", "submit", {}, port=server.port, requests=requests, connections=CONNECTIONS)
                used_s = cpu_s(server.pid) - used_s
            found.rates.setdefault(name, []).append(got["rate"])
            found.cpu_us.setdefault(name, []).append(used_s / got["sent"] * 1e6)
            found.client = max(found.client, got["client"])
    return found


def bars(found: Submits) -> list[Bar]:
    text = "submit over HTTP on SQLite: ≥ 0.5 × a bare FastAPI route with the same typed body"
    return [at_least(text, found.best("sqlite"), found.best(BARE), LEAST)]


def print_table(found: Submits) -> None:
    base = found.best(BARE)
    title = f"POST /jobs, {CONNECTIONS} connections"
    print(f"\n{title:36}{'jobs/s':>10}{'median':>10}{'× bare route':>14}{'CPU µs each':>14}")
    for name, rates in found.rates.items():
        ratio = f"{max(rates) / base:14.2f}" if base else ""
        print(f"  {name:34}{max(rates):10,.0f}{median(rates):10,.0f}{ratio}{min(found.cpu_us[name]):14,.0f}")
    print(f"  the client took at most {found.client:.0%} of a core")
