"""The parts of the product that touch the real world, as a simulation has them: clock, ids, the heart's thread."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import holdfast.clock
from holdfast.errors import HoldfastError
from holdfast.runtime import worker as worker_module
from holdfast.runtime.heart import Heart
from tests.simulation.loop import SimLoop

EPOCH: Final = 1_800_000_000.0
"""The wall time at which every simulation begins."""


class SimClock:
    """A machine's clock: its length of a second is everybody's, its idea of the date may be its own."""

    def __init__(self, loop: SimLoop, skew_s: float = 0.0) -> None:
        self._loop = loop
        self.skew_s = skew_s

    def now(self) -> float:
        """Wall time."""
        return EPOCH + self._loop.time() + self.skew_s

    def monotonic(self) -> float:
        """The loop's time."""
        return self._loop.time()

    async def asleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """A time limit."""
        return asyncio.timeout(seconds)

    def sleep(self, seconds: float, /) -> None:
        """Nobody may block the one thread that there is."""
        raise AssertionError(f"something blocks for {seconds:g} s")

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Nor so."""
        raise AssertionError(f"something blocks for {seconds} s, or until {event!r} is set")


class _Beats:
    """In place of the heart's thread: a task on the same loop."""

    def __init__(self, heart: LoopHeart) -> None:
        self._heart = heart
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to beat."""
        self._task = asyncio.get_running_loop().create_task(self._heart.beats())

    def is_alive(self) -> bool:
        """Whether it beats."""
        return self._task is not None and not self._task.done()

    def join(self) -> None:
        """Cancelled, it ends with the next step of the loop."""
        assert self._task is not None
        self._task.cancel()


class LoopHeart(Heart):
    """A heart on the loop that everybody shares."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._thread = _Beats(self)  # type: ignore[assignment]

    async def beats(self) -> None:
        """As the thread does, without blocking."""
        pause_s: float | None = self._every_s
        while pause_s is not None:
            await self._clock.asleep(pause_s)
            if self._stop.is_set():
                return
            pause_s = await self._beat()


class _Swallowed(logging.Handler):
    """Errors that nobody expects, which a worker logs and goes on after: they must not pass unseen."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, HoldfastError):
            self._loop.failures.append(f"{record.getMessage()}: {error!r}")


@contextmanager
def simulated(seed: int, loop: SimLoop) -> Iterator[None]:
    """Ids, tokens and chance follow from the seed, and hearts beat on the loop."""
    dice = random.Random(seed)
    ids: Any = holdfast.clock.new_id
    random.seed(seed)
    names = {
        "os": SimpleNamespace(urandom=dice.randbytes),
        "time": SimpleNamespace(time_ns=lambda: int((EPOCH + loop.time()) * 1e9)),
    }
    before = {name: getattr(holdfast.clock, name) for name in names}
    vars(holdfast.clock).update(names)
    known = ids._ms, ids._prefix, ids._tail, ids._chance
    ids._ms, ids._prefix, ids._tail, ids._chance = 0, "", 0, dice.getrandbits
    tokens = holdfast.clock.new_token
    last_token, tokens.last = tokens.last, 0
    patched = {"Heart": LoopHeart, "process_mark": lambda: ""}  # all machines are this process
    real = {name: vars(worker_module)[name] for name in patched}
    vars(worker_module).update(patched)
    swallowed = _Swallowed(loop)
    logging.getLogger("holdfast").addHandler(swallowed)
    try:
        yield
    finally:
        logging.getLogger("holdfast").removeHandler(swallowed)
        vars(worker_module).update(real)
        vars(holdfast.clock).update(before)
        ids._ms, ids._prefix, ids._tail, ids._chance = known
        tokens.last = last_token
