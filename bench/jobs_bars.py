"""What was measured in one run of bench-jobs, and the promises it is held against."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs_timing import percentile

PEERS = ("huey", "localqueue")
SYNC, ASYNC = "holdfast, sync task", "holdfast, async task"
FLAT_LIMIT = 2.0
MEMORY_LIMIT_MB = 100.0
IDLE_LIMIT = 0.02
NEAR = 0.3
RAW = ("drain", "raw, enqueued too")
PUBLISHED: dict[tuple[str, str], tuple[float, float]] = {
    RAW: (44_000, 44_000),
    ("drain", "huey"): (2_178, 2_178),
    ("drain", "localqueue"): (1_500, 2_600),
    ("one by one", "huey"): (2_961, 2_961),
    ("one by one", "localqueue"): (3_185, 3_185),
}
"""Jobs a second in PEERS.md: from, to."""


@dataclass(slots=True)
class Results:
    """All figures of a run."""

    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Jobs a second of each round, by table and name."""
    starts_ms: dict[str, list[float]] = field(default_factory=dict)
    """From enqueueing to the start on an idle worker."""
    idle: float = 0.0
    """The part of a core that an idle worker takes."""
    backlog: int = 0
    claims_ms: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of 100 jobs, with 1,000 in the file and with the backlog."""
    memory_mb: tuple[float, float] = (0.0, 0.0)
    """A worker's peak, the same."""
    fleet_rate: float = 0.0
    shares: list[int] = field(default_factory=list)
    """Jobs that each worker of the fleet completed."""
    repeated: int = 0
    """Jobs of the fleet that took more than one attempt."""

    def add(self, table: str, name: str, rate: float) -> None:
        self.rates.setdefault(table, {}).setdefault(name, []).append(rate)

    def best(self, table: str, name: str) -> float:
        return max(self.rates[table][name])

    def faster_peer(self, table: str) -> float:
        return max(self.best(table, name) for name in PEERS if name in self.rates[table])


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise, what was measured, and whether it is kept."""

    text: str
    measured: str
    is_met: bool


def bars(results: Results) -> list[Bar]:
    return [*_drain_bars(results), *_enqueue_bars(results), *_start_bars(results), *_flat_bars(results)]


def _at_least(text: str, ratio: float, limit: float) -> Bar:
    return Bar(text, f"{ratio:.2f}", ratio >= limit)


def _drain_bars(results: Results) -> list[Bar]:
    found = []
    for name in (SYNC, ASYNC):
        rate = results.best("drain", name)
        found += [
            _at_least(f"drain, {name}: ≥ 10 × the faster peer", rate / results.faster_peer("drain"), 10),
            _at_least(f"drain, {name}: ≥ 0.5 × the raw loop", rate / results.best("drain", "raw loop"), 0.5),
        ]
    return found


def _enqueue_bars(results: Results) -> list[Bar]:
    one, many, at_once = "one by one", "in batches", "at once"
    rate = results.best(one, "holdfast")
    # The faster way of being alone: the gain must not come from a slow way to wait.
    alone = max(results.best(at_once, "one sync caller"), results.best(at_once, "one coroutine"))
    return [
        _at_least("enqueue one by one: ≥ 0.8 × the faster peer", rate / results.faster_peer(one), 0.8),
        _at_least("enqueue one by one: ≥ 0.75 × a bare commit per row", rate / results.best(one, "bare commit"), 0.75),
        _at_least(
            "enqueue_many: ≥ 0.5 × raw batches of 1,000",
            results.best(many, "holdfast") / results.best(many, "raw batches"),
            0.5,
        ),
        _at_least("100 coroutines: ≥ 4 × a single caller", results.best(at_once, "100 coroutines") / alone, 4),
        _at_least("16 threads: ≥ 2.5 × a single caller", results.best(at_once, "16 threads") / alone, 2.5),
    ]


def _start_bars(results: Results) -> list[Bar]:
    half, most = (percentile(results.starts_ms["holdfast"], percent) for percent in (50, 99))
    return [
        Bar("enqueue to start on an idle worker: p50 ≤ 10 ms", f"{half:.1f} ms", half <= 10),
        Bar("enqueue to start on an idle worker: p99 ≤ 50 ms", f"{most:.1f} ms", most <= 50),
        Bar("idle worker: < 2 % of a core", f"{results.idle:.2%}", results.idle < IDLE_LIMIT),
    ]


def _flat_bars(results: Results) -> list[Bar]:
    held = [
        Bar(
            f"claim with {results.backlog:,} jobs, {name}: ≤ 2 × that with 1,000",
            f"{large / small:.2f}",
            large <= FLAT_LIMIT * small,
        )
        for name, (small, large) in results.claims_ms.items()
    ]
    memory = [
        Bar(f"worker memory with {jobs:,} jobs: < 100 MB", f"{mb:.1f} MB", mb < MEMORY_LIMIT_MB)
        for jobs, mb in zip((1_000, results.backlog), results.memory_mb, strict=True)
    ]
    repeated = results.repeated
    least = min(results.shares) * len(results.shares) / sum(results.shares) if len(results.shares) == 4 else 0.0
    return [
        *held,
        *memory,
        _at_least("four workers: none under 0.5 × its fair share", least, 0.5),
        Bar("four workers: no lease lost, every job done at its first attempt", f"{repeated} were not", not repeated),
    ]


def beside_published(results: Results) -> list[str]:
    """A line for each figure that PEERS.md has too: near it, or as far from it as SQLite itself is on this machine."""
    machine = results.best(*RAW) / PUBLISHED[RAW][0]
    lines = []
    for (table, name), (low, high) in PUBLISHED.items():
        rate = results.best(table, name)
        published = f"{low:,.0f}" if low == high else f"{low:,.0f}–{high:,.0f}"
        factor = rate / min(max(rate, low), high)
        if _is_near(factor):
            said = "within 30 %"
        elif (table, name) == RAW:
            said = f"{factor:.2f} ×: the speed of this machine and its disk"
        elif _is_near(factor / machine):
            said = f"{factor:.2f} ×: so is SQLite itself here, {machine:.2f} ×"
        else:
            said = f"{factor:.2f} ×: NOT EXPLAINED by this machine, where SQLite itself has {machine:.2f} ×"
        lines.append(f"  {name + ', ' + table:30}{rate:>10,.0f}{published:>14}   {said}")
    return lines


def _is_near(factor: float) -> bool:
    return 1 - NEAR <= factor <= 1 + NEAR
