"""The metrics of streams: what was counted of their messages, and what their workers report of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from holdfast.ports import Count, Stats
from holdfast.runtime.counts import RUN_LE, buckets_of
from holdfast.runtime.exposition import Kind, Metric, Sample, histogram, label
from holdfast.runtime.streams.views import BURIED, PROCESSED, PartitionView, StreamView, stream_views

MOST_STREAMS: Final = 500
"""So many streams have series of their own; the rest are left out."""
MOST_PARTITIONS: Final = 2_000
"""So many partitions have series of their own, those with the largest lags first."""

_OWN: Final = frozenset({PROCESSED, BURIED})
_Place = tuple[str, str, int]


def stream_names(stats: Stats, known: Iterable[str]) -> frozenset[str]:
    """The names that are streams': those an app has registered, a worker reports, or messages were counted under."""
    reported = (report.name for worker in stats.workers for report in worker.streams)
    counted = (count.task for count in stats.totals if count.name in _OWN)
    return frozenset([*known, *reported, *counted])


def stream_metrics(stats: Stats, names: Iterable[str]) -> Iterator[Metric]:
    """Every metric of these streams; none at all where there are none."""
    shown = sorted(names)[:MOST_STREAMS]
    if not shown:
        return
    yield from _counted(stats.totals, shown)
    views = {view.name: view for view in stream_views(stats, ()) if view.name in shown}
    yield from _reported(views, shown)


def _counted(totals: Iterable[Count], names: list[str]) -> Iterator[Metric]:
    counts: dict[str, list[Count]] = {name: [] for name in names}
    for count in totals:
        if count.task in counts:
            counts[count.task].append(count)
    sums = {name: _sums(found) for name, found in counts.items()}

    def counter(name: str, text: str, *of: str) -> Metric:
        values = {stream: sum(one.get(wanted, 0) for wanted in of) for stream, one in sums.items()}
        return _by_stream(f"holdfast_{name}_total", "counter", text, values)

    yield counter("messages_processed", "Messages that a handler has finished.", PROCESSED)
    yield counter("messages_failed", "Attempts at messages, or at batches of them, that failed.", "retried", "failed")
    yield counter("dlq_messages", "Messages that were sent to the dead letters.", BURIED)
    samples: list[Sample] = []
    for name, found in counts.items():
        labels = {"stream": label(name)}
        samples += histogram(labels, buckets_of(found, RUN_LE), sums[name].get("run_us", 0) / 1e6)
    yield Metric(
        "holdfast_message_processing_duration_seconds",
        "histogram",
        "How long attempts at messages ran; a batch is one attempt.",
        samples,
    )


def _reported(views: Mapping[str, StreamView], names: list[str]) -> Iterator[Metric]:
    def of_all(of: Callable[[StreamView], int]) -> dict[str, int]:
        return {name: of(views[name]) if name in views else 0 for name in names}

    yield _by_stream("holdfast_stream_workers", "gauge", "Workers that read a stream.", of_all(lambda one: one.workers))
    yield _by_stream(
        "holdfast_stream_away",
        "gauge",
        "Whether a worker cannot reach a stream's server.",
        of_all(lambda one: int(bool(one.away))),
    )
    yield _by_stream(
        "holdfast_messages_in_flight",
        "gauge",
        "Messages that were begun and are not finished.",
        of_all(lambda one: one.in_flight),
    )
    partitions = _partitions(views.values())
    yield _by_partition(
        "holdfast_consumer_lag",
        "Messages of a partition that are not finished; missing while nobody knows.",
        {place: max(known) for place, found in partitions.items() if (known := _known_lags(found))},
    )
    yield _by_partition(
        "holdfast_consumer_paused",
        "Whether no more is received of a partition for now.",
        {place: int(any(one.paused for one in found)) for place, found in partitions.items()},
    )
    yield _by_partition(
        "holdfast_consumer_stuck_seconds",
        "For how long the first unfinished message of a partition has been the first; 0 without one.",
        {place: max(one.stuck_s for one in found) for place, found in partitions.items()},
    )


def _partitions(views: Iterable[StreamView]) -> dict[_Place, list[PartitionView]]:
    """By the labels of stream and topic, and by number; a partition that several workers report is there once."""
    found: dict[_Place, list[PartitionView]] = {}
    for view in views:
        for one in view.partitions:
            found.setdefault((label(view.name), label(one.topic), one.partition), []).append(one)
    largest = sorted(found, key=lambda place: -max(_known_lags(found[place]), default=0))[:MOST_PARTITIONS]
    return {place: found[place] for place in sorted(largest)}


def _known_lags(partitions: Iterable[PartitionView]) -> list[int]:
    return [one.lag for one in partitions if one.lag is not None]


def _sums(counts: Iterable[Count]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for count in counts:
        sums[count.name] = sums.get(count.name, 0) + count.n
    return sums


def _by_stream(name: str, kind: Kind, text: str, values: Mapping[str, int]) -> Metric:
    return Metric(name, kind, text, [Sample({"stream": label(stream)}, n) for stream, n in values.items()])


def _by_partition(name: str, text: str, values: Mapping[_Place, float]) -> Metric:
    return Metric(
        name,
        "gauge",
        text,
        [
            Sample({"stream": stream, "topic": topic, "partition": str(number)}, n)
            for (stream, topic, number), n in values.items()
        ],
    )
