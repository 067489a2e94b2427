"""What a ring's consumers did in several runs, judged by their ledgers: nothing lost, little twice, order kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path

import msgspec

from tests.faults.ring_pipeline import Line


def read_ledger(path: Path) -> list[Line]:
    """All lines; one that a kill has cut off would be told, and a single write leaves none."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Line) for line in path.read_bytes().splitlines()]


def batches_of(lines: Iterable[Line]) -> list[Line]:
    """Without the ends."""
    return [line for line in lines if not line.is_close]


def problems(lines: Sequence[Line], until: int) -> list[str]:
    """What one consumer did wrong, in words; it should have done everything below `until`.

    Each run is in order and without gaps. It begins where the run before it stopped, or with that run's last batch: the
    one that it had not saved when it was killed.
    """
    found: list[str] = []
    runs = [list(run) for _, run in groupby(batches_of(lines), key=lambda line: line.pid)]
    for run in runs:
        for before, after in pairwise(run):
            if after.first != before.last + 1:
                found.append(f"after {before.last} came {after.first} in one run")
    if runs and runs[0][0].first != 0:
        found.append(f"the first run began at {runs[0][0].first}")
    for one, next_one in pairwise(runs):
        stopped, begun = one[-1], next_one[0].first
        if begun not in {stopped.first, stopped.last + 1}:
            found.append(f"a run ended with {stopped.first} to {stopped.last}, and the next began at {begun}")
    done = Counter(number for line in batches_of(lines) for number in range(line.first, line.last + 1))
    lost = [number for number in range(until) if number not in done]
    if lost:
        found.append(f"lost {len(lost)}, such as {lost[:3]}")
    beyond = [number for number in done if number >= until]
    if beyond:
        found.append(f"{len(beyond)} were never produced, such as {beyond[:3]}")
    closes = Counter(line.pid for line in lines if line.is_close)
    found += [f"closed {n} times in process {pid}" for pid, n in closes.items() if n != 1]
    return found


def distinct(lines: Iterable[Line]) -> int:
    """How many elements were done."""
    return len({number for line in batches_of(lines) for number in range(line.first, line.last + 1)})


def repeated(lines: Iterable[Line]) -> int:
    """How many elements were done more than once."""
    done = Counter(number for line in batches_of(lines) for number in range(line.first, line.last + 1))
    return sum(n > 1 for n in done.values())
