"""Tasks that are rough with the process that runs them, beside those of the shop; worker processes load `app`."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from holdfast import App, JobContext, RetryPolicy
from holdfast.clock import SystemClock
from tests.faults.ledger import ClientLedger, EffectLedger
from tests.faults.load import enqueue
from tests.faults.shop import EFFECTS, noted, open_shop, token_of

TARGET: Final = "tests.faults.rough_shop:app"
RETRIES: Final = 2
CHILDREN: Final = "children"
"""The file beside the effects where those that jobs have forked write down their process ids."""
LINGERS_S: Final = 60.0
_LONG_S: Final = 60.0

Way = Literal["linger", "return", "leave", "raise", "enqueue"]
"""What a forked child does: it stays, comes back from the task like its parent, exits, fails, or uses the app."""

_FEW: Final = RetryPolicy(max_retries=RETRIES, initial_delay=0.05, max_delay=0.1, min_delay=0.0)
_MANY: Final = RetryPolicy(max_retries=500, initial_delay=0.1, max_delay=0.2, min_delay=0.0)
_ONCE: Final = RetryPolicy(max_retries=0)
_PYTHON: Final = ctypes.PyDLL(None)
"""Unlike with CDLL, the interpreter lock is kept in what is called."""


@contextmanager
def _to_the_end(clock: SystemClock) -> Iterator[None]:
    """Whoever holds the interpreter lock here keeps it until the last line is written.

    Else others have their turn first, find that the lease is over, and end the process before that.
    """
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_LONG_S)
    clock.sleep(0.02)  # those that wait for their turn ask for it after this time only
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


def add_rough_tasks(app: App, effects: Path) -> App:
    """Its tasks, on this ledger."""
    ledger = EffectLedger(effects)
    clock = SystemClock()

    def is_first(job: JobContext) -> bool:
        return all(one.job != job.id for one in ledger.read())

    @app.task(name="hog", breaker=None, retry=_FEW)
    def hog(job: JobContext, seconds: float, again: float) -> str:
        """Sleeps with the interpreter lock held; so many seconds when it is run again."""
        held_s = seconds if is_first(job) else again
        with _to_the_end(clock), noted(ledger, job):
            _PYTHON.usleep(int(held_s * 1_000_000))
        return token_of(job)

    @app.task(name="hog_async", breaker=None, retry=_FEW)
    async def hog_async(job: JobContext, seconds: float, again: float) -> str:
        held_s = seconds if is_first(job) else again
        with _to_the_end(clock), noted(ledger, job):
            _PYTHON.usleep(int(held_s * 1_000_000))
        return token_of(job)

    @app.task(name="backtrack", breaker=None, retry=_FEW)
    def backtrack(job: JobContext, size: int, again: int) -> str:
        """A pattern that takes twice as long for each letter more."""
        letters = size if is_first(job) else again
        with _to_the_end(clock), noted(ledger, job):
            assert re.fullmatch(r"(a+)+", "a" * letters + "b") is None
        return token_of(job)

    @app.task(name="glutton", breaker=None, retry=_FEW)
    def glutton(job: JobContext, megabytes: int) -> str:
        """Takes memory, a megabyte at a time, and writes to all of it."""
        with noted(ledger, job):
            held = [b"x" * 2**20 for _ in range(megabytes)]
            held.clear()
        return token_of(job)

    @app.task(name="opener", breaker=None, retry=_MANY)
    def opener(job: JobContext) -> str:
        """Needs a descriptor."""
        with noted(ledger, job), open(os.devnull, "rb"):
            return token_of(job)

    def as_child(way: Way) -> str:
        """What follows a fork, in the child."""
        fd = os.open(effects.parent / CHILDREN, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(fd, f"{os.getpid()}\n".encode())
        os.close(fd)
        match way:
            case "linger":
                clock.sleep(LINGERS_S)
                os._exit(0)
            case "leave":
                sys.exit(0)
            case "raise":
                raise RuntimeError("in a forked child")
            case "enqueue":
                enqueue(app, ClientLedger(effects.parent / "client"), [app.tasks["work"].bind(0)])
                os._exit(0)
            case "return":
                return "of a child"

    @app.task(name="fork", breaker=None, retry=_FEW)
    def fork(job: JobContext, way: Way) -> str:
        if os.fork() == 0:
            return as_child(way)
        with noted(ledger, job):
            return token_of(job)

    @app.task(name="fork_async", breaker=None, retry=_FEW)
    async def fork_async(job: JobContext, way: Way) -> str:
        if os.fork() == 0:
            return as_child(way)
        with noted(ledger, job):
            return token_of(job)

    @app.task(name="fork_apart", breaker=None, retry=_FEW, isolate="process")
    def fork_apart(job: JobContext, way: Way) -> str:
        if os.fork() == 0:
            return as_child(way)
        with noted(ledger, job):
            return token_of(job)

    @app.task(name="fork_and_die", breaker=None, retry=_ONCE, isolate="process")
    def fork_and_die(job: JobContext) -> None:
        with noted(ledger, job):
            if os.fork() == 0:
                as_child("linger")
            os._exit(1)

    return app


app = add_rough_tasks(
    open_shop(os.environ.get("HOLDFAST_URL", "memory://"), Path(os.environ.get(EFFECTS, os.devnull))),
    Path(os.environ.get(EFFECTS, os.devnull)),
)
