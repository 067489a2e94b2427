"""Streams as their workers report them, and letters as they bury them, in a store that a server shows."""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

from msgspec import json

from holdfast import App
from holdfast.clock import SystemClock
from holdfast.ports import Claim, Exchange, PartitionReport, Settlement, StreamReport, WorkerRecord
from holdfast.runtime.streams.letters import letter_of
from holdfast.types import Attempt, Change, FailureType, Message, Severity

T = TypeVar("T")
GROUP: Final = "billing"
_WORKER: Final = "river-1"
_CLOCK: Final = SystemClock()
_LEASE_S: Final = 300.0
_TOKEN: Final = b"a token of sixteen bytes"


class Rivers:
    """A worker by its heartbeats alone: what it says of its streams is made by hand.

    It has a thread of its own, since a loop is running on that of the tests, which is the browser's.
    """

    def __init__(self, url: str) -> None:
        self._app = App(url)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rivers")
        self._known: dict[str, StreamReport] = {}
        self._buried = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.submit(self._app.close).result()
        self._thread.shutdown()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._thread.submit(lambda: self._app.bridge.run(call)).result()

    def report(self, *streams: StreamReport) -> None:
        """A heartbeat; streams of earlier ones are still there."""
        self._known |= {one.name: one for one in streams}
        record = WorkerRecord(id=_WORKER, lease_s=_LEASE_S, host="mill", pid=7, streams=tuple(self._known.values()))
        assert self._run(self._app.store.heartbeat(record)).is_alive

    def bury(self, stream: str, value: Any, *, key: str = "", topic: str = "orders", error: str = "no cents") -> str:
        """A message that was given up; the id of its letter."""
        self._buried += 1
        now = _CLOCK.now()
        message = Message(
            topic, 3, 1_000 + self._buried, key.encode(), json.encode(value), (("source", b"till"),), timestamp=now
        )
        attempt = Attempt(
            number=1,
            started_at=now - 1.0,
            ended_at=now,
            worker=_WORKER,
            outcome=Change.BURY,
            failure_type=FailureType.VALIDATION,
            severity=Severity.MEDIUM,
            error_name="holdfast.errors.Invalid",
            message=error,
            fingerprint=f"1:{stream}",
        )
        letter = letter_of(
            message,
            group=GROUP,
            task=stream,
            queue=f"stream:{stream}",
            attempts=[attempt],
            reason="not retriable",
            keep_s=None,
        )
        self._run(self._app.store.enqueue([letter]))
        return letter.id

    def carry(self, stream: str, letter: str, topic: str) -> None:
        """What a worker does with a letter that was replayed: it sends it, and waits until it is handled."""
        claim = Claim(worker=_WORKER, token=_TOKEN, limit=1, queues=(f"stream:{stream}",))
        (delivery,) = self._run(self._app.store.exchange(Exchange(claim=claim))).deliveries
        assert delivery.id == letter
        parked = Settlement(id=letter, token=_TOKEN, change=Change.PARK, delay_s=3600.0, reason=f"sent to {topic}")
        assert all(self._run(self._app.store.exchange(Exchange(settlements=[parked]))).settled)


def stream(name: str, *parts: PartitionReport, topic: str = "orders", **said: Any) -> StreamReport:
    """A stream as a worker reports it."""
    location = f"kafka://localhost:9092/{topic}"
    return StreamReport(
        **{"name": name, "group": GROUP, "location": location, "topic": topic, "partitions": parts, **said}
    )


def part(number: int, *, topic: str = "orders", lag: int | None = 0, **said: Any) -> PartitionReport:
    """A partition as a worker reports it."""
    return PartitionReport(topic=topic, partition=number, position=1_000 + number, lag=lag, **said)
