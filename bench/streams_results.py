"""What was measured in a run of bench-streams, and its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from jobs_rounds import say
from jobs_timing import Failed
from streams_subject import Rates, Subject, Topic, measure

NAME = 40


@dataclass(slots=True)
class Results:
    """The rates of one server's subjects, by name; who could not be measured is among the failed."""

    rates: dict[str, list[Rates]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def handled(self, name: str) -> float | None:
        """The best of the rounds, to the last message handled."""
        return max((one.handled for one in self.rates.get(name, ())), default=None)

    def committed(self, name: str) -> float | None:
        """The best of the rounds, to the last message committed."""
        return max((one.committed for one in self.rates.get(name, ())), default=None)

    def fastest(self, names: Sequence[str]) -> float | None:
        """Of these, by what they handled: one that commits by a timer is not held up to it."""
        found = [rate for name in names if (rate := self.handled(name)) is not None]
        return max(found, default=None)


def measure_rounds(
    subjects: Sequence[Subject],
    topic_of: Callable[[Subject], Topic],
    left: Callable[[str, Topic], int],
    folder: Path,
    rounds: int,
    forget: Callable[[str, Topic], object] = lambda group, topic: None,
) -> Results:
    """The subjects take turns, each as a new group, so that all of them meet the same machine and the same messages."""
    results = Results()
    for turn in range(rounds):
        for number, subject in enumerate(subjects):
            if subject.name in results.failed:
                continue
            say(f"round {turn + 1} of {rounds}: {subject.name}")
            topic, group = topic_of(subject), f"bench-{turn}-{number}"
            try:
                rates = measure(subject, topic, group, folder / "consumer", left)
            except Failed as error:
                results.failed[subject.name] = str(error)
                say(f"NOT MEASURED: {subject.name}: {error}")
            else:
                results.rates.setdefault(subject.name, []).append(rates)
                forget(group, topic)
    return results


def print_table(title: str, subjects: Sequence[Subject], results: Results, base: str) -> None:
    """A line each: the best of the rounds, the median of what was committed, and how much of what the base handled."""
    of_base = results.handled(base)
    print(f"\n{title:{NAME}}{'handled/s':>11}{'committed/s':>13}{'median':>11}{'of base':>9}   setting")
    for subject in subjects:
        rates = results.rates.get(subject.name)
        if not rates:
            print(f"  {subject.name:{NAME - 2}}  not measured")
            continue
        handled, committed = (max(getattr(one, kind) for one in rates) for kind in ("handled", "committed"))
        half = median(one.committed for one in rates)
        share = f"{committed / of_base:9.1%}" if of_base else ""
        mark = "* " if subject.name == base else "  "
        figures = f"{handled:11,.0f}{committed:13,.0f}{half:11,.0f}{share}"
        print(f"{mark}{subject.name:{NAME - 2}}{figures}   {subject.setting}")
