"""What a soak must show, as functions of what was measured: each says whether it holds, and the figure it goes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from tests.faults.soak_ledger import Recovery

FEWEST: Final = 24
"""With fewer samples than these nothing is said about growth: it would be about the start alone."""
_LAST: Final = 5
_MIB: Final = 2**20
_PROGRAMS: Final = ("spared_worker", "server", "supervisor", "producer")
ALWAYS: Final = tuple(f"{name}.{word}" for name in _PROGRAMS for word in ("rss_mib", "fds", "threads"))
"""What is judged on every store, beside what is the store's own."""
DONE: Final = "done"
"""How many jobs had come to their end, in all and, after a dot, in one program."""
_OF_STORE: Final = "store."


class Verdict(Struct, frozen=True):
    """One promise, and whether this run kept it."""

    name: str
    is_kept: bool
    figure: str


class Level(Struct, frozen=True, kw_only=True):
    """When a figure counts as flat.

    share, floor: it may rise by this share of what it is compared by, or by so much, whichever is more. A leak rises
    with the jobs, so the verdict on a figure in MiB says what it would have to be of each of them to be seen. Ten
    minutes at 490 jobs a second have 196,000 after their first third: 3 MiB are 16 bytes of each, and 64 in the spared
    worker, which does about a quarter of them. Tables and logs are compared by thirds, and 8 MiB are 86 bytes there.
    What leaks less takes a longer soak.
    by: its slope; or, where it rises until something cuts it back, again and again, its peaks, or what is left then.
    """

    share: float
    floor: float
    by: Literal["slope", "peaks", "valleys"] = "slope"


MEMORY: Final = Level(share=0.05, floor=3.0)
"""MiB: Python takes memory in pieces of a megabyte, and each busier moment than all before costs some for good."""
HANDLES: Final = Level(share=0.0, floor=3.0)
"""File handles and threads: a connection that is being replaced is there twice for a moment."""
SESSIONS: Final = Level(share=0.25, floor=6.0)
"""Connections to a server: those of a worker that was just killed, and of the one in its place, are there together."""
SAW: Final = Level(share=0.35, floor=8.0, by="peaks")
"""MiB of tables, which grow until jobs are pruned, and of logs, which grow until they are cut: whatever is never cut
grows by half from the middle third to the last, and how high a peak is depends on what was going on just then."""
DEAD: Final = Level(share=0.5, floor=10_000, by="valleys")
"""Rows that wait for PostgreSQL to clean up, which it does now and then. How many there are by then depends on what
was pruned just before, and a look may meet any of it; what is left afterwards is what it could not remove. The floor is
the work of three seconds."""


def level_of(name: str) -> Level | None:
    """How a sampled figure is judged; None for those that are only shown."""
    program, _, word = name.rpartition(".")
    if program not in (*_PROGRAMS, "store"):
        return None
    if name == "store.fds":  # a database opens files as it likes, up to a limit of its own; sessions are ours
        return None
    if word == "rss_mib" and not name.startswith("store."):
        return MEMORY  # not pss: what is shared would be theirs alone whenever others end
    if name == "store.pss_mib":
        return SAW  # the processes of PostgreSQL share a lot, and Redis has its tables there
    if word in {"fds", "threads"}:
        return HANDLES
    if word == "sessions":
        return SESSIONS
    if word in {"file_mib", "tables_mib", "indexes_mib", "memory_mib", "wal_mib", "aof_mib"}:
        return SAW
    if word == "dead_rows":
        return DEAD
    return None


def flat(name: str, values: Sequence[float], level: Level, jobs: Sequence[float] = ()) -> Verdict:
    """Whether a figure stays where it is. The first third of the run, in which everything fills up, is left out.

    jobs: of a figure in MiB, how many had been done at each sample [unknown].

    By its slope: the robust one (the median of the slopes between any two samples) over the last two thirds, and the
    last samples beside the middle third, as the slope does not see a jump at the end. Else the two thirds are compared.
    """
    third = len(values) // 3
    middle, last = values[third : 2 * third], values[2 * third :]
    if level.by == "slope":
        rest = values[third:]
        usual = median(rest)
        rise = _slope(rest) * (len(rest) - 1)
        jump = median(rest[-_LAST:]) - median(middle)
        growth = max(rise, jump)
        since = third
        figure = f"{usual:,.1f}, {rise:+,.1f} by its slope, {jump:+,.1f} at the end"
    else:
        extreme = max if level.by == "peaks" else min
        usual = extreme(middle)
        growth = extreme(last) - usual
        since = 2 * third - 1
        figure = f"{level.by} {usual:,.1f} and then {extreme(last):,.1f}"
    room = max(level.floor, level.share * usual)
    done = jobs[-1] - jobs[since] if jobs else 0.0
    of_each = f", {room * _MIB / done:,.0f} bytes a job" if done > 0.0 else ""
    return Verdict(flat_name(name), growth <= room, f"{figure} (room for {room:,.1f}{of_each})")


