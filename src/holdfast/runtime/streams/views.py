"""How streams are doing, put together from what their workers have reported last and what the store has counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from holdfast.ports import PartitionReport, Stats, StreamReport
from holdfast.runtime.streams.spec import StreamSpec
from holdfast.types import JobState, offset_text

PROCESSED: Final = "processed"
"""What is counted of a stream: messages that a handler has finished."""
BURIED: Final = "buried"
"""And messages that were sent to the dead letters."""

_MINUTE_S: Final = 60.0
_MOST_TOLD: Final = 200
"""Partitions of a stream that a process tells of: a line of it must fit into a pipe."""


class PartitionView(Struct, frozen=True, kw_only=True):
    """A partition as one worker sees it. Several may read the same one where a source shares it out by messages."""

    topic: str
    partition: int
    worker: str
    position: str | None
    """Everything before it is finished: an offset, or the id of a Redis entry; None while nobody knows."""
    lag: int | None
    """Messages that are not finished; None while nobody knows."""
    in_flight: int
    """Messages that were begun and are not finished."""
    buffered: int
    """Messages that were received and not begun."""
    paused: str
    """Why no more is received of it; empty while it is."""
    stuck_id: str
    """The first unfinished message; empty where there is none, or where it waits for its time."""
    stuck_key: str
    stuck_s: float
    """For how long that one has been the first."""


class StreamView(Struct, frozen=True, kw_only=True):
    """A stream over all of its workers, as of their last heartbeats."""

    name: str
    group: str
    topic: str
    location: str
    """Where it comes from: a URL without its password."""
    workers: int
    lag: int | None
    """Over the partitions whose lag is known; None where none is."""
    in_flight: int
    rate_per_s: float
    """Messages that were finished in the last full minute, a second."""
    dead_letters: int
    """In the inbox now."""
    last_error: str
    last_error_at: float | None
    """On the store's clock."""
    away: str
    """Why a worker cannot reach the server; empty while all can."""
    partitions: Sequence[PartitionView] = ()
    """Of the topic and of its retry topics, by name and number."""


class PartitionLine(Struct, frozen=True, array_like=True):
    """A partition in a few words."""

    topic: str
    partition: int
    lag: int | None
    is_paused: bool


class StreamLine(Struct, frozen=True, kw_only=True):
    """A stream in one worker, in a few words: a process tells them to its supervisor every second."""

    name: str
    in_flight: int
    is_away: bool
    partitions: tuple[PartitionLine, ...] = ()


def line_of(report: StreamReport) -> StreamLine:
    """A report in a few words; of very many partitions, those with the largest lags."""
    largest = sorted(report.partitions, key=lambda one: -(one.lag or 0))[:_MOST_TOLD]
    return StreamLine(
        name=report.name,
        in_flight=report.in_flight,
        is_away=bool(report.away),
        partitions=tuple(PartitionLine(one.topic, one.partition, one.lag, bool(one.paused)) for one in largest),
    )


def rate_minute(now: float) -> int:
    """The minute that rates are taken from: ask the store for the counts from there on."""
    return int(now // _MINUTE_S) - 1


def stream_views(stats: Stats, specs: Iterable[StreamSpec]) -> list[StreamView]:
    """Every stream that an app has registered or a worker reports, by name; `stats` have the last two minutes."""
    known = {spec.name: spec for spec in specs}
    reports: dict[str, list[tuple[str, StreamReport]]] = {name: [] for name in known}
    for worker in sorted(stats.workers, key=lambda one: (one.seen_at, one.id), reverse=True):
        for report in worker.streams:
            reports.setdefault(report.name, []).append((worker.id, report))
    minute = rate_minute(stats.now)
    finished = dict.fromkeys(reports, 0)
    for count in stats.counts:
        if count.name == PROCESSED and count.minute == minute and count.task in finished:
            finished[count.task] += count.n
    letters = dict.fromkeys(reports, 0)
    for tally in stats.tallies:
        if tally.state is JobState.DEAD_LETTER and tally.task in letters:
            letters[tally.task] += tally.n
    return [
        _view(known.get(name) or reports[name][0][1], name, reports[name], finished[name] / _MINUTE_S, letters[name])
        for name in sorted(reports)
    ]


def _view(
    like: StreamSpec | StreamReport,
    name: str,
    reports: Sequence[tuple[str, StreamReport]],
    rate_per_s: float,
    dead_letters: int,
) -> StreamView:
    """One stream. The reports are the newest first, so that the newest says what only one can."""
    partitions = [_partition(worker, one) for worker, report in reports for one in report.partitions]
    error = max((report for _, report in reports), key=lambda one: one.last_error_at, default=None)
    return StreamView(
        name=name,
        group=like.group,
        topic=like.topic,
        location=like.location,
        workers=len({worker for worker, _ in reports}),
        lag=lag_of(partitions),
        in_flight=sum(report.in_flight for _, report in reports),
        rate_per_s=round(rate_per_s, 3),
        dead_letters=dead_letters,
        last_error="" if error is None else error.last_error,
        last_error_at=error.last_error_at or None if error is not None else None,
        away=next((report.away for _, report in reports if report.away), ""),
        partitions=sorted(partitions, key=lambda one: (one.topic, one.partition, one.worker)),
    )


def lag_of(partitions: Iterable[PartitionView]) -> int | None:
    """The sum over all partitions whose lag is known; of one that several workers report, it is there once."""
    lags: dict[tuple[str, int], int] = {}
    for one in partitions:
        if one.lag is not None:
            place = one.topic, one.partition
            lags[place] = max(one.lag, lags.get(place, 0))
    return sum(lags.values()) if lags else None


def _partition(worker: str, report: PartitionReport) -> PartitionView:
    # Nothing of it may begin yet: a retry that is not due. But none waits for longer than any of ours would.
    is_resting = bool(report.paused) and not report.in_flight and report.stuck_s <= report.rest_s
    return PartitionView(
        topic=report.topic,
        partition=report.partition,
        worker=worker,
        position=None if report.position is None else offset_text(report.position),
        lag=report.lag,
        in_flight=report.in_flight,
        buffered=report.buffered,
        paused=report.paused,
        stuck_id="" if is_resting else report.stuck_id,
        stuck_key="" if is_resting else report.stuck_key,
        stuck_s=0.0 if is_resting else report.stuck_s,
    )
