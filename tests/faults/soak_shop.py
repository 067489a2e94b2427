"""The tasks of a soak: most complete, some fail once, some are dead letters until they are replayed, some for good."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from holdfast import App, JobContext, Permanent, RetryPolicy, Transient
from holdfast.app.task import Call
from holdfast.clock import SystemClock
from holdfast.runtime import maintenance
from tests.faults.soak_ledger import EffectPen

TARGET: Final = "tests.faults.soak_shop:app"
FOLDER: Final = "SOAK_FOLDER"
"""The environment variable that names the folder of the effect ledger."""
KEEP: Final = "SOAK_KEEP_S"
"""The environment variable with the seconds for which jobs are kept after their end."""
TASKS: Final = ("work", "toil")
"""The tasks whose jobs complete at last, replayed if need be."""
DOOMED: Final = "doomed"
TICK: Final = "tick"
TICK_EVERY_S: Final = 2.0
MENDED: Final[dict[str, Any]] = {"is_dead": False}
"""The edit that lets a refused job complete."""

_DAY_S: Final = 86_400.0
_DOOM_EVERY: Final = 200
_DOOM_AT: Final = 111
_REFUSE_AT: Final = 11
_QUICK: Final = RetryPolicy(max_retries=20, initial_delay=0.05, max_delay=0.2, min_delay=0.0, total_timeout=3_600.0)


def is_doomed(number: int) -> bool:
    """Whether the job of this number is a dead letter for good."""
    return number % _DOOM_EVERY == _DOOM_AT


def doomed_to(number: int) -> range:
    """Those of the jobs up to a number, without it, that are."""
    return range(_DOOM_AT, number, _DOOM_EVERY)


def doomed_below(number: int) -> int:
    """How many these are."""
    return len(doomed_to(number))


def is_refused(number: int) -> bool:
    """Whether the job of this number is a dead letter until it is replayed with the edit."""
    return number % _DOOM_EVERY == _REFUSE_AT


def call_of(app: App, number: int, seconds: float) -> Call[Any]:
    """The job of a number, of about this length: what becomes of it follows from the number alone."""
    if is_doomed(number):
        return app.tasks[DOOMED].bind(number)
    task = app.tasks["toil" if number % 4 == 0 else "work"]
    options = task.options(delay=0.3 * (1 + number % 4) if number % 50 == 3 else None)
    own_s = seconds * (0.5 + number % 11 / 10)
    return options.bind(number, own_s, failures=int(number % 100 == 7), is_dead=is_refused(number))


def open_shop(url: str, folder: Path, keep_s: float) -> App:
    """An app with the tasks of a soak, on this store and this ledger."""
    app = App(url, result_ttl=keep_s)
    pen = EffectPen(folder)
    clock = SystemClock()

    @contextmanager
    def noted(job: JobContext, number: int) -> Iterator[None]:
        delivery = job._delivery
        pen.write(number, "start", wait_s=delivery.claimed_at - delivery.due_at, note=job.id)
        try:
            yield
        except BaseException:
            pen.write(number, "fail")
            raise
        pen.write(number, "end")

    def refuse(job: JobContext, number: int, failures: int, *, is_dead: bool) -> None:
        if is_dead:
            raise Permanent(f"number {number} is refused until it is mended")
        if job.attempt <= failures:
            raise Transient(f"number {number} fails {failures} times")

    @app.task(name="work", retry=_QUICK)
    async def work(job: JobContext, number: int, seconds: float, failures: int = 0, is_dead: bool = False) -> int:
        with noted(job, number):
            await clock.asleep(seconds)
            refuse(job, number, failures, is_dead=is_dead)
        return number

    @app.task(name="toil", retry=_QUICK)
    def toil(job: JobContext, number: int, seconds: float, failures: int = 0, is_dead: bool = False) -> int:
        with noted(job, number):
            clock.sleep(seconds)
            refuse(job, number, failures, is_dead=is_dead)
        return number

    @app.task(name=DOOMED, breaker=None, dlq_retention_days=keep_s / _DAY_S)
    async def doomed(job: JobContext, number: int) -> None:
        with noted(job, number):
            raise Permanent(f"number {number} is never accepted")

    @app.task(name=TICK)
    async def tick(job: JobContext) -> None:
        pen.write(0, "tick", note=job.id)

    app.schedule(tick.bind(), every=TICK_EVERY_S)
    return app


if FOLDER in os.environ:  # a process of a soak
    # Scaled down with the time for which jobs are kept: a worker that prunes once a minute, and is killed by chance
    # before it does, leaves two or three times as many as there should be, and from outside that looks like a leak.
    maintenance._PRUNE_EVERY_S = 5.0
app = open_shop(
    os.environ.get("HOLDFAST_URL", "memory://"),
    Path(os.environ.get(FOLDER, os.devnull)),
    float(os.environ.get(KEEP, "20")),
)
