"""What an app has done and has to do, in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.ports import Capabilities, Stats, Value, WorkerRecord
from holdfast.runtime.shared.by_hand import breaker_views
from holdfast.types import BreakerMode

_ENDS = ("completed", "retried", "failed")


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
    totals: dict[str, int] = {}
    minutes: dict[int, dict[str, int]] = {}
    for count in stats.counts:
        totals[count.name] = totals.get(count.name, 0) + count.n
        if count.name in _ENDS:
            of_minute = minutes.setdefault(count.minute, dict.fromkeys(_ENDS, 0))
            of_minute[count.name] += count.n
    prefix = "failed:"
    return AppStats(
        now=stats.now,
        jobs=jobs,
        by_task=by_task,
        completed=totals.get("completed", 0),
        retried=totals.get("retried", 0),
        failed=totals.get("failed", 0),
        failures_by_type={name[len(prefix) :]: n for name, n in sorted(totals.items()) if name.startswith(prefix)},
        per_minute=sorted(minutes.items()),
        breakers={view.key: view.mode for view in breaker_views(values, stats.now)},
        workers=stats.workers,
        is_durable=store.is_durable,
        durability=store.durability,
    )
