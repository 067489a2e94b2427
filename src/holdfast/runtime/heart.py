"""A worker's heartbeat, on a thread of its own so that no job can hold it up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.errors import LeaseLost
from holdfast.ports import Beat, Clock, Store, WorkerRecord
from holdfast.runtime.outage import Outage, Say

PART: Final = "heartbeat"
TO_STOP: Final = 0.1
"""The part of a lease that is left for stopping the work, when it cannot be renewed."""

AT_MOST: Final = 0.25
"""The longest wait after a beat that failed, as a part of that between two beats: all the work is at stake, and one
that the network drops now and then is to be given up by no run of bad luck."""


class Heart:
    """Renews a worker's lease every `every_s`, sooner when a beat has failed, and says at once when it is lost.

    A worker that cannot renew its lease has lost it shortly before its time is over, whatever the reason: `on_lost` is
    then told, once. `on_beat` is told every answer. Both are called on the heart's own thread, and so is `say`, with
    what is to be logged: none of them may stand still.
    """

    def __init__(
        self,
        store: Store,
        describe: Callable[[], WorkerRecord],
        *,
        every_s: float,
        clock: Clock,
        outage: Outage,
        on_beat: Callable[[Beat], None],
        on_lost: Callable[[str], None],
        say: Say,
    ) -> None:
        self._store = store
        self._describe = describe
        self._every_s = every_s
        self._clock = clock
        self._outage = outage
        self._on_beat = on_beat
        self._on_lost = on_lost
        self._say = say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-heart", daemon=True)
        self.renewed_s = clock.monotonic()
        """When the heartbeat was sent that the store answered last. From any thread."""
        self._beating: asyncio.Task[object] | None = None
        self.is_given_up = False
        """Whether it is the store that has given the worker up, so that others have its jobs by now."""

    async def start(self) -> None:
        """Send the first heartbeat, which registers the worker, and go on with the others."""
        sent_s = self._clock.monotonic()
        beat = await self._store.heartbeat(self._describe())
        if not beat.is_alive:
            raise LeaseLost("the store has given this worker up before it had begun")
        self.renewed_s = sent_s
        self._thread.start()

    def stop(self) -> None:
        """No more heartbeats, also not the one that waits for an answer; the lease lasts until it is given back."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            beating = self._beating
            if beating is not None:
                with suppress(RuntimeError):  # it has ended meanwhile, and its loop with it
                    beating.get_loop().call_soon_threadsafe(beating.cancel)
            self._thread.join()

    def _run(self) -> None:
        pause_s: float | None = self._every_s
        with asyncio.Runner() as runner, suppress(asyncio.CancelledError):
            while pause_s is not None and not self._clock.wait(self._stop, pause_s):
                pause_s = runner.run(self._beat())

    async def _beat(self) -> float | None:
        """One heartbeat; how long until the next, None when the lease is lost."""
        self._beating = asyncio.current_task()
        if self._stop.is_set():  # between our look and now: there was nothing yet that could be cancelled
            return None
        worker = self._describe()
        sent_s = self._clock.monotonic()
        end_s = self.renewed_s + worker.lease_s * (1.0 - TO_STOP)
        try:
            async with self._clock.timeout(max(0.0, end_s - sent_s)):
                beat = await self._store.heartbeat(worker)
        except Exception as error:  # whatever it is: without an answer the lease is not renewed
            again_s = self._outage.fails(PART, error, self._say)
            left_s = end_s - self._clock.monotonic()
            if left_s > 0.0:
                return min(again_s, left_s, self._every_s * AT_MOST)
            why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            self._on_lost(f"its lease could not be renewed: {why}")
            return None
        self._outage.works(PART, self._say)
        if not beat.is_alive:
            self.is_given_up = True
            self._on_lost("the store has given it up")
            return None
        self.renewed_s = sent_s
        self._on_beat(beat)
        return self._every_s
