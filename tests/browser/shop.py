"""A shop whose tasks fail on purpose, each in its own way; `holdfast serve` and `worker` run it as users would."""

from __future__ import annotations

import linecache
import os
from pathlib import Path
from typing import Any, Final, Literal

from holdfast import (
    App,
    CircuitBreaker,
    Discard,
    JobContext,
    Permanent,
    RateLimited,
    RetryPolicy,
    Transient,
)
from holdfast.alerts import BreakerOpen, DeadLetters, ErrorRate
from holdfast.clock import SystemClock
from tests.browser import hostile

SWITCHES: Final = "BROWSER_SWITCHES"
"""The environment variable with the folder where a file of a task's name heals it."""
RECOVERY_S: Final = 300.0
_CLOCK: Final = SystemClock()
_ONCE: Final = RetryPolicy(max_retries=0)
_THRICE: Final = RetryPolicy(max_retries=2, initial_delay=0.05, multiplier=2.0, jitter=False)

app = App()


def is_mended(name: str) -> bool:
    """Whether somebody has mended what a task of this name stumbles over."""
    return (Path(os.environ[SWITCHES]) / name).exists()


@app.task(name="charge", breaker=None, retry=_ONCE)
def charge(order_id: int, cents: int, currency: Literal["EUR", "USD"] = "EUR", password: str = "") -> str:
    """For nothing it is a mistake of the data, which an edit mends."""
    if cents <= 0:
        raise ValueError(f"order {order_id} has nothing to pay")
    del password
    return f"charged {cents} {currency}"


@app.task(name="ship", breaker=None, retry=_ONCE)
def ship(order_id: int, depot: str = "north") -> str:
    """The depot is closed until somebody opens it, so that a replay heals."""
    if not is_mended(depot):
        raise Permanent(f"the depot {depot} is closed")
    return f"order {order_id} is on its way"


@app.task(name="doomed", breaker=None, retry=_ONCE)
def doomed(order_id: int) -> None:
    """Never heals, so that a replay of it stops by itself."""
    raise Permanent(f"order {order_id} was refused for good")


@app.task(name="flaky", breaker=None, retry=_THRICE)
def flaky(order_id: int) -> None:
    """Fails in passing, three times."""
    del order_id
    json_of("{")


def json_of(text: str) -> None:
    """A frame of the library's below one of the shop's."""
    import json

    try:
        json.loads(text)
    except ValueError as error:
        raise Transient("the answer was cut off") from error


@app.task(name="limited", breaker=None, retry=_ONCE)
def limited() -> None:
    """The other side asks for less."""
    raise RateLimited("slow down", retry_after=30.0)


@app.task(
    name="call", retry=_ONCE, breaker=CircuitBreaker("payments", failure_threshold=2, recovery_timeout=RECOVERY_S)
)
def call() -> None:
    """Opens its breaker."""
    raise ConnectionResetError("payments hung up")


@app.task(name="slow", queue="slow", breaker=None, retry=_ONCE)
async def slow(job: JobContext) -> None:
    """Runs until it is cancelled."""
    await job.aprogress(0.4)
    await _CLOCK.asleep(3600.0)


@app.task(name="report", queue="reports", breaker=None)
def report(number: int) -> int:
    """Waits in its queue: what makes it is given a delay."""
    return number


@app.task(
    name=hostile.TASK,
    queue=hostile.QUEUE,
    retry=_ONCE,
    breaker=CircuitBreaker(hostile.BREAKER, failure_threshold=1, recovery_timeout=RECOVERY_S),
)
def attack(values: dict[str, Any], text: str = "") -> None:
    """Fails with a hostile error, out of a file with a hostile name."""
    del values, text
    source = f"def explode(problem):\n    {hostile.LINE}\n"
    linecache.cache[hostile.FILE] = (len(source), None, source.splitlines(keepends=True), hostile.FILE)
    names: dict[str, Any] = {"__name__": "<b>module</b>"}
    exec(compile(source, hostile.FILE, "exec"), names)
    kind = type(hostile.ERROR_CLASS, (Transient,), {"__module__": "shop"})
    names["explode"](kind(hostile.MESSAGE))


@app.task(name=hostile.LONG_NAME, breaker=None)
def echo(values: dict[str, Any]) -> list[Any]:
    """Completes with a hostile result."""
    return [hostile.RESULT, values]


@app.task(name="drop", breaker=None)
def drop() -> Discard:
    """Is dropped for a hostile reason."""
    return Discard(hostile.REASON)


app.schedule(report.bind(1), cron="0 3 * * *", name="nightly")
app.schedule(report.bind(2), cron="30 4 1 1 *", name=hostile.SCHEDULE)
app.alert(hostile.ALERT, when=DeadLetters(over=1))
app.alert("payments down", when=BreakerOpen(longer_than=0.0))
app.alert("errors", when=ErrorRate(over=1.0))
