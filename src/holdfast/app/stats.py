"""What an app has done and has to do, in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from holdfast.ports import Capabilities, Count, Stats, Value, WorkerRecord
from holdfast.runtime.shared.by_hand import breaker_views
from holdfast.types import BreakerMode

_ENDS = ("completed", "retried", "failed")
_FAILED = "failed:"


class Totals(Struct, frozen=True, kw_only=True):
    """What was done since the store was made, each attempt counted once, together with its job.

    `received` and `healed` follow with the heartbeats: a worker that is killed takes the last of these with it.
    """

    received: int = 0
    """Jobs whose first attempt was made."""
    completed: int = 0
    """Attempts that completed their job."""
    retried: int = 0
    """Attempts that failed and were followed by another."""
    failed: int = 0
    """Attempts that failed and ended their job."""
    healed: int = 0
    """Jobs that completed after a retry."""
    dead_lettered: int = 0
    """Jobs that became dead letters."""
    breaker_trips: int = 0
    """How often breakers have opened by themselves."""
    failures_by_type: Mapping[str, int] = {}

    @property
    def executed(self) -> int:
        """Attempts that have ended."""
        return self.completed + self.retried + self.failed


class AppStats(Struct, frozen=True, kw_only=True):
    """Jobs as they stand now; attempts over the minutes asked for, each counted exactly once."""

    now: float
    jobs: Mapping[str, int]
    """How many are in each state."""
    by_task: Mapping[str, Mapping[str, int]]
    completed: int
    """Attempts that completed their job."""
    retried: int
    """Attempts that failed and were followed by another."""
    failed: int
    """Attempts that failed and ended their job."""
    failures_by_type: Mapping[str, int]
    per_minute: Sequence[tuple[int, Mapping[str, int]]]
    """The same by minute since 1970, oldest first."""
    breakers: Mapping[str, BreakerMode]
    workers: Sequence[WorkerRecord]
    is_durable: bool
    """Whether what the store has said yes to survives a power cut."""
    durability: str
    """What survives what, in one sentence."""
    totals: Totals = Totals()
    """Attempts since the store was made, whatever minutes were asked for."""

    @property
    def executed(self) -> int:
        """Attempts that have ended."""
        return self.completed + self.retried + self.failed

    @property
    def success_rate(self) -> float | None:
        """The share of attempts that completed their job; None without any."""
        return self.completed / self.executed if self.executed else None


def stats_of(stats: Stats, values: Sequence[Value], store: Capabilities) -> AppStats:
    """The numbers, from one look at a store."""
    jobs: dict[str, int] = {}
    by_task: dict[str, dict[str, int]] = {}
    for tally in stats.tallies:
        state = tally.state.value
        jobs[state] = jobs.get(state, 0) + tally.n
        of_task = by_task.setdefault(tally.task, {})
        of_task[state] = of_task.get(state, 0) + tally.n
    sums = _sums(stats.counts)
    minutes: dict[int, dict[str, int]] = {}
    for count in stats.counts:
        if count.name in _ENDS:
            of_minute = minutes.setdefault(count.minute, dict.fromkeys(_ENDS, 0))
            of_minute[count.name] += count.n
    breakers = breaker_views(values, stats.now)
    return AppStats(
        now=stats.now,
        jobs=jobs,
        by_task=by_task,
        completed=sums.get("completed", 0),
        retried=sums.get("retried", 0),
        failed=sums.get("failed", 0),
        failures_by_type=_by_type(sums),
        per_minute=sorted(minutes.items()),
        breakers={view.key: view.mode for view in breakers},
        workers=stats.workers,
        is_durable=store.is_durable,
        durability=store.durability,
        totals=_totals(_sums(stats.totals), sum(view.trips for view in breakers)),
    )


def _totals(sums: Mapping[str, int], breaker_trips: int) -> Totals:
    return Totals(
        received=sums.get("received", 0),
        completed=sums.get("completed", 0),
        retried=sums.get("retried", 0),
        failed=sums.get("failed", 0),
        healed=sums.get("healed", 0),
        dead_lettered=sums.get("dead", 0),
        breaker_trips=breaker_trips,
        failures_by_type=_by_type(sums),
    )


def _sums(counts: Iterable[Count]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for count in counts:
        sums[count.name] = sums.get(count.name, 0) + count.n
    return sums


def _by_type(sums: Mapping[str, int]) -> dict[str, int]:
    return {name.removeprefix(_FAILED): n for name, n in sorted(sums.items()) if name.startswith(_FAILED)}
