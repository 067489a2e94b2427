"""How worker processes are doing: they write it to a pipe every second, and their supervisor reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from holdfast.ports import Clock
from holdfast.runtime.exposition import Kind, Metric, Sample, label
from holdfast.runtime.streams.views import BURIED, PROCESSED
from holdfast.runtime.worker import Report, Worker

SILENT_S: Final = 15.0
"""A process that has said nothing for so long does not turn its event loop."""

REPORTS_TO: Final = "--reports-to="
"""How a process is told where to write."""

_EVERY_S: Final = 1.0
_START_S: Final = 60.0
_AT_ONCE: Final = 65_536
_FAILED: Final = "failed:"
_decode = msgspec.json.Decoder(Report).decode


def reports_to(arguments: Sequence[str]) -> int | None:
    """The file descriptor that a process was told, if any."""
    found = [one.removeprefix(REPORTS_TO) for one in arguments if one.startswith(REPORTS_TO)]
    return int(found[0]) if found else None


async def tell(worker: Worker, fd: int, clock: Clock) -> None:
    """Write down how a worker is doing, over and over, from its own event loop."""
    os.set_blocking(fd, False)
    while True:
        with suppress(BlockingIOError, BrokenPipeError):  # a supervisor that does not read must not hold up the work
            os.write(fd, msgspec.json.encode(worker.report()) + b"\n")
        await clock.asleep(_EVERY_S)


class Line:
    """What a supervisor hears from one process, over its lives; its loop writes it, and any thread may read it."""

    def __init__(self, clock: Clock, *, is_open: bool) -> None:
        self._clock = clock
        self._is_open = is_open
        self._fd: int | None = None
        self._rest = b""
        self._started_s = 0.0
        self._heard: tuple[Report, float] | None = None

    @contextmanager
    def opened(self) -> Iterator[int | None]:
        """A new line for a process that is started inside of the block: the file descriptor it is to be given."""
        if not self._is_open:
            yield None
            return
        self.close()
        ours, theirs = os.pipe()
        try:
            yield theirs
        except BaseException:  # there is no process to hear of
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        os.set_blocking(ours, False)
        self._fd, self._started_s = ours, self._clock.monotonic()

    def close(self) -> None:
        """The process is gone."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._rest, self._heard = None, b"", None

    def hear(self) -> None:
        """Take in what it has said; of that the latest counts."""
        if self._fd is None:
            return
        try:
            *lines, self._rest = (self._rest + os.read(self._fd, _AT_ONCE)).split(b"\n")
        except BlockingIOError:
            return
        if lines:
            with suppress(msgspec.MsgspecError):  # a process that dies may leave half a line
                self._heard = _decode(lines[-1]), self._clock.monotonic()

    @property
    def report(self) -> Report | None:
        """The latest that is not too old."""
        heard = self._heard
        return heard[0] if heard is not None and self._clock.monotonic() - heard[1] <= SILENT_S else None

    def why_not_live(self) -> str:
        """Why its process should be ended; empty when it should not, also when there is none or it has just begun."""
        heard = self._heard
        if self._fd is None or (heard is None and self._clock.monotonic() - self._started_s <= _START_S):
            return ""
        silent_s = self._clock.monotonic() - (self._started_s if heard is None else heard[1])
        who = "a worker process" if heard is None else f"worker process {heard[0].pid}"
        return f"{who} has not turned its event loop for {silent_s:.0f} s" if silent_s > SILENT_S else ""

    def why_not_ready(self) -> str:
        """Why its process cannot claim jobs."""
        report = self.report
        return "no process has begun" if report is None else report.why_not_ready


def metrics_of(lines: Sequence[Line], restarts: int) -> list[Metric]:
    """What processes have told, for Prometheus; they are numbered from 0."""
    reports = {str(number): line.report for number, line in enumerate(lines)}
    known = {process: report for process, report in reports.items() if report is not None}

    def each(name: str, kind: Kind, text: str, values: dict[str, float]) -> Metric:
        return Metric(name, kind, text, [Sample({"process": process}, value) for process, value in values.items()])

    return [
        each(
            "holdfast_worker_up",
            "gauge",
            "Whether a process is there and turns its event loop.",
            {process: int(report is not None) for process, report in reports.items()},
        ),
        each(
            "holdfast_worker_ready",
            "gauge",
            "Whether a process can claim jobs.",
            {process: int(not one.why_not_ready) for process, one in known.items()},
        ),
        each(
            "holdfast_worker_last_exchange_seconds",
            "gauge",
            "How long ago the store answered, when the process last said so.",
            {process: one.last_exchange_s for process, one in known.items() if one.last_exchange_s is not None},
        ),
        each(
            "holdfast_worker_jobs_running",
            "gauge",
            "Jobs that a process holds.",
            {process: one.running for process, one in known.items()},
        ),
        Metric(
            "holdfast_worker_attempts_total",
            "counter",
            "Attempts that have ended in a process, by outcome.",
            [
                Sample({"process": process, "outcome": name}, n)
                for process, one in known.items()
                for name, n in sorted(one.counts.items())
                if name in {"completed", "retried", "failed", "parked"}
            ],
        ),
        Metric(
            "holdfast_worker_failures_total",
            "counter",
            "Failed attempts in a process, by the kind of failure.",
            [
                Sample({"process": process, "failure_type": name.removeprefix(_FAILED)}, n)
                for process, one in known.items()
                for name, n in sorted(one.counts.items())
                if name.startswith(_FAILED)
            ],
        ),
        Metric(
            "holdfast_worker_restarts_total",
            "counter",
            "Processes that ended by themselves and were started again.",
            [Sample({}, restarts)],
        ),
        *_of_streams(known),
    ]


def _of_streams(known: Mapping[str, Report]) -> Iterator[Metric]:
    """What processes with streams have told of them; nothing where there are none."""
    reports = {process: one for process, one in known.items() if one.streams}
    if not reports:
        return
    for name, counted, text in (
        ("messages_processed", PROCESSED, "Messages that handlers in a process have finished."),
        ("dlq_messages", BURIED, "Messages that a process has sent to the dead letters."),
    ):
        yield Metric(
            f"holdfast_worker_{name}_total",
            "counter",
            text,
            [Sample({"process": process}, one.counts.get(counted, 0)) for process, one in reports.items()],
        )
    streams = [(process, stream) for process, one in reports.items() for stream in one.streams]
    yield Metric(
        "holdfast_worker_messages_in_flight",
        "gauge",
        "Messages that a process has begun and not finished.",
        [Sample({"process": process, "stream": one.name}, one.in_flight) for process, one in streams],
    )
    yield Metric(
        "holdfast_worker_stream_away",
        "gauge",
        "Whether a process cannot reach a stream's server.",
        [Sample({"process": process, "stream": one.name}, int(one.is_away)) for process, one in streams],
    )
    lags: dict[tuple[str, str, str, int], int] = {}
    for process, one in streams:
        for part in one.partitions:
            place = process, label(one.name), label(part.topic), part.partition
            if part.lag is not None:
                lags[place] = max(part.lag, lags.get(place, 0))
    yield Metric(
        "holdfast_worker_consumer_lag",
        "gauge",
        "Messages that are not finished, of the partitions that a process has.",
        [
            Sample({"process": process, "stream": stream, "topic": topic, "partition": str(number)}, lag)
            for (process, stream, topic, number), lag in lags.items()
        ],
    )
