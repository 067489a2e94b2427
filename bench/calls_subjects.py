"""What is measured: a bare call, the loop people write by hand, Holdfast, and its peers, all set to do the same work.

Retries: five after the first attempt, on any Exception, with exponential waits and jitter where nothing fails, and
without any wait where something does. Breakers: open after five failures in a row, for 30 s. Limiters: a million starts
a second, so that nobody ever waits. No peer logs. Where a peer can be set to do less than Holdfast does (a time limit
over all attempts, say), it is.
"""

from __future__ import annotations

import functools
import itertools
import random
import sys
import time
from asyncio import sleep as asleep
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, ParamSpec, TypeVar

import aiolimiter
import backoff
import circuitbreaker
import limits
import limits.aio.storage
import limits.aio.strategies
import limits.storage
import limits.strategies
import purgatory
import pybreaker
import stamina
import stamina.instrumentation
import tenacity

from holdfast import CircuitBreaker, Policy, RateLimiter, RetryPolicy, retry

P = ParamSpec("P")
R = TypeVar("R")
Group = Literal["retry", "failure", "breaker", "limiter"]
Role = Literal["bare", "loop", "holdfast", "shown", "peer"]
"""Each bar speaks of what is `holdfast`; what is `shown` is Holdfast too, for information."""

ARGUMENT = 7
"""Every function is called with this one argument and returns it: the less the call does, the more its guard shows."""
STARTS_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class Subject:
    """One line of the table. A form that a peer does not have is None."""

    group: Group
    role: Role
    name: str
    sync_call: Callable[[Any], Any] | None
    async_call: Callable[[Any], Awaitable[Any]] | None
    argument: Any = ARGUMENT


def fetch(value: int) -> int:
    return value


async def afetch(value: int) -> int:
    return value


def flaky() -> Callable[[int], int]:
    """A function that fails at every other call, so that each guarded call sees one failure and one success."""
    fails = itertools.cycle((True, False))

    def fetch_or_fail(value: int) -> int:
        if next(fails):
            raise ConnectionError("down")
        return value

    return fetch_or_fail


def aflaky() -> Callable[[int], Awaitable[int]]:
    fails = itertools.cycle((True, False))

    async def afetch_or_fail(value: int) -> int:
        if next(fails):
            raise ConnectionError("down")
        return value

    return afetch_or_fail


# ---- by hand


def delay(attempt: int) -> float:
    return min(60.0, 3.0**attempt) * random.random()


