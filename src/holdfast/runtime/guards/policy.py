"""Policy: everything that guards a call, in one object."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from holdfast.clock import SystemClock, chance
from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.policy.classify import Classifier
from holdfast.policy.classify import classify as classify_error
from holdfast.policy.limiter import Rate
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Clock
from holdfast.runtime.guards.attempts import Attempts
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.guards.breakers import CircuitBreakers
from holdfast.runtime.guards.budget import RetryBudget
from holdfast.runtime.guards.bulkhead import Bulkhead
from holdfast.runtime.guards.call import NOTHING, GuardedCall
from holdfast.runtime.guards.drivers import arun, run
from holdfast.runtime.guards.functions import is_async, name_of, refuse_unguardable
from holdfast.runtime.guards.limiter import RateLimiter
from holdfast.runtime.guards.wrap import wrap_async, wrap_sync
from holdfast.types import Failure, FailureContext, RetryScheduled, Rng

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])
Classify = Callable[[BaseException, FailureContext | None], Failure]
RetryHook = Callable[[RetryScheduled], object]

_logger = logging.getLogger("holdfast.policy")


class Policy:
    """Guards calls: decorate a function with it, pass one to `call` or `acall`, or loop over `attempts`.

    From the outside in: fallback, retry (with its budget), breaker, bulkhead, limiter, time limit, the function. Every
    part is optional, and without any the function is simply called.

    retry: how often and when a failed call is tried again. Without it there are no retries.
    breaker: a CircuitBreaker, or CircuitBreakers for one per key.
    limiter: a RateLimiter, or a rate such as "100/minute". A call waits for its start, within the limiter's max_wait.
    bulkhead: a bound on the calls in flight.
    budget: a bound on retries as a share of the successes, shared by all policies that hold it.
    timeout: seconds one attempt may take; with retry.attempt_timeout too, the shorter one holds. An async function is
        cancelled. A sync function cannot be: it runs on a thread of its own, the caller gets TimeLimitExceeded on
        time, the thread goes on to its own end (holding its place in the bulkhead), and the call is not tried again.
    fallback: what to return instead of raising: a value, or a function of the error (which may be async for `acall`).
    classify: a Classifier, or any function from (error, context) to a Failure.
    key: a function of the call's arguments to the key of breaker and limiter (a user, a tenant, a domain). Without it
        the limiter has one key, and CircuitBreakers has one per function.
    on_retry: one hook or several, told of each RetryScheduled before the wait; one that raises is logged and ignored.

    When a call gives up, the function's own last error is raised, with a note of what was tried. A Refused is raised
    only when the function was not called at all. CancelledError, KeyboardInterrupt and SystemExit pass through
    untouched: never counted, classified or retried.
    """

    def __init__(
        self,
        *,
        retry: RetryPolicy | None = None,
        breaker: CircuitBreaker | CircuitBreakers | None = None,
        limiter: RateLimiter | str | None = None,
        bulkhead: Bulkhead | None = None,
        budget: RetryBudget | None = None,
        timeout: float | None = None,
        fallback: Any = NOTHING,
        classify: Classify = classify_error,
        key: Callable[..., str] | None = None,
        on_retry: RetryHook | Iterable[RetryHook] | None = None,
        clock: Clock | None = None,
        rng: Rng = chance,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.monotonic = self.clock.monotonic
        self.retry = _checked("retry", retry, RetryPolicy)
        self.breaker = _checked("breaker", breaker, CircuitBreaker, CircuitBreakers)
        if isinstance(limiter, str):
            limiter = RateLimiter.of(Rate.parse(limiter, "limiter"), clock=self.clock)
        self.limiter = _checked("limiter", limiter, RateLimiter, or_else=" or a rate such as '100/minute'")
        self.bulkhead = _checked("bulkhead", bulkhead, Bulkhead)
        self.budget = _checked("budget", budget, RetryBudget)
        own = None if timeout is None else bounds.length("timeout", timeout, above=0.0)
        limits = [limit for limit in (own, retry.attempt_timeout if retry else None) if limit is not None]
        self.timeout = min(limits, default=None)
        self.fallback = fallback
        self.classify = self._classifier(classify, is_machine_time=clock is None)
        self.key = None if key is None else _function("key", key)
        hooks = on_retry if isinstance(on_retry, Iterable) else () if on_retry is None else (on_retry,)
        self.on_retry = tuple(_function("on_retry", hook) for hook in hooks)
        self.rng = _function("rng", rng)
        self._async_part = next((part for part in (*self.on_retry, fallback) if is_async(part)), None)
        self.is_direct = self.bulkhead is None and self.timeout is None
        self.holds_back = any(part is not None for part in (self.breaker, self.budget, self.timeout))
        self.counts_successes = self.breaker is not None or self.budget is not None
        self.has_gates = any(part is not None for part in (self.breaker, self.bulkhead, self.limiter))

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Guard a function, sync or async; the wrapped function keeps its signature."""
        if isinstance(fn, type):
            raise ConfigError(f"{fn!r}: a policy guards functions, not classes; put it on the methods that may fail")
        refuse_unguardable(fn)
        if is_async(fn):
            guarded = wrap_async(self, cast(Callable[P, Awaitable[Any]], fn), name_of(fn))
            return cast(Callable[P, R], functools.wraps(fn)(guarded))
        self.refuse_async_parts(fn)
        return functools.wraps(fn)(wrap_sync(self, fn, name_of(fn)))

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a sync function under this policy."""
        refuse_unguardable(fn)
        self.refuse_async_parts(fn)
        return run(self.begin(name_of(fn), args, kwargs), fn, args, kwargs)

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await an async function under this policy."""
        refuse_unguardable(fn)
        return await arun(self.begin(name_of(fn), args, kwargs), fn, args, kwargs)

    def attempts(self, *, name: str = "block", key: str | None = None) -> Attempts:
        """The loop form, for code that is not a function.

        for attempt in policy.attempts():        # or: async for
            with attempt:                        # or: async with
                ...
        """
        if self.fallback is not NOTHING:
            raise ConfigError("fallback: a loop has no value to fall back to; guard a function instead")
        return Attempts(lambda: self._begin_for(name, key))

    def begin(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> GuardedCall:
        """A call of the function with this name and these arguments, not yet tried."""
        return self._begin_for(name, None if self.key is None else self.key(*args, **kwargs))

    def _classifier(self, classify: Classify, *, is_machine_time: bool) -> Classify:
        """The function that judges errors here, on this policy's clock."""
        built_in: Classify = (
            classify_error if is_machine_time else functools.partial(classify_error, now=self.clock.now)
        )
        if classify is classify_error:
            return built_in
        if isinstance(classify, Classifier):
            classify = classify.timed_by(self.clock.now)
        return careful(_function("classify", classify), built_in)

    def __repr__(self) -> str:
        parts = ("retry", "breaker", "limiter", "bulkhead", "budget", "timeout")
        given = (f"{name}={getattr(self, name)!r}" for name in parts if getattr(self, name) is not None)
        return f"Policy({', '.join(given)})"

    def _begin_for(self, name: str, key: str | None) -> GuardedCall:
        breaker = self.breaker
        if isinstance(breaker, CircuitBreakers):
            breaker = breaker[name if key is None else key]
        context = FailureContext(name, breaker.name if breaker else None)
        return GuardedCall(self, context, breaker, key="" if key is None else key, began_at=self.monotonic())

    def refuse_async_parts(self, fn: Callable[..., Any] | None = None) -> None:
        """Refuse hooks and a fallback that nobody could await in this sync function, or in a `for` loop."""
        if self._async_part is not None:
            where = "a `for` loop" if fn is None else f"the sync function {name_of(fn)}"
            raise ConfigError(f"{self._async_part!r} is async, and cannot be awaited in {where}")


def _checked(field: str, value: T, *classes: type[Any], or_else: str = "") -> T:
    if value is None or isinstance(value, classes):
        return value
    raise ConfigError(f"{field}={value!r}: must be a {' or a '.join(one.__name__ for one in classes)}{or_else}")


def careful(classify: Classify, built_in: Classify) -> Classify:
    """The user's own classify; where it fails, the built-in one, since the call's error must not be lost over it."""

    def classify_carefully(error: BaseException, context: FailureContext | None) -> Failure:
        try:
            failure: object = classify(error, context)
            if isinstance(failure, Failure):
                if failure.error is error:
                    return failure
                return Failure(failure.type, error, failure.severity, failure.retry_after)  # about another, or none
            _logger.error("classify %r returned %r, which is no Failure; it is passed over", classify, failure)
        except Exception:
            _logger.exception("classify %r raised; it is passed over", classify)
        return built_in(error, context)

    return classify_carefully


def _function(field: str, value: C) -> C:
    if callable(value):
        return value
    raise ConfigError(f"{field}={value!r}: must be a function")
