"""Elements a second of bench-ring: rounds in which all take turns, and their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from jobs_bars import Bar, at_least
from jobs_rounds import say
from jobs_timing import Failed
from ring_channels import channel_run, open_credits, open_deque, open_janus, open_queue, open_simple_queue
from ring_holdfast import holdfast_run
from ring_load import BATCHES, SHAPES, SIZE, Run, Shape, load_of, watched
from ring_lock import run_lock_ring

OURS = "holdfast"
QUEUE = "queue.Queue"
LOCK_RING = "lock ring"

SUBJECTS: Mapping[str, Run] = {
    QUEUE: channel_run(open_queue),
    "SimpleQueue, unbounded": channel_run(open_simple_queue),
    "SimpleQueue, credits": channel_run(open_credits),
    "deque and Condition": channel_run(open_deque),
    "janus, sync sides": channel_run(open_janus),
    LOCK_RING: run_lock_ring,
    OURS: holdfast_run(),
}
"""By their names; ours comes last in the tables."""

SINGLE_BARS: Mapping[Shape, Mapping[str, float]] = {
    "1 → 1": {QUEUE: 5},
    "1 → 3": {QUEUE: 8, LOCK_RING: 2},
    "A → B → C": {QUEUE: 8, LOCK_RING: 2},
}
BATCH_BARS: Mapping[Shape, Mapping[str, float]] = {
    "1 → 1": {QUEUE: 1},
    "1 → 3": {QUEUE: 1.2},
    "A → B → C": {QUEUE: 1},
}

Cell = tuple[int, Shape, str]
"""A batch, a shape and a name."""


@dataclass(slots=True)
class Rates:
    """Elements a second, each counted once however many consumers sum it."""

    rounds: dict[Cell, list[float]] = field(default_factory=dict)
    failed: dict[Cell, str] = field(default_factory=dict)

    def median(self, cell: Cell) -> float | None:
        found = self.rounds.get(cell)
        return median(found) if found and cell not in self.failed else None

    def best(self, cell: Cell) -> float | None:
        found = self.rounds.get(cell)
        return max(found) if found and cell not in self.failed else None


def measure_rates(rounds: int, seconds: float, batches: Sequence[int] = BATCHES) -> Rates:
    """A first run, which is not counted, says how many passes take about as many seconds; one pass at least."""
    rates = Rates()
    passes: dict[Cell, int] = {}
    for turn in range(rounds + 1):
        for batch in batches:
            say(f"round {turn} of {rounds}: batches of {batch}" if turn else f"warming up: batches of {batch}")
            for shape in SHAPES:
                for name, run in SUBJECTS.items():
                    cell = (batch, shape, name)
                    if cell in rates.failed:
                        continue
                    load = load_of(batch, passes.get(cell, 1 if batch == 1 else 4))
                    try:
                        with watched():
                            took = run(shape, load)
                    except Failed as error:
                        rates.failed[cell] = str(error)
                        say(f"NOT MEASURED: {name}, {shape}, batches of {batch}: {error}")
                        continue
                    if turn:
                        rates.rounds.setdefault(cell, []).append(load.count / took)
                    else:
                        passes[cell] = max(1, round(load.passes * seconds / took))
    return rates


def rate_bars(rates: Rates, batches: Sequence[int] = BATCHES) -> list[Bar]:
    bars = []
    for batch in batches:
        for shape, limits in (SINGLE_BARS if batch == 1 else BATCH_BARS).items():
            for name, limit in limits.items():
                text = f"{shape}, batches of {batch}: ≥ {limit:g} × {name}"
                ours, theirs = (rates.median((batch, shape, one)) for one in (OURS, name))
                bars.append(at_least(text, ours, theirs, limit))
    return bars


def print_rates(rates: Rates, batches: Sequence[int] = BATCHES) -> None:
    print(
        f"Elements a second, at most {SIZE:,} under way: the median of interleaved rounds, their best, and the median"
    )
    print("beside that of queue.Queue. Every consumer sums every element, and the sums are checked.")
    for batch in batches:
        print(f"\n{f'batches of {batch}':26}" + "".join(f"{shape:>12}{'best':>12}{'× Queue':>8}" for shape in SHAPES))
        for name in SUBJECTS:
            cells = "".join(_columns(rates, (batch, shape, name)) for shape in SHAPES)
            print(f"  {name:24}{cells}")


def _columns(rates: Rates, cell: Cell) -> str:
    middle, best, of_queue = rates.median(cell), rates.best(cell), rates.median((*cell[:2], QUEUE))
    if middle is None or best is None:
        return f"{'–':>12}{'–':>12}{'–':>8}"
    return f"{middle:12,.0f}{best:12,.0f}" + (f"{middle / of_queue:8.2f}" if of_queue else f"{'–':>8}")