def by_hand(fn: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        for attempt in range(6):
            try:
                return fn(*args, **kwargs)
            except Exception:
                if attempt == 5:
                    raise
                time.sleep(delay(attempt))
        raise AssertionError("the last attempt returns or raises")

    return wrapper


def aby_hand(fn: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    @functools.wraps(fn)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        for attempt in range(6):
            try:
                return await fn(*args, **kwargs)
            except Exception:
                if attempt == 5:
                    raise
                await asleep(delay(attempt))
        raise AssertionError("the last attempt returns or raises")

    return wrapper


def by_hand_at_once(fn: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        for attempt in range(6):
            try:
                return fn(*args, **kwargs)
            except Exception:
                if attempt == 5:
                    raise
        raise AssertionError("the last attempt returns or raises")

    return wrapper


def aby_hand_at_once(fn: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    @functools.wraps(fn)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        for attempt in range(6):
            try:
                return await fn(*args, **kwargs)
            except Exception:
                if attempt == 5:
                    raise
        raise AssertionError("the last attempt returns or raises")

    return wrapper


# ---- the groups


def subjects() -> list[Subject]:
    """All of them, made anew. Call it inside the event loop that will run them."""
    stamina.instrumentation.set_on_retry_hooks([])  # it would log each retry
    _take_sleep_away()
    return [*_without_failures(), *_with_one_failure(), *_breakers(), *_limiters()]


def _without_failures() -> list[Subject]:
    with_breaker = Policy(retry=RetryPolicy(), breaker=CircuitBreaker("bench"))
    with_tenacity = tenacity.retry(
        stop=tenacity.stop_after_attempt(6),
        wait=tenacity.wait_random_exponential(multiplier=1, max=60, exp_base=3),
        reraise=True,
    )
    with_stamina = stamina.retry(on=Exception, attempts=6, timeout=None, wait_initial=1.0, wait_max=60.0)
    with_backoff = backoff.on_exception(backoff.expo, Exception, max_tries=6, max_value=60, logger=None)
    return [
        Subject("retry", "bare", "bare call", fetch, afetch),
        Subject("retry", "loop", "hand-written loop", by_hand(fetch), aby_hand(afetch)),
        Subject("retry", "holdfast", "holdfast retry", retry(fetch), retry(afetch)),
        Subject("retry", "holdfast", "holdfast retry + breaker", with_breaker(fetch), with_breaker(afetch)),
        Subject("retry", "peer", "tenacity", with_tenacity(fetch), with_tenacity(afetch)),
        Subject("retry", "peer", "stamina", with_stamina(fetch), with_stamina(afetch)),
        Subject("retry", "peer", "backoff", with_backoff(fetch), with_backoff(afetch)),
    ]


def _with_one_failure() -> list[Subject]:
    at_once = RetryPolicy(strategy="immediate")
    with_retry = Policy(retry=at_once)
    with_breaker = Policy(retry=at_once, breaker=CircuitBreaker("bench"))
    stop = tenacity.stop_after_attempt(6)
    with_tenacity = tenacity.retry(stop=stop, wait=tenacity.wait_none(), sleep=_no_sleep, reraise=True)
    with_atenacity = tenacity.retry(stop=stop, wait=tenacity.wait_none(), sleep=_no_asleep, reraise=True)
    # These two sleep for zero seconds and cannot be told not to: a system call, or a turn of the event loop.
    with_stamina = stamina.retry(
        on=Exception, attempts=6, timeout=None, wait_initial=0.0, wait_max=0.0, wait_jitter=0.0
    )
    with_backoff = backoff.on_exception(backoff.constant, Exception, max_tries=6, interval=0, jitter=None, logger=None)
    return [
        Subject("failure", "loop", "hand-written loop", by_hand_at_once(flaky()), aby_hand_at_once(aflaky())),
        Subject("failure", "holdfast", "holdfast retry", with_retry(flaky()), with_retry(aflaky())),
        Subject("failure", "shown", "holdfast retry + breaker", with_breaker(flaky()), with_breaker(aflaky())),
        Subject("failure", "peer", "tenacity", with_tenacity(flaky()), with_atenacity(aflaky())),
        Subject("failure", "peer", "stamina", with_stamina(flaky()), with_stamina(aflaky())),
        Subject("failure", "peer", "backoff", with_backoff(flaky()), with_backoff(aflaky())),
    ]


def _breakers() -> list[Subject]:
    breaker = CircuitBreaker("bench")
    with_breaker = Policy(breaker=breaker)
    with_pybreaker = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=30)
    with_circuitbreaker = circuitbreaker.CircuitBreaker(failure_threshold=5, recovery_timeout=30, name="sync")
    with_acircuitbreaker = circuitbreaker.CircuitBreaker(failure_threshold=5, recovery_timeout=30, name="async")
    with_purgatory = purgatory.SyncCircuitBreakerFactory(default_threshold=5, default_ttl=30)
    with_apurgatory = purgatory.AsyncCircuitBreakerFactory(default_threshold=5, default_ttl=30)
    return [
        Subject("breaker", "holdfast", "holdfast breaker", with_breaker(fetch), with_breaker(afetch)),
        Subject(
            "breaker",
            "holdfast",
            "holdfast breaker.call",
            functools.partial(breaker.call, fetch),  # a partial costs some 30 ns of its own
            functools.partial(breaker.acall, afetch),
        ),
        # pybreaker's call_async is for Tornado's coroutines alone.
        Subject("breaker", "peer", "pybreaker", with_pybreaker(fetch), None),
        Subject("breaker", "peer", "circuitbreaker", with_circuitbreaker(fetch), with_acircuitbreaker(afetch)),
        Subject("breaker", "peer", "purgatory", with_purgatory("bench")(fetch), with_apurgatory("bench")(afetch)),
    ]


def _limiters() -> list[Subject]:
    """Taking one start, with nothing around it; the argument is what that limiter's own method takes."""
    limiter = RateLimiter(STARTS_PER_S, 1.0)
    rate = limits.RateLimitItemPerSecond(STARTS_PER_S)
    fixed = limits.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage())
    moving = limits.strategies.MovingWindowRateLimiter(limits.storage.MemoryStorage())
    afixed = limits.aio.strategies.FixedWindowRateLimiter(limits.aio.storage.MemoryStorage())
    amoving = limits.aio.strategies.MovingWindowRateLimiter(limits.aio.storage.MemoryStorage())
    leaky = aiolimiter.AsyncLimiter(STARTS_PER_S, 1.0)
    with_limiter = Policy(limiter=RateLimiter(STARTS_PER_S, 1.0))
    return [
        Subject("limiter", "holdfast", "holdfast acquire", limiter.acquire, limiter.aacquire, "bench"),
        Subject("limiter", "holdfast", "holdfast allow", limiter.allow, None, "bench"),
        Subject("limiter", "shown", "holdfast policy around a call", with_limiter(fetch), with_limiter(afetch)),
        Subject("limiter", "peer", "aiolimiter", None, leaky.acquire, 1),
        # The moving window keeps Holdfast's promise (no more than so many in any second); the fixed one keeps less.
        Subject("limiter", "peer", "limits, moving window", moving.hit, amoving.hit, rate),
        Subject("limiter", "peer", "limits, fixed window", fixed.hit, afixed.hit, rate),
    ]


def _take_sleep_away() -> None:
    """Let `time.sleep` do nothing inside the peers: sleep(0) is a system call that takes longer than all they do."""
    sleepless = SimpleNamespace(sleep=_no_sleep)
    for module in ("backoff._sync", "tenacity.nap"):
        vars(sys.modules[module])["time"] = sleepless


def _no_sleep(seconds: float) -> None:
    """Tenacity sleeps for zero seconds too, unless it is told how to sleep."""


async def _no_asleep(seconds: float) -> None:
    """The same for coroutines."""