def flat_name(name: str) -> str:
    """What the verdict on a figure is called."""
    return f"{name} is flat"


def _slope(values: Sequence[float]) -> float:
    """A step, by Theil and Sen: outliers do not turn it."""
    slopes = [(late - early) / (j - i) for (i, early), (j, late) in combinations(enumerate(values), 2)]
    return median(slopes)


def flats(samples: Sequence[Mapping[str, float]]) -> list[Verdict]:
    """The verdict on every figure that is judged; none of a run that is too short to tell."""
    if len(samples) < FEWEST:
        return []
    names = [(name, level) for name in samples[0] if (level := level_of(name)) is not None]
    return [flat(name, [one[name] for one in samples], level, _jobs(name, samples)) for name, level in names]


def _jobs(name: str, samples: Sequence[Mapping[str, float]]) -> list[float]:
    """How many jobs had a part in a figure at each sample: those of its own program, where they are known."""
    own = f"{name.rpartition('.')[0]}.{DONE}"
    key = own if own in samples[0] else DONE
    return [one[key] for one in samples] if name.endswith("_mib") and key in samples[0] else []


def unjudged(samples: Sequence[Mapping[str, float]], verdicts: Sequence[Verdict]) -> str:
    """What has to stay flat, and no verdict is about, in words; nothing when there is one on each figure."""
    if len(samples) < FEWEST:
        return f"{len(samples)} samples, and it takes {FEWEST}"
    judged = {one.name for one in verdicts}
    sampled = [name for name in samples[0] if level_of(name) is not None]
    names = [name for name in dict.fromkeys((*ALWAYS, *sampled)) if flat_name(name) not in judged]
    if not any(one.startswith(_OF_STORE) for one in judged):
        names.append("the store's own")
    return f"no verdict on {', '.join(names)}" if names else ""


def bounded_backlog(live: Sequence[float], rate: float, drained_s: float, limit_s: float) -> Verdict:
    """The jobs that have not ended: no more than the work of a few seconds, and gone soon after the last was enqueued.

    Delayed jobs and those of killed workers are among them.
    """
    usual = median(live[len(live) // 3 :]) if live else 0.0
    is_kept = usual <= limit_s * rate and drained_s <= 2 * limit_s
    figure = f"usually {usual:,.0f} jobs, {usual / rate:.1f} s of work; drained {drained_s:.1f} s after the last"
    return Verdict("the backlog is bounded", is_kept, f"{figure} (bounds {limit_s:g} s and {2 * limit_s:g} s)")


def soon_again(recoveries: Sequence[Recovery], bound_s: float) -> Verdict:
    """What kills cut off: each job runs again within the bound, for each death of a worker that had it."""
    late = [one.job for one in recoveries if one.lasted_s - one.turn_s > one.deaths * bound_s]
    longest_s = max((one.took_s for one in recoveries), default=0.0)
    found = none_of("what a kill cut off runs again in time", late, len(recoveries))
    told = f"{found.figure} too late; after at most {longest_s:.2f} s for each death (bound {bound_s:.1f} s)"
    return replace(found, figure=told)


def none_of(name: str, found: Sequence[object], total: int) -> Verdict:
    """A list that must be empty."""
    shown = f", such as {', '.join(map(str, found[:3]))}" if found else ""
    return Verdict(name, not found, f"{len(found):,} of {total:,}{shown}")


def at_least(name: str, count: float, bound: float) -> Verdict:
    """A number that must be reached, or the run shows nothing."""
    return Verdict(name, count >= bound, f"{count:,.4g} (at least {bound:,.4g})")


def at_most(name: str, value: float, bound: float, unit: str) -> Verdict:
    """A number that must not be passed."""
    return Verdict(name, value <= bound, f"{value:,.3g} {unit} (at most {bound:,.3g})")
