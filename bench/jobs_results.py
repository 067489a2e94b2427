"""What was measured of one store in a run of bench-jobs, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from jobs_timing import percentile

RAW, RAW_LIFE = "raw client", "raw client, enqueued too"
OURS = "holdfast"
SYNC, ASYNC = "holdfast, sync task", "holdfast, async task"
ALONE = "one sync caller"
ONE, MANY, DRAIN, AT_ONCE = "one by one", "in batches", "drain", "at once"
TITLES = {
    DRAIN: "drain of no-op jobs, one worker",
    ONE: "enqueue one by one",
    MANY: "enqueue 1,000 at a time",
    AT_ONCE: "enqueue one by one, many callers",
}


@dataclass(slots=True)
class Results:
    """All figures of one store; what was not measured is not there."""

    peers: tuple[str, ...]
    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Jobs a second of each round, by table and name."""
    starts_ms: dict[str, list[float]] = field(default_factory=dict)
    """From enqueueing to the start on an idle worker."""
    failed: dict[str, str] = field(default_factory=dict)
    """Who could not be measured, and why."""
    idle: float | None = None
    """The part of a core that an idle worker takes."""
    backlog: int = 0
    claims_ms: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of 100 jobs, with 1,000 in the store and with the backlog."""
    memory_mb: tuple[float, float] | None = None
    """A worker's peak, the same."""
    fleet_rate: float = 0.0
    shares: list[int] = field(default_factory=list)
    """Jobs that each worker of the fleet completed."""
    repeated: int = 0
    """Jobs of the fleet that took more than one attempt."""
    busy_rates: dict[int, float] = field(default_factory=dict)
    """Jobs a second with a handler of 1 ms of processor time, by the number of worker processes."""
    rescue_s: float | None = None
    """From the SIGKILL of a worker to the next start of its job."""

    def add(self, table: str, name: str, rate: float) -> None:
        self.rates.setdefault(table, {}).setdefault(name, []).append(rate)

    def best(self, table: str, name: str) -> float | None:
        return max(self.rates.get(table, {}).get(name, ()), default=None)

    def fastest_peer(self, table: str, but: Sequence[str] = ()) -> float | None:
        found = [self.best(table, name) for name in self.peers if name not in but]
        return max((one for one in found if one is not None), default=None)


# ---- tables


def print_rates(results: Results, table: str, base: str) -> None:
    """A line each: the best of the rounds, their median, and the ratios to the base and to the fastest peer."""
    rates = results.rates.get(table, {})
    of_base, of_peer = results.best(table, base), results.fastest_peer(table)
    name, *setting = table.split(", ", 1)
    title = ", ".join([TITLES[name], *setting])
    width = max(36, len(title))
    print(f"\n{title:{width}}{'jobs/s':>10}{'median':>10}{'× ' + base:>18}" + ("   × fastest peer" if of_peer else ""))
    for name, found in rates.items():
        ratios = "".join(_ratio(max(found), of, width) for of, width in ((of_base, 18), (of_peer, 17)))
        print(f"  {name:{width - 2}}{max(found):10,.0f}{median(found):10,.0f}{ratios}")


def _ratio(rate: float, of: float | None, width: int) -> str:
    return f"{rate / of:{width}.2f}" if of else ""


def print_rest(results: Results) -> None:
    """The tables that are no rates, as far as they were measured."""
    print(f"\n{'enqueue to start on an idle worker':36}{'p50 ms':>10}{'p99 ms':>10}{'jobs':>8}")
    for name, times in results.starts_ms.items():
        print(f"  {name:34}{percentile(times, 50):10.1f}{percentile(times, 99):10.1f}{len(times):8}")
    if results.idle is not None:
        print(f"  idle worker of holdfast: {results.idle:.2%} of a core")
    if results.claims_ms:
        print(f"\n{'claim of 100 jobs, median ms':36}{'1,000':>12}{results.backlog:12,}{'×':>7}")
    for name, (small, large) in results.claims_ms.items():
        print(f"  {name:34}{small:12.2f}{large:12.2f}{large / small:7.2f}")
    if results.memory_mb is not None:
        print(f"  {'worker memory, MB':34}{results.memory_mb[0]:12.1f}{results.memory_mb[1]:12.1f}")
    if results.shares:
        shares = ", ".join(f"{share:,}" for share in results.shares)
        print(f"\nfour workers on one file: {results.fleet_rate:,.0f} jobs/s; they completed {shares}")
    if results.busy_rates:
        rates = ", ".join(f"{rate:,.0f} jobs/s with {n} worker(s)" for n, rate in results.busy_rates.items())
        print(f"\na handler of 1 ms of processor time: {rates}")
    if results.rescue_s is not None:
        print(f"a worker was killed: its job ran again after {results.rescue_s:.1f} s")
    for name, why in results.failed.items():
        print(f"\nNOT MEASURED: {name}: {why}")


def print_tables(results: Results) -> None:
    """All of them, those with another setting of the server last."""
    places = {table: place for place, table in enumerate(TITLES)}

    def place_of(table: str) -> tuple[str, int]:
        name, _, setting = table.partition(", ")
        return setting, places[name]

    for table in sorted(results.rates, key=place_of):
        print_rates(results, table, ALONE if table == AT_ONCE else RAW)
    print_rest(results)
