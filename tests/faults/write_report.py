"""Writes the report of a run: `python -m tests.faults.write_report FINDINGS.jsonl OUT.md`.

Every figure is out of the findings, and of the files of the simulation and of the soak where there are some. It exits
with 1 when a promise was not kept, or nothing was found at all, after it has written the page.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, json
from msgspec.structs import replace

from holdfast.clock import SystemClock
from tests.faults.machine import made_on
from tests.faults.markdown import KEPT, NOT_RUN, number, safe, table, told
from tests.faults.plan import ELSE, PARTS, PLAN, WORDS, part_of
from tests.faults.report import Finding, read, summed

LEFT_OUT: Final[Mapping[int, str]] = {}
"""Rows of the plan that this kind of machine cannot do, each with the reason in one sentence."""

_HEAD: Final = """\
# Reliability, measured

`make faults` injects faults and writes this page: every figure is of one run, and none is written by hand. What is
injected how, who is believed, and what these tests do not show: [faults, injected](explanation/faults.md).
"""
_LEGEND: Final = """\
**Injected** says how often the fault was made to happen, or how many cases were tried. **Acked** is what the producer
was told yes for, and each of these has to be **completed** or **dead** (in the inbox) at the end, or it is **lost**; a
star means that the store is labelled as one that may lose what it has acked, and did. **Twice** are effects beyond the
first of each: at least once is what is promised, and a kill can repeat what it has cut off. **Again** is the time from
the fault until what it cut off ran again, p50 and p99.
"""
_COLUMNS: Final = (
    *("row", "fault", "store", "injected", "acked", "completed", "dead", "lost", "twice"),
    *("again p50 / p99", "promise", "measured"),
)
_STORES: Final = ("sqlite", "postgres", "redis", "kafka")


class Simulation(Struct, kw_only=True):
    """What `python -m tests.simulation` leaves behind."""

    seeds: int = 0
    seconds: float = 0.0
    seeds_per_minute: float = 0.0
    faults: Mapping[str, int] = {}
    """By kind."""
    states: int = 0
    """How many different ones were reached."""
    violations: int | Sequence[Any] = 0
    planted: Sequence[Mapping[str, Any]] = ()
    """Bugs that other projects have shipped: name, peer, and after how many seeds and seconds each was found."""

    @property
    def broken(self) -> int:
        """How many violations there were."""
        return self.violations if isinstance(self.violations, int) else len(self.violations)


class Soak(Struct, kw_only=True):
    """What `python -m tests.faults.soak` leaves behind for a store."""

    store: str
    minutes: float = 0.0
    rate: float = 0.0
    drain_rate: float | None = None
    """What it could have been, without a kill."""
    acked: int | None = None
    done: int = 0
    kills: int = 0
    lost: int = 0
    twice: int = 0
    samples: Sequence[Any] = ()
    verdicts: Sequence[Mapping[str, Any]] = ()
    """Each with a name, a figure, and whether it is_kept."""

    @property
    def is_kept(self) -> bool:
        """Whether every verdict is good."""
        return not self.lost and all(one.get("is_kept", False) for one in self.verdicts)


class Run(Struct, kw_only=True):
    """Everything that the page is made of."""

    findings: Sequence[Finding]
    simulation: Simulation | None = None
    soaks: Sequence[Soak] | None = None
    size: str = "small"
    made_on: str = ""
    """When, and on what."""
    missing: Sequence[str] = ()
    """What should have been run besides, and has left nothing."""
    left_out: Mapping[int, str] = LEFT_OUT

    @property
    def is_kept(self) -> bool:
        """Whether something was shown, and every promise kept."""
        is_sound = self.simulation is None or not self.simulation.broken
        is_steady = all(one.is_kept for one in self.soaks or ())
        return bool(self.findings) and is_sound and is_steady and all(one.is_kept for one in self.findings)


def page(run: Run) -> str:
    """The whole report, as Markdown."""
    findings = merged(run.findings)
    sections = [
        _HEAD,
        f"Made {run.made_on}, at {run.size} size. `make faults` repeats it; a seed in the last column repeats\n"
        'the places of a single test: `HOLDFAST_SEED=… make faults ARGS="-k row16"`.\n',
        "\n".join(["## In all\n", *_totals(run, findings)]),
        _LEGEND,
    ]
    by_part = sorted(findings, key=lambda one: _PLACES.index(part_of(one.row, one.store)))
    for part, rows in groupby(by_part, key=lambda one: part_of(one.row, one.store)):
        lines = [_line(one) for one in sorted(rows, key=_order)]
        sections.append(f"## {part}\n\n{table(_COLUMNS, lines)}")
    sections += [*_simulated(run.simulation), *_soaked(run.soaks)]
    sections += [f"## {name}\n\n{NOT_RUN}\n" for name in run.missing]
    sections += _without(run)
    return "\n".join(sections)


# ---------------------------------------------------------------- findings


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """One for each fault on each store: cases that were tried in tests of their own are added up."""
    found: dict[tuple[object, ...], Finding] = {}
    for place, one in enumerate(findings):
        is_whole = one.recovery_s is not None or bool(one.seed)  # neither quantiles nor seeds can be added
        key = (one.row, one.store, one.fault, one.is_kept, place if is_whole else None)
        if (before := found.get(key)) is None:
            found[key] = one
            continue
        notes = [note for note in (before.note, one.note) if note]
        is_new = one.note not in before.note.split("; ")
        found[key] = replace(
            before,
            injected=before.injected + one.injected,
            figures=summed([before.figures, one.figures]),
            note="; ".join(notes) if is_new else before.note,
        )
    return list(found.values())


_PLACES: Final = [*PARTS, *WORDS.values(), ELSE]


def _order(one: Finding) -> tuple[int, str, int, str]:
    """By row; then each fault, with its stores side by side."""
    place = next((n for n, name in enumerate(_STORES) if one.store.startswith(name)), len(_STORES))
    return (int(one.row) if one.row.isdigit() else 0, one.fault, place, one.store)


def _line(one: Finding) -> list[str]:
    figures = one.figures
    lost = number(figures.lost)
    if figures.forfeited is not None:
        lost = f"{figures.forfeited:,}*"
    again = "" if one.recovery_s is None else "{:.2f} / {:.2f} s".format(*one.recovery_s)
    note = ", ".join(filter(None, [one.note, one.seed and f"seed {one.seed}"]))
    return [
        one.row,
        one.fault,
        "" if one.store == "none" else one.store,
        number(one.injected),
        number(figures.acked),
        number(figures.completed),
        number(figures.dead),
        lost,
        number(figures.twice),
        again,
        KEPT[one.is_kept],
        note,
    ]


def _totals(run: Run, findings: Sequence[Finding]) -> Iterator[str]:
    broken = [one for one in findings if not one.is_kept]
    figures = summed(one.figures for one in findings)
    rows = {int(one.row) for one in findings if one.row.isdigit()} & PLAN.keys()
    yield f"- rows of the plan that were run: {len(rows)} of {len(PLAN)}"
    yield f"- faults injected, and cases tried: {sum(one.injected for one in findings):,}"
    yield f"- jobs and messages acked: {figures.acked or 0:,}"
    yield f"- lost: {figures.lost or 0:,}"
    yield f"- lost by stores that are labelled as not durable: {figures.forfeited or 0:,}"
    yield f"- effects done twice, each explained by a fault: {figures.twice or 0:,}"
    yield f"- promises kept: {len(findings) - len(broken)} of {len(findings)}"
    if not findings:
        yield "\n**NOTHING WAS FOUND: THIS RUN SHOWS NOTHING**"
    for one in broken:
        yield f"- **NOT KEPT**: row {safe(one.row)} on {safe(one.store)}, {safe(one.fault)}: {safe(one.note)}"
    yield ""


def _without(run: Run) -> Iterator[str]:
    """Rows of the plan that nothing was found for."""
    found = {one.row for one in run.findings}
    missing = [row for row in PLAN if str(row) not in found]
    if missing:
        lines = [
            [str(row), PLAN[row], f"left out: {why}" if (why := run.left_out.get(row)) else NOT_RUN] for row in missing
        ]
        yield "## Rows of the plan without a finding\n\n" + table(("row", "fault", "why"), lines)


# ---------------------------------------------------------------- the simulation and the soak


def _simulated(one: Simulation | None) -> Iterator[str]:
    if one is None:
        return
    kinds = ", ".join(f"{kind.replace('_', ' ')} {n:,}" for kind, n in sorted(one.faults.items()))
    yield (
        "## Simulation\n\nWorkers, producers and operators on the memory store, in virtual time, with crashes, delays, "
        "and replies that are lost and doubled.\n\n"
        f"- seeds: {one.seeds:,} in {one.seconds:,.0f} s, {one.seeds_per_minute:,.0f} a minute\n"
        f"- faults injected: {sum(one.faults.values()):,}" + (f" ({safe(kinds)})" if kinds else "") + "\n"
        f"- different states reached: {one.states:,}\n"
        f"- violations: {one.broken:,}" + ("" if not one.broken else f", so {KEPT[False]}") + "\n"
    )
    if one.planted:
        lines = [[told(bug.get(name)) for name in ("name", "peer", "seeds", "seconds")] for bug in one.planted]
        yield (
            "Bugs that others have shipped, planted here, and how long the simulation took to find each:\n\n"
            + table(("bug", "whose", "seeds", "seconds"), lines)
        )


def _soaked(several: Sequence[Soak] | None) -> Iterator[str]:
    for one in several or ():
        lines = [
            [told(verdict.get("name")), told(verdict.get("figure")), KEPT[bool(verdict.get("is_kept"))]]
            for verdict in one.verdicts
        ]
        load = f"{one.rate:,.0f} jobs a second" + (f" of {one.drain_rate:,.0f}" if one.drain_rate is not None else "")
        acked = f"{one.acked:,} acked, " if one.acked is not None else ""
        yield (
            f"## Soak on {safe(one.store)}\n\n{one.minutes:,.1f} minutes at {load}: {acked}{one.done:,} done, "
            f"{one.kills:,} kills, {one.lost:,} lost, {one.twice:,} effects twice, {len(one.samples):,} samples.\n\n"
            + table(("what", "figure", "promise"), lines)
        )


# ---------------------------------------------------------------- the command


def main(arguments: Sequence[str]) -> int:
    """Write the page; whether every promise was kept, as an exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.write_report", description=__doc__)
    parser.add_argument("findings", type=Path, help="what the tests have kept")
    parser.add_argument("out", type=Path, help="the page")
    parser.add_argument("--simulation", type=Path, help="what the simulation has left, if it was run")
    parser.add_argument("--soak", type=Path, help="what the soak has left, if it was run")
    asked = parser.parse_args(arguments)
    besides: dict[str, Path | None] = {"Simulation": asked.simulation, "Soak": asked.soak}
    run = Run(
        findings=read(asked.findings) if asked.findings.exists() else [],
        simulation=_decoded(asked.simulation, Simulation),
        soaks=_decoded(asked.soak, list[Soak]),
        size=os.environ.get("HOLDFAST_FAULTS", "small"),
        made_on=made_on(SystemClock().now()),
        missing=[name for name, path in besides.items() if path is not None and not path.exists()],
    )
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(page(run))
    print(f"{asked.out}: {'every promise was kept' if run.is_kept else 'NOT EVERY PROMISE WAS KEPT'}")
    return 0 if run.is_kept else 1


def _decoded(path: Path | None, kind: Any) -> Any:
    return json.decode(path.read_bytes(), type=kind) if path is not None and path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
