"""The fleet's metrics for Prometheus: what the store has counted, what it holds, and how its guards stand."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from holdfast.app import App
from holdfast.errors import HoldfastError
from holdfast.ops.crawl_metrics import crawl_metrics
from holdfast.ops.prometheus import collector_of
from holdfast.ops.ring_metrics import ring_metrics
from holdfast.ops.stream_metrics import stream_metrics, stream_names
from holdfast.ports import Capabilities, Count, Exchange, Stats, Value
from holdfast.runtime.counts import RUN_LE, WAIT_LE, buckets_of
from holdfast.runtime.crawl_trouble import crawl_names, is_of_crawl
from holdfast.runtime.crawls import crawl_views
from holdfast.runtime.exposition import CONTENT_TYPE, Kind, Metric, Sample, histogram, label, text_of
from holdfast.runtime.shared.by_hand import BreakerView, breaker_views
from holdfast.runtime.shared.guards import is_paused
from holdfast.runtime.shared.names import QUEUE
from holdfast.types import BreakerMode, JobState

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE", "Look", "collector", "exposition", "metrics_of"]

MOST_NAMES: Final = 500
"""So many tasks, queues, pairs of these and breakers have series of their own; the rest share one."""
OTHER: Final = "other"

_ANSWER_S: Final = 3.0
"""A store that takes longer is away: a scrape has 10 s by default, and may have waited for the score before."""
_OUTCOMES: Final = ("completed", "retried", "failed", "parked")
_FAILED: Final = "failed:"
_OPEN: Final = frozenset({BreakerMode.OPEN, BreakerMode.FORCED_OPEN})


class Look(Struct, frozen=True):
    """What one look at a store has found."""

    stats: Stats
    values: Sequence[Value]
    capabilities: Capabilities


async def exposition(app: App, *, score: float | None = None) -> bytes:
    """The metrics in Prometheus's text format; `holdfast_store_up 0` and nothing else while the store is away.

    score: the app's health from 0 to 1, where it is known.
    """
    look = await _look_or_none(app)
    if look is None:  # a few lines; and calls to the store that hang may have taken all threads
        return text_of(metrics_of(None, (), score))
    return await asyncio.to_thread(lambda: text_of(metrics_of(look, app.specs, score, streams=app.stream_specs)))


async def _look_or_none(app: App) -> Look | None:
    try:
        async with app.clock.timeout(_ANSWER_S):
            reply = await app.store.exchange(Exchange())
            return Look(await app.store.stats(), reply.values, app.store.capabilities)
    except (HoldfastError, TimeoutError):
        return None


def collector(app: App) -> Collector:
    """The same for a registry of your own: `prometheus_client.REGISTRY.register(collector(app))`."""

    def look() -> list[Metric]:
        return metrics_of(app.bridge.run(_look_or_none(app)), app.specs, streams=app.stream_specs)

    return collector_of(look, "collector")


def metrics_of(
    look: Look | None, tasks: Iterable[str] = (), score: float | None = None, *, streams: Iterable[str] = ()
) -> list[Metric]:
    """Every metric, from one look; None is a store that is away.

    `tasks` and `streams` are known, whether or not there is anything of them. What was counted of a stream is in the
    metrics of streams, and in none of a task's.
    """
    metrics = [_gauge("store_up", "Whether the store answers.", int(look is not None))]
    if score is not None:
        metrics.append(_gauge("health_score", "The app's health, from 0 to 1.", score))
    if look is None:
        return metrics
    durable = look.capabilities.is_durable
    metrics.append(_gauge("store_durable", "Whether what was enqueued survives a power cut.", int(durable)))
    names = stream_names(look.stats, streams)
    of_tasks = [count for count in look.stats.totals if count.task not in names]
    known = [task for task in tasks if task not in names]
    crawls = crawl_names(look.stats, look.values)
    breakers = breaker_views(look.values, look.stats.now)
    of_domains = [view for view in breakers if is_of_crawl(view.key, crawls)]
    return [
        *metrics,
        *_jobs(look.stats, known),
        *_totals(of_tasks, known),
        *_guards(look, [view for view in breakers if not is_of_crawl(view.key, crawls)]),
        *stream_metrics(look.stats, names),
        *ring_metrics(report for worker in look.stats.workers for report in worker.rings),
        *crawl_metrics(crawl_views(look.stats, look.values), (view.key for view in of_domains if view.mode in _OPEN)),
    ]


class _Names:
    """The names that have series of their own, as labels: those that are known here first, then by the alphabet."""

    def __init__(self, names: Iterable[str], known: Iterable[str] = ()) -> None:
        own = list(dict.fromkeys([*sorted(known), *sorted(names)]))[:MOST_NAMES]
        self._labels = {name: label(name) for name in own}
        self.labels = sorted(set(self._labels.values()))

    def __getitem__(self, name: str) -> str:
        return self._labels.get(name, OTHER)


# ---------------------------------------------------------------- what there is


def _jobs(stats: Stats, known: Iterable[str]) -> Iterator[Metric]:
    tasks = _Names((tally.task for tally in stats.tallies), known)
    queues = _Names([*(tally.queue for tally in stats.tallies), *stats.oldest_ready_at])
    jobs: dict[tuple[str, str], dict[str, int]] = {}
    letters = dict.fromkeys(tasks.labels, 0)
    running = 0
    for tally in stats.tallies:
        pair = tasks[tally.task], queues[tally.queue]
        if len(jobs) >= MOST_NAMES and pair not in jobs:
            pair = pair[0], OTHER
        states = jobs.setdefault(pair, dict.fromkeys((state.value for state in JobState), 0))
        states[tally.state.value] += tally.n
        if tally.state is JobState.DEAD_LETTER:
            letters[pair[0]] = letters.get(pair[0], 0) + tally.n
        elif tally.state is JobState.RUNNING:
            running += tally.n
    lags = dict.fromkeys((queue for _, queue in jobs), 0.0)
    for name, due_at in stats.oldest_ready_at.items():
        lags[queues[name]] = max(lags.get(queues[name], 0.0), stats.now - due_at)
    yield Metric(
        "holdfast_jobs",
        "gauge",
        "Jobs in the store, by state.",
        [
            Sample({"task": task, "queue": queue, "state": state}, n)
            for (task, queue), states in sorted(jobs.items())
            for state, n in states.items()
        ],
    )
    yield _by("holdfast_dead_letters", "gauge", "Dead letters in the inbox.", "task", letters)
    yield _by(
        "holdfast_queue_lag_seconds", "gauge", "For how long the oldest job that could run has been due.", "queue", lags
    )
    yield _gauge("jobs_running", "Jobs that workers hold.", running)
    yield _gauge("workers", "Workers whose heartbeat the store has heard.", len(stats.workers))


# ---------------------------------------------------------------- what was counted


def _totals(totals: Sequence[Count], known: Iterable[str]) -> Iterator[Metric]:
    tasks = _Names((one.task for one in totals if one.task), known)
    by_task: dict[str, list[Count]] = {name: [] for name in tasks.labels}
    for count in totals:
        if count.task:
            by_task.setdefault(tasks[count.task], []).append(count)
    sums = {task: _sums(counts) for task, counts in by_task.items()}

    def counter(name: str, text: str, of: Callable[[dict[str, int]], int]) -> Metric:
        return _by(f"holdfast_{name}_total", "counter", text, "task", {task: of(one) for task, one in sums.items()})

    yield Metric(
        "holdfast_attempts_total",
        "counter",
        "Attempts that have ended, by outcome.",
        [
            Sample({"task": task, "outcome": outcome}, one[outcome])
            for task, one in sums.items()
            for outcome in _OUTCOMES
        ],
    )
    yield Metric(
        "holdfast_failures_total",
        "counter",
        "Failed attempts, by the kind of failure.",
        [
            Sample({"task": task, "failure_type": name.removeprefix(_FAILED)}, n)
            for task, one in sums.items()
            for name, n in sorted(one.items())
            if name.startswith(_FAILED)
        ],
    )
    yield counter("jobs_received", "Jobs whose first attempt was made.", lambda one: one["received"])
    yield counter("retries_healed", "Jobs that completed after a retry.", lambda one: one["healed"])
    yield counter("dead_letters", "Jobs that became dead letters.", lambda one: one["dead"])
    for name, text, prefix, in_us in (
        ("run", "How long attempts ran.", RUN_LE, "run_us"),
        ("queue_wait", "For how long jobs were due before an attempt began.", WAIT_LE, "wait_us"),
    ):
        samples: list[Sample] = []
        for task, counts in by_task.items():
            samples += histogram({"task": task}, buckets_of(counts, prefix), sums[task][in_us] / 1e6)
        yield Metric(f"holdfast_{name}_seconds", "histogram", text, samples)


def _sums(counts: Iterable[Count]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for count in counts:
        sums[count.name] += count.n
    return sums


# ---------------------------------------------------------------- guards


def _guards(look: Look, views: Sequence[BreakerView]) -> Iterator[Metric]:
    """Breakers of domains are left out: there is no end to those, and a crawl's metrics count them."""
    names = _Names(view.key for view in views)
    modes: dict[str, list[int]] = {}
    trips: dict[str, int] = {}
    for view in views:
        name = names[view.key]
        trips[name] = trips.get(name, 0) + view.trips
        counted = modes.setdefault(name, [0] * len(BreakerMode))
        counted[list(BreakerMode).index(view.mode)] += 1
    yield Metric(
        "holdfast_breaker_state",
        "gauge",
        "1 for the state that a breaker is in, 0 for the others.",
        [
            Sample({"breaker": name, "state": mode.value}, n)
            for name, counted in sorted(modes.items())
            for mode, n in zip(BreakerMode, counted, strict=True)
        ],
    )
    yield _by("holdfast_breaker_trips_total", "counter", "How often a breaker has opened by itself.", "breaker", trips)
    paused = {one.key.removeprefix(QUEUE) for one in look.values if one.key.startswith(QUEUE) and is_paused(one.data)}
    queues = _Names(paused | {tally.queue for tally in look.stats.tallies})
    is_on = dict.fromkeys(queues.labels, 0)
    for queue in paused:
        is_on[queues[queue]] = 1
    yield _by("holdfast_queue_paused", "gauge", "Whether a queue is paused.", "queue", is_on)


def _gauge(name: str, text: str, value: float) -> Metric:
    return Metric(f"holdfast_{name}", "gauge", text, [Sample({}, value)])


def _by(name: str, kind: Kind, text: str, by: str, values: dict[str, int] | dict[str, float]) -> Metric:
    return Metric(name, kind, text, [Sample({by: key}, n) for key, n in sorted(values.items())])
