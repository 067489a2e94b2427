"""Rings as their processes report them, and letters as they give elements up, in a store that a server shows."""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

from holdfast import App
from holdfast.ports import RingReport, WorkerRecord
from tests.unit.ringed import ring_letter

T = TypeVar("T")
_LEASE_S: Final = 300.0


class Wheels:
    """Processes by their heartbeats alone: what they say of their rings is made by hand.

    It has a thread of its own, since a loop is running on that of the tests, which is the browser's.
    """

    def __init__(self, url: str) -> None:
        self._app = App(url)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="wheels")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.submit(self._app.close).result()
        self._thread.shutdown()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._thread.submit(lambda: self._app.bridge.run(call)).result()

    def report(self, *rings: RingReport, pid: int = 7, host: str = "mill") -> None:
        """A heartbeat of a process: what it has now."""
        record = WorkerRecord(id=f"wheel-{pid}", lease_s=_LEASE_S, host=host, pid=pid, rings=rings)
        assert self._run(self._app.store.heartbeat(record)).is_alive

    def bury(self, ring: str, consumer: str, *elements: Any, offset: int | None = None) -> str:
        """Elements that were given up; the id of their letter."""
        letter = ring_letter(ring, consumer, *elements, offset=offset)
        self._run(self._app.store.enqueue([letter]))
        return letter.id
