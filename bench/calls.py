"""Guarded calls against a bare call, a hand-written loop and the peers, in one run: `make bench-calls`.

The numbers include the timing loop, whose own cost is printed beside them, and the call of the guarded function. Exits
with 1 when a bar is missed. What is measured is in calls_subjects.py, how in calls_timing.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
from dataclasses import asdict, dataclass
from statistics import median

from calls_imports import ImportCost, measure_import
from calls_subjects import Group, Subject, subjects
from calls_timing import Mode, Timing, measure, time_nothing

MODES: tuple[Mode, Mode] = ("sync", "async")
TITLES: dict[Group, str] = {
    "retry": "no failure",
    "failure": "one failure, retried at once",
    "breaker": "breaker alone, no failure",
    "limiter": "taking one start, none has to wait",
}
IMPORT_LIMIT_MS = 100.0


@dataclass(frozen=True, slots=True)
class Line:
    """What one subject took in one mode, and against whom."""

    group: Group
    role: str
    name: str
    mode: Mode
    ns: float
    median_ns: float
    to_loop: float
    """Times the hand-written loop: that of the failure group for its own group, else the one without failures."""
    to_best_peer: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise, what was measured, and whether it is kept."""

    text: str
    measured: str
    is_met: bool


def main() -> int:
    options = _options()
    cost = measure_import(5 if options.quick else 15)
    loop_ns = time_nothing()
    lines = asyncio.run(_measure_calls(4 if options.quick else 20))
    bars = [*_call_bars(lines), *_import_bars(cost)]
    if options.json:
        _print_json(lines, bars, cost, loop_ns)
    else:
        _print_tables(lines, bars, cost, loop_ns)
    return 0 if all(bar.is_met for bar in bars) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time guarded calls against the peers.")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a first look, too coarse to judge by")
    return parser.parse_args()


# ---- measuring


async def _measure_calls(repeats: int) -> list[Line]:
    timings = [(subject, timing) for subject in subjects() for timing in _timings(subject)]
    await measure([timing for _, timing in timings], repeats)
    best = {(subject.group, subject.name, timing.mode): min(timing.repeats) for subject, timing in timings}
    lines = []
    for subject, timing in timings:
        ns = best[subject.group, subject.name, timing.mode]
        loop = best["failure" if subject.group == "failure" else "retry", "hand-written loop", timing.mode]
        peers = [
            best[other.group, other.name, timing.mode]
            for other, of_other in timings
            if other.role == "peer" and other.group == subject.group and of_other.mode == timing.mode
        ]
        lines.append(
            Line(
                subject.group,
                subject.role,
                subject.name,
                timing.mode,
                ns=ns,
                median_ns=median(timing.repeats),
                to_loop=ns / loop,
                to_best_peer=ns / min(peers),
            )
        )
    return lines


def _timings(subject: Subject) -> list[Timing]:
    calls = {"sync": subject.sync_call, "async": subject.async_call}
    return [Timing(mode, call, subject.argument) for mode in MODES if (call := calls[mode]) is not None]


# ---- the bars


def _call_bars(lines: list[Line]) -> list[Bar]:
    bars = []
    for mode in MODES:
        for group, name, limit in (
            ("retry", "holdfast retry", 1.0),
            ("retry", "holdfast retry + breaker", 1.2),
            ("failure", "holdfast retry", 3.0),
        ):
            line = next(one for one in lines if (one.group, one.name, one.mode) == (group, name, mode))
            text = f"{name}, {TITLES[line.group]}, {mode}: ≤ {limit} × the hand-written loop"
            bars.append(Bar(text, f"{line.to_loop:.3f}", line.to_loop <= limit))
        bars += [_ahead(line, lines) for line in lines if line.mode == mode and line.role == "holdfast"]
    return bars


def _ahead(line: Line, lines: list[Line]) -> Bar:
    peers = [one for one in lines if one.role == "peer" and (one.group, one.mode) == (line.group, line.mode)]
    fastest = min(peers, key=lambda peer: peer.ns)
    names = ", ".join(dict.fromkeys(peer.name.partition(",")[0] for peer in peers))
    text = f"{line.name}, {TITLES[line.group]}, {line.mode}: ahead of {names}"
    return Bar(text, f"{line.ns / fastest.ns:.3f} of {fastest.name}", line.ns < fastest.ns)


def _import_bars(cost: ImportCost) -> list[Bar]:
    return [
        Bar(
            f"import holdfast, the whole interpreter: < {IMPORT_LIMIT_MS:.0f} ms",
            f"best {cost.whole_best:.1f}, median {cost.whole_median:.1f}",
            cost.whole_best < IMPORT_LIMIT_MS,
        ),
        Bar(
            "import holdfast: no third-party package beyond apsw, click, msgspec, rich",
            ", ".join(cost.third_party) or "none",
            not cost.third_party,
        ),
    ]


# ---- printing


def _print_tables(lines: list[Line], bars: list[Bar], cost: ImportCost, loop_ns: float) -> None:
    print(f"Python {platform.python_version()}, {platform.machine()}; the best of interleaved repeats, in ns per call.")
    print(f"Nothing is subtracted: the timing loop itself takes {loop_ns:.1f} ns of each number.")
    head = f"{'ns':>9}{'× loop':>9}{'× best peer':>13}"
    print(f"\n{'':36}{'sync':>31}   {'async':>31}\n{'':36}{head}   {head}")
    for group, title in TITLES.items():
        print(title)
        for name in dict.fromkeys(line.name for line in lines if line.group == group):
            of_name = {line.mode: line for line in lines if (line.group, line.name) == (group, name)}
            print(f"  {name:34}" + "   ".join(_cells(of_name.get(mode)) for mode in MODES))
    print("\nfresh interpreters, ms              best   median")
    print(f"  python -c pass               {cost.bare_best:9.1f}{cost.bare_median:9.1f}")
    print(f'  python -c "import holdfast"  {cost.whole_best:9.1f}{cost.whole_median:9.1f}')
    print(f"  the import statement alone   {cost.alone_best:9.1f}{cost.alone_median:9.1f}\n")
    for bar in bars:
        print(f"{'PASS  ' if bar.is_met else 'MISSED'}  {bar.text}: {bar.measured}")
    missed = sum(not bar.is_met for bar in bars)
    print(f"\n{len(bars) - missed} of {len(bars)} bars met")


def _cells(line: Line | None) -> str:
    if line is None:
        return f"{'–':>9}{'–':>9}{'–':>13}"
    return f"{line.ns:9,.0f}{line.to_loop:9.2f}{line.to_best_peer:13.2f}"


def _print_json(lines: list[Line], bars: list[Bar], cost: ImportCost, loop_ns: float) -> None:
    report = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "timing_loop_ns": loop_ns,
        "calls": [asdict(line) for line in lines],
        "import_ms": asdict(cost),
        "bars": [asdict(bar) for bar in bars],
    }
    json.dump(report, sys.stdout, indent=2, ensure_ascii=False)
    print()


if __name__ == "__main__":
    sys.exit(main())
