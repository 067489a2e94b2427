"""The tasks of a simulated fleet; each notes what it does in the ledger of its world."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from holdfast import App, CircuitBreaker, JobContext, Permanent, RetryPolicy, Transient
from holdfast.runtime.schedules import Schedule
from tests.faults.checker import Limit
from tests.faults.ledger import Effect, What
from tests.faults.shop import token_of
from tests.simulation.loop import MACHINE

if TYPE_CHECKING:
    from tests.simulation.world import World

WORLD: Final[ContextVar[World]] = ContextVar("world")
RETRIES: Final = 4
POISON_RETRIES: Final = 2
TRIALS: Final = 2
RATE: Final = "3/2s"
LIMIT: Final = Limit("paced", 3, 0.9 * 2.0)
"""Runs begin up to a tenth of the window after their permit, as the docs say."""

_QUICK: Final = RetryPolicy(max_retries=RETRIES, initial_delay=0.1, max_delay=0.5, min_delay=0.0)


@contextmanager
def noted(job: JobContext) -> Iterator[None]:
    """A line at the start, and one at the end, whichever end it is; a machine that dies writes none."""
    world, machine = WORLD.get(), MACHINE.get()
    assert machine is not None

    def note(what: What) -> None:
        at = world.loop.time()
        world.effects.append(Effect(job.id, job.attempt, token_of(job), what, job.task, machine.number, 0, at))
        world.trace(f"{what} {job.id[-6:]}", "")

    note("start")
    try:
        yield
    except asyncio.CancelledError:
        note("stop")
        raise
    except Exception:
        note("fail")
        raise
    except BaseException:  # the world is over, and its coroutines are thrown away
        raise
    note("end")


def _open() -> App:
    app = App("memory://")

    @app.task(name="work", breaker=None, retry=_QUICK)
    async def work(job: JobContext, number: int, seconds: float, failures: int) -> str:
        with noted(job):
            await asyncio.sleep(seconds)
            if job.attempt <= failures:
                raise Transient(f"number {number} fails {failures} times")
        return token_of(job)

    @app.task(name="paced", breaker=None, retry=_QUICK, rate=RATE)
    async def paced(job: JobContext, number: int, seconds: float, failures: int) -> str:
        with noted(job):
            await asyncio.sleep(seconds)
            if job.attempt <= failures:
                raise Transient(f"number {number} fails {failures} times")
        return token_of(job)

    @app.task(name="doomed", breaker=None, retry=_QUICK)
    async def doomed(job: JobContext, number: int, seconds: float, is_hopeless: bool) -> str:
        with noted(job):
            await asyncio.sleep(seconds)
            if is_hopeless or not WORLD.get().is_fixed:
                raise Permanent(f"number {number} cannot be done yet")
        return token_of(job)

    @app.task(name="poison", breaker=None, retry=RetryPolicy(max_retries=POISON_RETRIES, initial_delay=0.1))
    async def poison(job: JobContext, number: int, seconds: float) -> None:
        with noted(job):
            await asyncio.sleep(seconds)
            WORLD.get().kill(MACHINE.get())
            await asyncio.get_running_loop().create_future()

    @app.task(name="steps", breaker=None, retry=_QUICK)
    async def steps(job: JobContext, number: int, seconds: float, failures: int) -> str:
        with noted(job):
            for n in range(3):
                await job.astep(f"step-{n}", _step, job.id, n, seconds / 3)
            if job.attempt <= failures:
                raise Transient(f"number {number} fails {failures} times")
        return token_of(job)

    other = CircuitBreaker(name="other", failure_threshold=3, recovery_timeout=1.0, half_open_max_calls=TRIALS)

    @app.task(name="call", breaker=other, retry=_QUICK)
    async def call(job: JobContext, number: int, seconds: float) -> str:
        WORLD.get().note_permit(job.id, token_of(job))
        with noted(job):
            await asyncio.sleep(seconds)
            if WORLD.get().is_other_down:
                raise Transient("the other side is down")
        return token_of(job)

    @app.task(name="tick", breaker=None, retry=_QUICK)
    async def tick(job: JobContext) -> str:
        with noted(job):
            await asyncio.sleep(0.01)
        return token_of(job)

    return app


async def _step(job: str, n: int, seconds: float) -> int:
    await asyncio.sleep(seconds)
    WORLD.get().steps.append((job, n))
    return n


APP: Final = _open()
MAX_RETRIES: Final = {name: task.spec.retry.max_retries for name, task in APP.tasks.items() if name != "poison"}
"""By task; what kills its workers is counted in another way."""
SCHEDULES: Final = (Schedule(name="every-second", task="tick", timing=1.0),)
