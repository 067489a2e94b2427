"""What was injected and what came of it: one finding for each fault on each store, kept in a file while tests run.

`make faults` makes docs/reliability.md of that file; nothing in that page is written by hand but its words.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct, convert, json
from msgspec.structs import replace

from holdfast.types import JobState
from tests.faults.checker import Evidence, duplicates, no_loss, quantile, recoveries

FINDINGS: Final = "HOLDFAST_FINDINGS"
"""The environment variable that names the file."""


class Figures(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a checker has counted; None where it does not apply."""

    acked: int | None = None
    """What the producer was told yes for."""
    completed: int | None = None
    dead: int | None = None
    """In the inbox at the end."""
    cancelled: int | None = None
    lost: int | None = None
    forfeited: int | None = None
    """Gone as was said: with a store that is labelled as not durable, or with a backup from before their time."""
    twice: int | None = None
    """Effects beyond the first of each."""
    recoveries: Sequence[float] = ()
    """Seconds from each fault until what it cut off ran again."""


COUNTS: Final = ("acked", "completed", "dead", "cancelled", "lost", "forfeited", "twice")
"""The numbers among these, in the order in which they are shown."""


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the report."""

    row: str
    """Of the fault plan, such as 36; or a word, such as soak."""
    store: str
    fault: str
    """What was done, in words."""
    injected: int
    """How often."""
    figures: Figures = Figures()
    recovery_s: tuple[float, float] | None = None
    """p50 and p99."""
    note: str = ""
    """What else was measured, in words."""
    seed: str = ""
    is_kept: bool = True
    """Whether what is promised held."""
    is_run: bool = True
    """Whether it could be tried at all; if not, the note says why."""


class Report(Protocol):
    """Adds a finding; its row and its store are those of the test."""

    def __call__(
        self,
        fault: str,
        *,
        injected: int,
        figures: Figures = ...,
        note: str = "",
        seed: str = "",
        row: str = "",
        store: str = "",
    ) -> None:
        """Only after everything was checked: a test that fails is a finding of its own."""


def finding(*, row: str, store: str, fault: str, injected: int, figures: Figures, note: str, seed: str) -> Finding:
    """One whose test has passed, with its quantiles; it holds unless something was lost."""
    took = figures.recoveries
    return Finding(
        row=row,
        store=store,
        fault=fault,
        injected=injected,
        figures=replace(figures, recoveries=()),
        recovery_s=(quantile(took, 0.5), quantile(took, 0.99)) if took else None,
        note=note,
        seed=seed,
        is_kept=not figures.lost,
    )


def figures_of(evidence: Evidence, *, forfeited: Collection[str] = ()) -> Figures:
    """What the checker's evidence of jobs says.

    forfeited: acked jobs that are gone as was said [()]; they are not counted as lost.
    """
    evidence = replace(evidence, removed=evidence.removed | frozenset(forfeited))
    states = [job.state for job in evidence.jobs.values()]
    return Figures(
        acked=len(evidence.acked),
        completed=states.count(JobState.COMPLETED),
        dead=states.count(JobState.DEAD_LETTER),
        cancelled=states.count(JobState.CANCELLED),
        lost=len(no_loss(evidence)),
        forfeited=len(forfeited) or None,
        twice=duplicates(evidence),
        recoveries=[took_s for _, took_s in recoveries(evidence)],
    )


def summed(several: Iterable[Figures]) -> Figures:
    """These as one; None where none of them has a number."""
    several = list(several)

    def total(name: str) -> int | None:
        known = [n for n in (getattr(one, name) for one in several) if n is not None]
        return sum(known) if known else None

    counts = {name: total(name) for name in COUNTS}
    return convert({**counts, "recoveries": [took_s for one in several for took_s in one.recoveries]}, Figures)


def counted(one: Finding) -> str:
    """All figures of a finding, in words."""
    figures = one.figures
    counts = [f"{n:,} {word}" for word, n in ((name, getattr(figures, name)) for name in COUNTS) if n is not None]
    if one.recovery_s is not None:
        counts.append("running again after p50 {:.2f} s, p99 {:.2f} s".format(*one.recovery_s))
    parts = [f"{one.injected:,} injected", *counts, *filter(None, [one.note, one.seed and f"seed {one.seed}"])]
    return ", ".join(parts)


def told(one: Finding) -> str:
    """A finding as a line for people."""
    if not one.is_run:
        return f"{one.store:8} row {one.row:4} NOT RUN  {one.fault}: {one.note}"
    kept = "" if one.is_kept else "NOT KEPT  "
    return f"{one.store:8} row {one.row:4} {kept}{one.fault}: {counted(one)}"


def keep(one: Finding) -> None:
    """Add it to the file, where there is one: in one write, for several processes add to it."""
    if path := os.environ.get(FINDINGS):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(fd, json.encode(one) + b"\n")
        finally:
            os.close(fd)


def read(path: Path) -> list[Finding]:
    """All that was kept, in order."""
    return [json.decode(line, type=Finding) for line in path.read_bytes().splitlines()]
