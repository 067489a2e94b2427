"""Many seeds, on every processor: `python -m tests.simulation --seeds 0-4999`, or `--seed 17 --told` for one of them.

A failing seed is printed, and is the same history whenever it is run again; the digest says so. With `--fresh` they are
others in each run.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import itertools
import logging
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from msgspec import Struct, json

from holdfast.clock import SystemClock, chance
from tests.simulation.planted import PLANTED, Planted
from tests.simulation.world import CRASHED, Outcome, World

_CLOCK = SystemClock()
_CHUNK = 25
_AT_ONCE = 4
_SHOWN = 5
_LONGEST = 200
"""Characters of a violation that are kept."""
_MOST = 1_000
"""Seeds that are tried with a planted bug."""
_FIRST = 100_000
"""The first of these."""
_FRESH = 10**12
"""Fresh seeds begin at any number up to here."""
_ENOUGH = 10_000_000
"""More seeds than any run has time for."""


class Found(Struct, frozen=True, kw_only=True):
    """How a planted bug was found."""

    name: str
    peer: str
    seeds: int
    """How many it took; 0: not found."""
    seconds: float
    shows: str = ""
    """The violation by which it was found."""
    broken: str = ""
    """The error that the plant itself has ended with: then it was not tried, whatever else was seen."""


class Summary(Struct, kw_only=True):
    """What many seeds have come to."""

    first_seed: int = 0
    seeds: int = 0
    seconds: float = 0.0
    seeds_per_minute: float = 0.0
    simulated_hours: float = 0.0
    faults: dict[str, int] = {}
    states: int = 0
    """How many different situations were seen."""
    violations: list[str] = []
    digest: str = ""
    """Of the digests of all seeds, in order."""
    planted: list[Found] = []


def run_seed(seed: int, *, bug: Planted | None = None, is_told: bool = False) -> Outcome:
    """One history, perhaps with a planted bug."""
    with nullcontext() if bug is None else bug.plant():
        return World(seed, is_told=is_told).run()


def _quiet() -> None:
    """A world that is over leaves tasks that nobody ends: that is not worth a word."""
    if "HOLDFAST_TOLD" not in os.environ:
        logging.getLogger("holdfast").propagate = False
        logging.getLogger("holdfast").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None
    gc.freeze()


def _run_chunk(seeds: list[int]) -> list[Outcome]:
    return [run_seed(seed) for seed in seeds]


def find(bug: Planted, most: int = _MOST) -> Found:
    """Seeds with a planted bug until one of them shows what must be seen of it, and does not without it."""
    began_s = _CLOCK.monotonic()
    tried, shows, broken = 0, "", ""
    while tried < most and not shows and not broken:
        seed = _FIRST + tried
        tried += 1
        try:
            violations = run_seed(seed, bug=bug).violations
        except Exception as error:
            violations = [f"{CRASHED}: {error!r}"]
        broken = next((one for one in violations if one.startswith(CRASHED)), "")
        shows = next((one for one in violations if one.startswith(bug.shows)), "")
        if shows and run_seed(seed).violations:
            shows = ""
    return Found(
        name=bug.name,
        peer=bug.known_from,
        seeds=tried if shows and not broken else 0,
        seconds=round(_CLOCK.monotonic() - began_s, 2),
        shows="" if broken else shows[:_LONGEST],
        broken=broken[:_LONGEST],
    )


def _find(number: int) -> Found:
    return find(PLANTED[number])


def _chunks(seeds: Iterable[int], until_s: float) -> Iterator[list[int]]:
    source = iter(seeds)
    while (chunk := list(itertools.islice(source, _CHUNK))) and _CLOCK.monotonic() < until_s:
        yield chunk


def simulate(seeds: Sequence[int], processes: int, within_s: float, bugs: Iterable[int]) -> Summary:
    """Run these seeds, or as many as the time allows, and then with these bugs."""
    began_s = _CLOCK.monotonic()
    summary, faults, states, digests = Summary(first_seed=seeds[0]), Counter[str](), set[int](), list[str]()
    with get_context("spawn").Pool(processes, _quiet) as pool:
        began_s = _CLOCK.monotonic()
        chunks = _chunks(seeds, began_s + within_s)
        # A pool asks for all that it is given at once, whatever the time: so it is given a few at a time.
        while some := list(itertools.islice(chunks, _AT_ONCE * processes)):
            for one in itertools.chain.from_iterable(pool.imap(_run_chunk, some)):
                summary.seeds += 1
                summary.simulated_hours += one.seconds / 3600
                faults.update(one.faults)
                states |= one.states
                digests.append(one.digest)
                if one.violations:
                    summary.violations.append(f"seed {one.seed}: {one.violations[0]}")
                    again = f"again: python -m tests.simulation --seed {one.seed} --told"
                    some_of = one.violations[:_SHOWN]
                    print(
                        f"seed {one.seed}: {len(one.violations)} violations", *some_of, again, sep="\n    ", flush=True
                    )
        summary.seconds = _CLOCK.monotonic() - began_s
        summary.planted = list(pool.imap(_find, bugs))
    summary.seeds_per_minute = 60 * summary.seeds / max(summary.seconds, 1e-9)
    summary.faults, summary.states = dict(faults.most_common()), len(states)
    summary.digest = _digest_of(digests)
    return summary


def _digest_of(digests: list[str]) -> str:
    return hashlib.blake2b(" ".join(digests).encode(), digest_size=8).hexdigest()


def _print(summary: Summary) -> None:
    kinds = ", ".join(f"{kind} {n:,}" for kind, n in summary.faults.items())
    print(
        f"simulation: {summary.seeds:,} seeds from {summary.first_seed}, {summary.seeds_per_minute:,.0f} a minute, "
        f"{summary.simulated_hours:.1f} hours inside, {sum(summary.faults.values()):,} faults ({kinds}), "
        f"{summary.states:,} situations, {len(summary.violations)} violations; digest {summary.digest}"
    )
    for one in summary.planted:
        found = f"found by seed {one.seeds}, after {one.seconds:.1f} s: {one.shows}" if one.seeds else "NOT FOUND"
        told = f"BROKEN, so nobody knows: {one.broken}" if one.broken else found
        print(f"  planted: {one.name} ({one.peer}): {told}")


def _range_of(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _bugs_of(text: str | None) -> Iterable[int]:
    if text == "all":
        return range(len(PLANTED))
    return [int(number) for number in text.split(",")] if text else []


def main() -> int:
    """0 where nothing was broken, and everything planted was found."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of texts have another order in each process otherwise
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seeds", type=_range_of, default=range(2_000), help="the first and the last one [0-1999]")
    which.add_argument("--fresh", action="store_true", help="others in each run, from any first one on, see --within")
    parser.add_argument("--seed", type=int, help="one seed, with all its violations")
    parser.add_argument("--told", action="store_true", help="with --seed: print everything that happens")
    parser.add_argument("--bug", type=int, help="with --seed: plant this bug, by its number")
    parser.add_argument("--planted", nargs="?", const="all", help="plant each bug, or those of these numbers")
    parser.add_argument("--within", type=float, default=3_600.0, help="stop after so many seconds [3600]")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="write what was found to this file, as JSON")
    words: Any = parser.parse_args()
    if words.seed is not None:
        _quiet()
        outcome = run_seed(words.seed, bug=None if words.bug is None else PLANTED[words.bug], is_told=words.told)
        print(f"seed {outcome.seed}: digest {outcome.digest}", *outcome.violations or ["all is well"], sep="\n    ")
        return bool(outcome.violations)
    seeds = words.seeds
    if words.fresh:
        first = int(chance() * _FRESH)
        seeds = range(first, first + _ENOUGH)
        print(f"seeds from {first} on", flush=True)
    summary = simulate(seeds, words.processes, words.within, _bugs_of(words.planted))
    _print(summary)
    if words.out is not None:
        words.out.parent.mkdir(parents=True, exist_ok=True)
        words.out.write_bytes(json.format(json.encode(summary)))
    return bool(summary.violations) or not all(one.seeds for one in summary.planted)
