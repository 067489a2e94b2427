"""The tasks that worker processes run under fault: each notes what it does, and returns its lease's token."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdfast import App, JobContext, RetryPolicy, Transient
from holdfast.clock import SystemClock
from tests.faults.ledger import EffectLedger

TARGET: Final = "tests.faults.shop:app"
EFFECTS: Final = "FAULTS_EFFECTS"
"""The environment variable that names the effect ledger."""
POISON_RETRIES: Final = 2

_QUICK: Final = RetryPolicy(max_retries=5, initial_delay=0.05, max_delay=0.2, min_delay=0.0)
_ONCE: Final = RetryPolicy(max_retries=0)
_LIMIT_S: Final = 1.0


def token_of(job: JobContext) -> str:
    """The lease that it runs under, which no user needs to know."""
    return job._delivery.token.hex()


@contextmanager
def noted(ledger: EffectLedger, job: JobContext) -> Iterator[None]:
    """One line at the start and one at the end, whichever end it is."""
    note = partial(ledger.write, job.id, job.attempt, token_of(job), task=job.task)
    note("start")
    try:
        yield
    except asyncio.CancelledError:
        note("stop")
        raise
    except Exception:
        note("fail")
        raise
    note("end")


def open_shop(url: str, effects: Path) -> App:
    """An app with every task of the fault tests, on this store and this ledger."""
    app = App(url)
    ledger = EffectLedger(effects)
    clock = SystemClock()

    @app.task(name="work", breaker=None, retry=_QUICK)
    async def work(job: JobContext, number: int, seconds: float = 0.0, failures: int = 0, ballast: str = "") -> str:
        with noted(ledger, job):
            await clock.asleep(seconds)
            if job.attempt <= failures:
                raise Transient(f"number {number} fails {failures} times")
        return token_of(job)

    @app.task(name="toil", breaker=None, retry=_QUICK)
    def toil(job: JobContext, number: int, seconds: float = 0.0, failures: int = 0) -> str:
        with noted(ledger, job):
            clock.sleep(seconds)
            if job.attempt <= failures:
                raise Transient(f"number {number} fails {failures} times")
        return token_of(job)

    @app.task(name="once", breaker=None, retry=_ONCE)
    async def once(job: JobContext, seconds: float, again: float = 0.0) -> str:
        """Has no attempt to lose; lasts `again` seconds when it is run again."""
        is_first = all(one.job != job.id for one in ledger.read())
        with noted(ledger, job):
            await clock.asleep(seconds if is_first else again)
        return token_of(job)

    @app.task(name="poison", breaker=None, retry=RetryPolicy(max_retries=POISON_RETRIES, initial_delay=0.05))
    def poison(job: JobContext) -> None:
        with noted(ledger, job):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.abort()

    @app.task(name="hang_async", breaker=None, retry=_ONCE, timeout=_LIMIT_S)
    async def hang_async(job: JobContext) -> None:
        with noted(ledger, job):
            while True:
                await clock.asleep(0.05)

    @app.task(name="hang_thread", breaker=None, retry=_ONCE, timeout=_LIMIT_S)
    def hang_thread(job: JobContext) -> None:
        with noted(ledger, job):
            while True:
                clock.sleep(0.05)

    @app.task(name="hang_process", breaker=None, retry=_ONCE, timeout=_LIMIT_S, isolate="process")
    def hang_process(job: JobContext) -> None:
        with noted(ledger, job):
            while True:
                clock.sleep(0.05)

    @app.task(name="apart", breaker=None, retry=_QUICK, isolate="process")
    def apart(job: JobContext, number: int, seconds: float = 0.0) -> str:
        with noted(ledger, job):
            clock.sleep(seconds)
            return token_of(job)

    @app.task(name="echo", breaker=None, retry=_QUICK)
    async def echo(value: Any) -> Any:
        return value

    @app.task(name="count", breaker=None, retry=_QUICK)
    async def count(value: int) -> int:
        return value

    return app


app = open_shop(os.environ.get("HOLDFAST_URL", "memory://"), Path(os.environ.get(EFFECTS, os.devnull)))
