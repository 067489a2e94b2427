"""What the first page shows, made of one look at the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.ops.api import schemas
from holdfast.ops.redact import redacted_text
from holdfast.ports import Capabilities, Count, Stats, Value
from holdfast.runtime.counts import FLEET, RUN_LE, WAIT_LE, buckets_of, percentile
from holdfast.runtime.crawl_trouble import crawl_names, of_tasks
from holdfast.runtime.rings import takes_jobs
from holdfast.runtime.shared.by_hand import breaker_views
from holdfast.runtime.shared.guards import is_paused
from holdfast.runtime.shared.names import QUEUE
from holdfast.types import BreakerMode, JobState

MINUTES: Final = 60
"""How far back it goes."""
_ENDS: Final = ("completed", "retried", "failed")
_FAILED: Final = "failed:"
_CLOSED: Final = frozenset({BreakerMode.CLOSED, BreakerMode.DISABLED})


class Condition:
    """How the app is: what its health says, and which alerts there are."""

    __slots__ = ("alerts", "reasons", "score", "status")

    def __init__(
        self, status: str, score: float | None, reasons: Sequence[str], alerts: list[schemas.AlertAnswer]
    ) -> None:
        self.status = status
        self.score = score
        self.reasons = reasons
        self.alerts = alerts


def overview_of(
    stats: Stats, values: Mapping[str, Value], store: Capabilities, condition: Condition
) -> schemas.Overview:
    """Everything counted, put together."""
    states: dict[str, int] = {}
    for tally in stats.tallies:
        states[tally.state.value] = states.get(tally.state.value, 0) + tally.n
    minutes = _minutes(stats)
    completed = sum(one.completed for one in minutes)
    ended = completed + sum(one.retried + one.failed for one in minutes)
    by_type: dict[str, int] = {}
    for count in stats.counts:
        if count.name.startswith(_FAILED):
            name = count.name.removeprefix(_FAILED)
            by_type[name] = by_type.get(name, 0) + count.n
    breakers = breaker_views(values.values(), stats.now)
    open_breakers = [view.key for view in breakers if view.mode not in _CLOSED]
    return schemas.Overview.model_construct(
        now_at=stats.now,
        store=store.location,
        store_name=store.name,
        is_durable=store.is_durable,
        durability=store.durability,
        warnings=[redacted_text(line) for line in store.warnings],
        states=states,
        per_second=_per_second(minutes, stats.now),
        success_rate=completed / ended if ended else None,
        minutes=minutes,
        failures_by_type=dict(sorted(by_type.items())),
        queues=queues_of(stats, values),
        workers=sum(map(takes_jobs, stats.workers)),
        open_breakers=list(of_tasks(open_breakers, crawl_names(stats, values.values()))),
        dead_letters=states.get(JobState.DEAD_LETTER.value, 0),
        health=condition.status,
        score=condition.score,
        reasons=list(condition.reasons),
        alerts=condition.alerts,
    )


def queues_of(stats: Stats, values: Mapping[str, Value]) -> list[schemas.QueueAnswer]:
    """The queues that there are jobs in, or that are paused, by name."""
    paused = {key.removeprefix(QUEUE) for key, one in values.items() if key.startswith(QUEUE) and is_paused(one.data)}
    states: dict[str, dict[str, int]] = {name: {} for name in paused}
    for tally in stats.tallies:
        counts = states.setdefault(tally.queue, {})
        counts[tally.state.value] = counts.get(tally.state.value, 0) + tally.n
    return [
        schemas.QueueAnswer.model_construct(
            name=name,
            is_paused=name in paused,
            depth=sum(n for state, n in states[name].items() if not JobState(state).is_terminal),
            states=states[name],
            lag_s=_lag(stats, name),
        )
        for name in sorted(states)
    ]


def _lag(stats: Stats, queue: str) -> float | None:
    ready_at = stats.oldest_ready_at.get(queue)
    return None if ready_at is None else max(0.0, stats.now - ready_at)


def _minutes(stats: Stats) -> list[schemas.MinuteAnswer]:
    last = int(stats.now // 60)
    ends: dict[int, dict[str, int]] = {}
    lengths: dict[int, list[Count]] = {}
    for count in stats.counts:
        if count.name in _ENDS:
            of_minute = ends.setdefault(count.minute, dict.fromkeys(_ENDS, 0))
            of_minute[count.name] += count.n
        elif count.task == FLEET:
            lengths.setdefault(count.minute, []).append(count)
    nothing = dict.fromkeys(_ENDS, 0)
    return [
        schemas.MinuteAnswer.model_construct(
            at=minute * 60.0,
            completed=ends.get(minute, nothing)["completed"],
            retried=ends.get(minute, nothing)["retried"],
            failed=ends.get(minute, nothing)["failed"],
            run_p50_s=_percentile(lengths.get(minute, ()), RUN_LE, 0.5),
            run_p95_s=_percentile(lengths.get(minute, ()), RUN_LE, 0.95),
            wait_p50_s=_percentile(lengths.get(minute, ()), WAIT_LE, 0.5),
            wait_p95_s=_percentile(lengths.get(minute, ()), WAIT_LE, 0.95),
        )
        for minute in range(last - MINUTES + 1, last + 1)
    ]


def _percentile(counts: Sequence[Count], prefix: str, share: float) -> float | None:
    found = percentile(buckets_of(counts, prefix), share) if counts else None
    return None if found is None else round(found, 6)


def _per_second(minutes: list[schemas.MinuteAnswer], now: float) -> float:
    """Over this minute and the one before."""
    ended = sum(one.completed + one.retried + one.failed for one in minutes[-2:])
    return round(ended / (60.0 + now % 60.0), 3)
