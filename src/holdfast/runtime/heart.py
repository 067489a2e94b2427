"""A worker's heartbeat, on a thread of its own so that no job can hold it up."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from holdfast.errors import HoldfastError
from holdfast.ports import Beat, Clock, Store, WorkerRecord

_logger = logging.getLogger("holdfast.worker")


class Heart:
    """Renews a worker's lease every `every_s`, and says at once when it is lost.

    A worker that cannot renew its lease has lost it when its time is over, whatever the reason: `on_lost` is then told,
    once. `on_beat` is told every answer. Both are called on the heart's own thread.
    """

    def __init__(
        self,
        store: Store,
        describe: Callable[[], WorkerRecord],
        *,
        every_s: float,
        clock: Clock,
        on_beat: Callable[[Beat], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._store = store
        self._describe = describe
        self._every_s = every_s
        self._clock = clock
        self._on_beat = on_beat
        self._on_lost = on_lost
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-heart", daemon=True)
        self._renewed_s = clock.monotonic()

    async def start(self) -> None:
        """Send the first heartbeat, which registers the worker, and go on with the others."""
        sent_s = self._clock.monotonic()
        beat = await self._store.heartbeat(self._describe())
        if not beat.is_alive:
            raise HoldfastError("the store does not take this worker's id")
        self._renewed_s = sent_s
        self._thread.start()

    def stop(self) -> None:
        """No more heartbeats; the lease lasts until it is given back."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            while not self._clock.wait(self._stop, self._every_s):
                if not runner.run(self._beat()):
                    return

    async def _beat(self) -> bool:
        worker = self._describe()
        sent_s = self._clock.monotonic()
        try:
            async with self._clock.timeout(max(0.0, self._renewed_s + worker.lease_s - sent_s)):
                beat = await self._store.heartbeat(worker)
        except Exception as error:  # whatever it is: without an answer the lease is not renewed
            _logger.warning("a heartbeat failed: %s: %s", type(error).__name__, error)
            if self._clock.monotonic() + self._every_s < self._renewed_s + worker.lease_s:
                return True
            self._on_lost(f"its lease could not be renewed: {error}")
            return False
        if not beat.is_alive:
            self._on_lost("the store has given it up")
            return False
        self._renewed_s = sent_s
        self._on_beat(beat)
        return True
