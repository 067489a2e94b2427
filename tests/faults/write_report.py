"""Writes the report of a run: `python -m tests.faults.write_report FINDINGS.jsonl OUT.md`.

Every figure is out of the findings, and of the files of the simulation and of the soak where there are some. It exits
with 1 when a promise was not kept, or when something that the run should have shown is missing, after it has written
the page.
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
from tests.faults.left_out import left_out
from tests.faults.machine import made_on
from tests.faults.markdown import KEPT, NOT_FOUND, NOT_RUN, number, safe, table
from tests.faults.plan import BESIDES, ELSE, PARTS, PLAN, STORES_OF, WORDS, Row, is_on, named, part_of
from tests.faults.plan import STORES as PLACES
from tests.faults.report import Finding, counted, read, summed
from tests.faults.soak import finding_of
from tests.faults.soak_places import STORES
from tests.faults.soak_plan import Soaked
from tests.faults.soak_verdicts import unjudged
from tests.simulation.planted import PLANTED
from tests.simulation.seeds import Summary

_HEAD: Final = """\
# Reliability, measured

`make faults` injects faults and writes this page: every figure is of one run, and none is written by hand. What is
injected how, who is believed, and what these tests do not show: [faults, injected](explanation/faults.md).
"""
_LEGEND: Final = """\
**Injected** says how often the fault was made to happen, or how many cases were tried. **Acked** is what the producer
was told yes for, and each of these has to be **completed**, **dead** (in the inbox) or **cancelled** (by the test) at
the end, or it is **lost**. A star means that it is gone as was said beforehand: the store is labelled as one that may
lose what it has acked, a backup was restored from before it was enqueued, or the end of its log was spoilt. What has
ended may be more than what was acked: ticks of schedules, and what was enqueued though its reply was lost. **Twice**
are effects beyond the first of each: at least once is what is promised, and a kill can repeat what it has cut off.
**Again** is the time from the first fault that hit a run until what it cut off ran again, p50 and p99; for each death,
where several workers died with it in a row. Where outages follow one another and a worker has stopped the run itself,
it is the longest time between two of them, or from the last of them on, in which it did not run again.
"""
_COLUMNS: Final = (
    *("row", "fault", "store", "injected", "acked", "completed", "dead", "cancelled", "lost", "twice"),
    *("again p50 / p99", "promise", "measured"),
)
_STORES: Final = ("sqlite", "postgres", "redis", "kafka")


class Run(Struct, kw_only=True):
    """Everything that the page is made of."""

    findings: Sequence[Finding]
    simulation: Summary | None = None
    soaks: Sequence[Soaked] = ()
    size: str = "small"
    made_on: str = ""
    """When, and on what."""
    is_whole: bool = False
    """Whether it was to show everything: each row of the plan on each of its stores, the simulation with each bug, the
    soak of each store, long enough to say what stays flat.
    """
    is_failed: bool = False
    """Whether one of the commands before has failed, for whatever reason."""
    left_out: Mapping[Row, str] = {}

    @property
    def is_kept(self) -> bool:
        """Whether something was shown, and nothing speaks against it."""
        return any(one.is_run for one in self.findings) and not any(objections(self))


def objections(run: Run) -> Iterator[str]:
    """Whatever a run that kept every promise does not have, each as a line of Markdown."""
    tests = _of_tests(run)
    yield from (f"{KEPT[False]}: {_named(one)}" for one in tests if one.is_run and not one.is_kept)
    if run.size == "full":
        yield from (f"{NOT_RUN}: {_named(one)}" for one in tests if not one.is_run)
    if run.simulation is not None:
        if run.simulation.violations:
            yield f"{KEPT[False]}: {len(run.simulation.violations):,} seeds of the simulation"
        yield from (f"{NOT_FOUND}: planted bug, {safe(one.name)}" for one in run.simulation.planted if not one.seeds)
    broken = [one for one in run.soaks if one.lost or not one.verdicts or not one.is_kept]
    yield from (f"{KEPT[False]}: the soak on {safe(one.store)}" for one in broken)
    if run.is_whole:
        yield from (f"{NOT_RUN}: {what}" for what in _missing(run))
    if run.is_failed:
        yield f"{KEPT[False]}: a command of this run has failed; what it printed says why"


def _of_tests(run: Run) -> list[Finding]:
    """What the tests have found: a soak is a finding as well, and has a section of its own."""
    soaks = {(found.row, found.store, found.seed) for found in map(finding_of, run.soaks)}
    return [one for one in run.findings if (one.row, one.store, one.seed) not in soaks]


def _named(one: Finding) -> str:
    return f"row {safe(one.row)} on {safe(one.store)}, {safe(one.fault)}: {safe(one.note)}"


def _missing(run: Run) -> Iterator[str]:
    """What the whole plan has, and this run does not, in words."""
    for row in sorted(STORES_OF, key=[*PLAN, *WORDS].index):
        found = {one.store for one in run.findings if one.is_run and one.row == str(row)}
        name = f"row {row}" if isinstance(row, int) else named(row)
        if not found:
            yield f"{name}, {PLAN[row]}" if isinstance(row, int) else name
            continue
        wanted = [PLACES[letter] for letter in STORES_OF[row]]
        yield from (f"{name} on {store}" for store in wanted if not any(is_on(store, one) for one in found))
    for of, fault, letters in BESIDES:
        found = {one.store for one in run.findings if one.is_run and (one.row, one.fault) == (str(of), fault)}
        if not letters and not found:
            yield f"row {of}, {fault}"
        wanted = [PLACES[letter] for letter in letters]
        yield from (f"row {of} on {store}, {fault}" for store in wanted if store not in found)
    if run.simulation is None or not run.simulation.seeds:
        yield "the simulation"
    planted = {one.name for one in run.simulation.planted} if run.simulation else frozenset()
    yield from (f"planted bug, {safe(one.name)}" for one in PLANTED if one.name not in planted)
    soaked = {one.store for one in run.soaks}
    yield from (f"the soak on {store}" for store in STORES if store not in soaked)
    for one in run.soaks:
        if why := unjudged(one.samples, one.verdicts):
            yield f"what has to stay flat in the soak on {safe(one.store)}: {safe(why)}"


def _rows_without(run: Run) -> list[int]:
    """Rows of the plan that nothing was tried of."""
    found = {one.row for one in run.findings if one.is_run}
    return [row for row in PLAN if str(row) not in found]


def page(run: Run) -> str:
    """The whole report, as Markdown."""
    findings = merged(_of_tests(run))
    sections = [
        _HEAD,
        f"Made {run.made_on}, at {run.size} size. `make faults` repeats it; a seed in the last column repeats\n"
        'the places of a single test: `HOLDFAST_SEED=… make faults ARGS="-k row16"`.\n',
        "\n".join(["## In all\n", *_totals(run, [*findings, *map(finding_of, run.soaks)])]),
        _LEGEND,
    ]
    by_part = sorted(findings, key=lambda one: _PLACES.index(part_of(one.row, one.store)))
    for part, rows in groupby(by_part, key=lambda one: part_of(one.row, one.store)):
        lines = [_line(one) for one in sorted(rows, key=_order)]
        sections.append(f"## {part}\n\n{table(_COLUMNS, lines)}")
    sections += [*_simulated(run.simulation), *_soaked(run.soaks), *_without(run)]
    return "\n".join(sections)


# ---------------------------------------------------------------- findings


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """One for each fault on each store: cases that were tried in tests of their own are added up."""
    found: dict[tuple[object, ...], Finding] = {}
    for place, one in enumerate(findings):
        is_whole = one.recovery_s is not None or bool(one.seed)  # neither quantiles nor seeds can be added
        key = (one.row, one.store, one.fault, one.is_kept, one.is_run, place if is_whole else None)
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
        number(figures.cancelled),
        lost,
        number(figures.twice),
        again,
        KEPT[one.is_kept] if one.is_run else NOT_RUN,
        note,
    ]


def _totals(run: Run, findings: Sequence[Finding]) -> Iterator[str]:
    ran = [one for one in findings if one.is_run]
    figures = summed(one.figures for one in ran)
    yield f"- rows of the plan that were run: {len(PLAN) - len(_rows_without(run))} of {len(PLAN)}"
    yield f"- faults injected, and cases tried: {sum(one.injected for one in ran):,}"
    yield f"- jobs and messages acked: {figures.acked or 0:,}"
    yield f"- lost: {figures.lost or 0:,}"
    yield (
        "- gone with stores that are labelled as not durable, with an old backup, or with the end of a damaged log, "
        f"which nobody can tell from a write that was cut short: {figures.forfeited or 0:,}"
    )
    yield f"- effects done twice, each explained by a fault: {figures.twice or 0:,}"
    yield f"- promises kept: {sum(one.is_kept for one in ran)} of {len(ran)}"
    if not ran:
        yield "\n**NOTHING WAS FOUND: THIS RUN SHOWS NOTHING**"
    yield from (f"- {what}" for what in objections(run))
    yield ""


def _without(run: Run) -> Iterator[str]:
    """Rows of the plan that nothing was found for, and parts of rows that are left out."""
    if missing := [[str(row), PLAN[row], NOT_RUN] for row in _rows_without(run)]:
        yield "## Rows of the plan without a finding\n\n" + table(("row", "fault", "why"), missing)
    if run.left_out:
        lines = [[str(row), named(row), why] for row, why in run.left_out.items()]
        yield "## Parts of the plan that are left out\n\n" + table(("row", "fault", "what, and why"), lines)


# ---------------------------------------------------------------- the simulation and the soak


def _simulated(one: Summary | None) -> Iterator[str]:
    if one is None:
        return
    kinds = ", ".join(f"{kind.replace('_', ' ')} {n:,}" for kind, n in sorted(one.faults.items()))
    yield (
        "## Simulation\n\nWorkers, producers and operators on the memory store, in virtual time, with crashes, delays, "
        "replies that are lost, and requests that are done twice. A seed is the same history in every process. It has "
        "what the tests that wait leave of the processors.\n\n"
        f"- seeds: {one.seeds:,} from {one.first_seed} on, in {one.seconds:,.0f} s, {one.seeds_per_minute:,.0f} a "
        f"minute; {one.simulated_hours:,.1f} hours inside; digest of all histories `{one.digest}`\n"
        f"- faults injected: {sum(one.faults.values()):,} ({safe(kinds)})\n"
        f"- different states reached: {one.states:,}\n"
        f"- violations: {len(one.violations):,}\n" + "".join(f"  - {_repeatable(told)}\n" for told in one.violations)
    )
    if one.planted:
        lines = [
            [
                bug.name,
                bug.peer,
                f"{bug.seeds:,}" if bug.seeds else NOT_FOUND,
                f"{bug.seconds:,.2f}",
                f"the plant itself is broken: {bug.broken}" if bug.broken else bug.shows,
            ]
            for bug in one.planted
        ]
        yield (
            "Bugs that others have shipped, and ours if a guard were missing, planted one at a time: how many seeds it "
            "took to find each, and what showed it.\n\n"
            + table(("bug", "whose", "seeds", "seconds", "what showed"), lines)
        )


def _repeatable(violation: str) -> str:
    """A violation, which begins with its seed, and the command that shows it again."""
    seed = violation.partition(":")[0].removeprefix("seed ")
    return f"{KEPT[False]}: {safe(violation)}: `python -m tests.simulation --seed {seed} --told`"


def _soaked(several: Sequence[Soaked]) -> Iterator[str]:
    for one in several:
        found = finding_of(one)
        lines = [[verdict.name, verdict.figure, KEPT[verdict.is_kept]] for verdict in one.verdicts]
        yield (
            f"## Soak on {safe(one.store)}\n\n{safe(found.fault)}: {safe(counted(found))}; "
            f"{len(one.samples):,} samples.\n\n" + table(("what", "figure", "promise"), lines)
        )


# ---------------------------------------------------------------- the command


def main(arguments: Sequence[str]) -> int:
    """Write the page; whether every promise was kept, as an exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.write_report", description=__doc__)
    parser.add_argument("findings", type=Path, help="what the tests have kept")
    parser.add_argument("out", type=Path, help="the page")
    parser.add_argument("--simulation", type=Path, help="what the simulation has left, if it was run")
    parser.add_argument("--soak", type=Path, help="what the soak has left, if it was run")
    parser.add_argument("--whole", action="store_true", help="everything was to be run: what is missing is not kept")
    parser.add_argument("--failed", action="store_true", help="a command before has failed")
    asked = parser.parse_args(arguments)
    soaks: list[Soaked] = _decoded(asked.soak, list[Soaked]) or []
    run = Run(
        findings=read(asked.findings) if asked.findings.exists() else [],
        simulation=_decoded(asked.simulation, Summary),
        soaks=soaks,
        size=os.environ.get("HOLDFAST_FAULTS", "small"),
        made_on=made_on(SystemClock().now()),
        is_whole=asked.whole,
        is_failed=asked.failed,
        left_out=left_out([one.minutes for one in soaks]),
    )
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(page(run))
    for what in objections(run):
        print(what)  # last of all that was printed: whoever has only the end of it knows what to look for
    print(f"{asked.out}: {'every promise was kept' if run.is_kept else 'NOT EVERY PROMISE WAS KEPT'}")
    return 0 if run.is_kept else 1


def _decoded(path: Path | None, kind: Any) -> Any:
    return json.decode(path.read_bytes(), type=kind) if path is not None and path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
