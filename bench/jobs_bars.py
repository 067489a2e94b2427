"""The promises that bench-jobs holds Holdfast against, and whether they are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs_flat import CAPS
from jobs_holdfast import FLEET
from jobs_results import MANY, OURS, Results
from jobs_timing import percentile

FLAT_LIMIT = 2.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise, what was measured, and whether it is kept."""

    text: str
    measured: str
    is_met: bool


def at_least(text: str, ours: float | None, theirs: float | None, limit: float, *, is_strict: bool = False) -> Bar:
    """So many times theirs; is_strict: more than that."""
    if ours is None or not theirs:
        return Bar(text, "not measured", is_met=False)
    ratio = ours / theirs
    return Bar(text, f"{ratio:.2f}", ratio > limit if is_strict else ratio >= limit)


def at_most(
    text: str, value: float | None, limit: float, show: Callable[[float], str], *, is_strict: bool = False
) -> Bar:
    """No more than the limit; is_strict: less than that."""
    if value is None:
        return Bar(text, "not measured", is_met=False)
    return Bar(text, show(value), value < limit if is_strict else value <= limit)


def start_bars(results: Results, half_ms: float, most_ms: float) -> list[Bar]:
    times = results.starts_ms.get(OURS)
    half, most = (percentile(times, percent) if times else None for percent in (50, 99))
    return [
        at_most(f"enqueue to start on an idle worker: p50 ≤ {half_ms:g} ms", half, half_ms, "{:.1f} ms".format),
        at_most(f"enqueue to start on an idle worker: p99 ≤ {most_ms:g} ms", most, most_ms, "{:.1f} ms".format),
    ]


def flat_bars(results: Results) -> list[Bar]:
    found = []
    for name in CAPS:
        small, large = results.claims_ms.get(name, (0.0, 0.0))
        text = f"claim with {results.backlog:,} jobs, {name}: ≤ 2 × that with 1,000"
        found.append(at_most(text, large / small if small else None, FLAT_LIMIT, "{:.2f}".format))
    return found


def server_bars(results: Results) -> list[Bar]:
    """What Redis and PostgreSQL have in common."""
    many, peers = results.best(MANY, OURS), results.fastest_peer(MANY)
    four, alone = (results.busy_rates.get(workers) for workers in (FLEET, 1))
    return [
        at_least("enqueue_many: ahead of every peer", many, peers, 1, is_strict=True),
        at_least("four worker processes, a handler of 1 ms: ≥ 1.6 × one", four, alone, 1.6),
        *start_bars(results, 3, 15),
        at_most("a killed worker's job runs again within 15 s", results.rescue_s, 15, "{:.1f} s".format),
        *flat_bars(results),
    ]


def print_bars(bars: Sequence[Bar]) -> None:
    for bar in bars:
        print(f"{'PASS  ' if bar.is_met else 'MISSED'}  {bar.text}: {bar.measured}")
