"""Health checks: each with its own time limit, side by side, and never more than one run of each at a time."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Final, Literal

from msgspec import Struct

from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.ports import Clock
from holdfast.redact import error_in_words
from holdfast.runtime.aside import aside
from holdfast.runtime.guards.functions import is_async, refuse_unguardable

_LONGEST_NAME: Final = 100


class HealthCheck(Struct, frozen=True, kw_only=True):
    """A named look at something that an app needs."""

    name: str
    look: Callable[[], Any]
    """Sync or async. It fails by raising, or by returning False."""
    timeout_s: float
    is_critical: bool = False
    """Whether an app is unhealthy when this fails, whatever else is well."""


class CheckResult(Struct, frozen=True):
    """What came of one check."""

    status: Literal["ok", "failed", "timeout"]
    duration: float
    """Seconds it took, or has taken so far."""
    error: str | None = None
    """One line, without what looks like a secret."""


class Outcome(Struct, frozen=True):
    """The result of a check, and what it returned."""

    result: CheckResult
    value: Any = None


def checked_check(name: object, look: Any, *, timeout: object, critical: bool) -> HealthCheck:
    """A check, or ConfigError."""
    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise ConfigError(f"name={name!r}: must be printable text of 1 to {_LONGEST_NAME} characters")
    refuse_unguardable(look)
    timeout_s = bounds.length("timeout", timeout, above=0.0)
    return HealthCheck(name=name, look=look, timeout_s=timeout_s, is_critical=bool(critical))


class CheckRunner:
    """Runs checks. One that is asked for while it runs is not begun again: both callers get what comes of it.

    A sync check runs on a thread of its own, which nobody can stop: while it hangs it is reported as "timeout" at once,
    and no second thread is begun for it. An async one is cancelled at its limit, and not waited for.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._threads: dict[str, _ThreadRun] = {}
        self._tasks: dict[str, _TaskRun] = {}

    async def run(self, checks: Iterable[HealthCheck]) -> dict[str, Outcome]:
        """Run them side by side; the answer takes no longer than the longest of their limits."""
        checks = list(checks)
        outcomes = await asyncio.gather(*(self._one(check) for check in checks))
        return {check.name: outcome for check, outcome in zip(checks, outcomes, strict=True)}

    async def _one(self, check: HealthCheck) -> Outcome:
        try:
            run = self._begun_async(check) if is_async(check.look) else self._begun_sync(check)
        except RuntimeError as error:  # the machine gives no further thread
            return Outcome(CheckResult("failed", 0.0, error_in_words(error)))
        future = run.awaitable()
        future.add_done_callback(_seen)
        left_s = run.began_s + check.timeout_s - self._clock.monotonic()
        if not future.done() and left_s > 0.0:
            try:
                async with self._clock.timeout(left_s):
                    await asyncio.wait([future])  # which leaves it alone when the time is over
            except TimeoutError:
                pass  # what has come of it is looked at below
        took_s = self._clock.monotonic() - run.began_s
        if not future.done():
            run.give_up()
            return Outcome(CheckResult("timeout", took_s, f"no answer within {check.timeout_s:g} s"))
        return _outcome(future, took_s)

    def _begun_sync(self, check: HealthCheck) -> _ThreadRun:
        with self._lock:
            run = self._threads.get(check.name)
            if run is None or run.future.done() or run.pid != os.getpid():  # a fork takes no threads along
                run = self._threads[check.name] = _ThreadRun(check, self._clock.monotonic())
            return run

    def _begun_async(self, check: HealthCheck) -> _TaskRun:
        loop = asyncio.get_running_loop()
        with self._lock:
            run = self._tasks.get(check.name)
            if run is None or run.loop is not loop or run.task.done():
                run = self._tasks[check.name] = _TaskRun(check, loop, self._clock.monotonic())
            return run


class _ThreadRun:
    """One run of a sync check."""

    def __init__(self, check: HealthCheck, began_s: float) -> None:
        self.began_s = began_s
        self.pid = os.getpid()
        self.future: Future[Any] = aside(check.look, f"holdfast-check-{check.name}")

    def awaitable(self) -> asyncio.Future[Any]:
        return asyncio.wrap_future(self.future)

    def give_up(self) -> None:
        """Nothing can be done."""


class _TaskRun:
    """One run of an async check, on one event loop."""

    def __init__(self, check: HealthCheck, loop: asyncio.AbstractEventLoop, began_s: float) -> None:
        self.began_s = began_s
        self.loop = loop
        self.task: asyncio.Task[Any] = loop.create_task(_awaited(check.look), name=f"holdfast-check-{check.name}")

    def awaitable(self) -> asyncio.Future[Any]:
        return self.task

    def give_up(self) -> None:
        self.task.cancel()


class _Left(Exception):
    """A check called sys.exit(), or the like: out of a task that would end the event loop, and the server with it."""


async def _awaited(look: Callable[[], Any]) -> Any:
    try:
        return await look()
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise _Left from error


def _seen(future: asyncio.Future[Any]) -> None:
    """Nobody may be waiting any more when it fails, and asyncio is not to complain of that."""
    if not future.cancelled():
        future.exception()


def _outcome(future: asyncio.Future[Any], took_s: float) -> Outcome:
    if future.cancelled():
        return Outcome(CheckResult("failed", took_s, "it was cancelled"))
    if (error := future.exception()) is not None:
        why = error.__cause__ if isinstance(error, _Left) and error.__cause__ is not None else error
        return Outcome(CheckResult("failed", took_s, error_in_words(why)))
    value = future.result()
    if value is False:
        return Outcome(CheckResult("failed", took_s, "it returned False"))
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        return Outcome(CheckResult("failed", took_s, "it returned an awaitable: make the check `async def`"))
    return Outcome(CheckResult("ok", took_s), value)
