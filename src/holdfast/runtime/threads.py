"""Sync jobs on a few threads: they share a queue, and short ones share the hop to a thread and back."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Generic, ParamSpec, TypeVar

from holdfast.ports import Clock

_logger = logging.getLogger("holdfast.worker")

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W")

_TICK_S = 0.01
_SHORT_S = 0.002


class Threads(Generic[W]):
    """Runs work on up to `size` threads and hands back what is done, many at a time.

    One thread is woken for a batch. While it gets through job after job, the others sleep, because threads that only
    pass the interpreter around make each other slow; once the running job has taken longer than 10 ms, or jobs are
    known to take long, the rest of the batch wakes as many as it needs.
    """

    def __init__(self, size: int, run: Callable[[W], None], on_done: Callable[[list[W]], None], clock: Clock) -> None:
        self.size = size
        self._run = run
        self._on_done = on_done
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ready: deque[W] = deque()
        self._done: deque[W] = deque()
        self._lock = threading.Lock()
        self._permits = threading.Semaphore(0)
        self._idle = 0
        self._started = 0
        self._taken = 0
        self._seen_taken = 0
        self._is_told = False
        self._is_closed = False
        self._ticking = False
        self._is_short = False
        self.busy_s = _SHORT_S
        """How long a job takes, as a moving average."""
        self.running: set[W] = set()
        self._begun_s = 0.0
        self._outside = copy_context()
        """Without it, what is done with the results would be done in the context of the last job of a thread."""

    def submit(self, work: list[W], *, is_first: bool = False) -> None:
        """Run these, in order, before what waits or after it; from the event loop."""
        if not work:
            return
        if is_first:
            self._ready.extendleft(reversed(work))
        else:
            self._ready.extend(work)
        self._rouse(len(self._ready) if self.busy_s > _SHORT_S else 1)
        self._watch()

    @property
    def waiting(self) -> int:
        """How many have not been begun."""
        return len(self._ready)

    @property
    def expected_s(self) -> float:
        """How long until a thread is free again: as a job takes, or as the latest has taken while all are busy."""
        if len(self.running) < self.size:
            return self.busy_s
        return max(self.busy_s, self._clock.monotonic() - self._begun_s)

    def take_back(self) -> list[W]:
        """What has not been begun, taken out of the queue."""
        back = []
        while self._ready:
            try:
                back.append(self._ready.popleft())
            except IndexError:
                break  # a thread was quicker
        return back

    def close(self) -> None:
        """Let the threads end once they are done with what they run; what is queued is left."""
        self._is_closed = True
        self._permits.release(self.size)

    # ---- on the loop

    def _rouse(self, wanted: int) -> None:
        with self._lock:
            for _ in range(min(wanted, self.size)):
                if self._idle > 0:
                    self._idle -= 1
                    self._permits.release()
                elif self._started >= self.size or not self._start():
                    break

    def _start(self) -> bool:
        """Begin a thread; False while the machine has none to give, as with too little memory: `_tick` tries again."""
        thread = threading.Thread(target=self._work, name=f"holdfast-{self._started + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._is_short:
                _logger.error("no thread can be started for jobs, which wait: %s", error)
            self._is_short = True
            return False
        self._started += 1
        self._is_short = False
        return True

    def _watch(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._seen_taken = self._taken
            self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        """Every 10 ms while something waits: wake the others when nothing was begun since the last look."""
        self._ticking = False
        if not self._ready or self._is_closed:
            return
        if self._taken == self._seen_taken:
            self._rouse(len(self._ready))
        self._watch()

    def _collect(self) -> None:
        self._is_told = False
        done = []
        while self._done:
            done.append(self._done.popleft())
        self._on_done(done)

    # ---- on a thread

    def _work(self) -> None:
        clock, ready = self._clock, self._ready
        while not self._is_closed:
            try:
                one = ready.popleft()
            except IndexError:
                if not self._rest():
                    return
                continue
            self._taken += 1
            self.running.add(one)
            self._begun_s = began_s = clock.monotonic()
            self._run(one)
            self.busy_s += 0.05 * (clock.monotonic() - began_s - self.busy_s)
            self.running.discard(one)
            self._done.append(one)
            if not self._is_told:
                self._is_told = True
                try:
                    self._loop.call_soon_threadsafe(self._collect, context=self._outside)
                except RuntimeError:
                    return  # the loop is gone, and with it everybody who cared

    def _rest(self) -> bool:
        """Sleep until there may be work; False at the end."""
        with self._lock:
            if self._ready:
                return True  # it came after our look, and nobody was counted idle to be woken
            self._idle += 1
        self._permits.acquire()
        return not self._is_closed


class OwnThreads(ThreadPoolExecutor):
    """Where async jobs run what they hand to `asyncio.to_thread`; a job may be cancelled, and its thread goes on."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="holdfast-own")
        self.running: set[Future[Any]] = set()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run this, and know of it until it has ended."""
        future = super().submit(fn, *args, **kwargs)
        self.running.add(future)
        future.add_done_callback(self.running.discard)
        return future
