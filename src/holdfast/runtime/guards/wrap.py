"""Guarded functions: the path without failures, unrolled so that it makes no object and takes no lock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from holdfast.policy.breaker import SUCCESS, Permit
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.guards.call import NOTHING, GuardedCall
from holdfast.runtime.guards.drivers import afall_back, arun, fall_back, run
from holdfast.runtime.guards.functions import refuse_coroutine
from holdfast.runtime.guards.switch import SWITCH
from holdfast.types import FailureContext

if TYPE_CHECKING:
    from holdfast.runtime.guards.policy import Policy

P = ParamSpec("P")
R = TypeVar("R")


def wrap_sync(policy: Policy, fn: Callable[P, R], name: str) -> Callable[P, R]:
    """A sync function under a policy."""
    if _needs_every_gate(policy):

        def guarded_fully(*args: P.args, **kwargs: P.kwargs) -> R:
            return run(policy.begin(name, args, kwargs), fn, args, kwargs)

        return guarded_fully

    breaker = cast(CircuitBreaker | None, policy.breaker)
    context = FailureContext(name, breaker.name if breaker else None)
    monotonic = policy.monotonic

    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        calm = None
        if breaker is not None:
            calm = breaker.calm
            if calm is None:
                return run(GuardedCall(policy, context, breaker), fn, args, kwargs)
        began_at = monotonic()
        try:
            value = fn(*args, **kwargs)
        except Exception as error:
            call = GuardedCall(policy, context, breaker, None if calm is None else Permit(calm.period), "", began_at)
            if not call.failed(error, monotonic()):
                if policy.fallback is NOTHING or not SWITCH.has_policies:
                    raise
                return cast(R, fall_back(policy.fallback, error))
        else:
            if type(value) is CoroutineType:
                refuse_coroutine(value)
            if calm is not None and breaker is not None and breaker.calm is not calm:
                breaker.settle(Permit(calm.period), SUCCESS)
            return value
        return run(call, fn, args, kwargs)

    return guarded


def wrap_async(policy: Policy, fn: Callable[P, Awaitable[R]], name: str) -> Callable[P, Awaitable[R]]:
    """An async function under a policy."""
    if _needs_every_gate(policy):

        async def guarded_fully(*args: P.args, **kwargs: P.kwargs) -> R:
            return await arun(policy.begin(name, args, kwargs), fn, args, kwargs)

        return guarded_fully

    breaker = cast(CircuitBreaker | None, policy.breaker)
    context = FailureContext(name, breaker.name if breaker else None)
    monotonic = policy.monotonic

    async def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        calm = None
        if breaker is not None:
            calm = breaker.calm
            if calm is None:
                return await arun(GuardedCall(policy, context, breaker), fn, args, kwargs)
        began_at = monotonic()
        try:
            value = await fn(*args, **kwargs)
        except Exception as error:
            call = GuardedCall(policy, context, breaker, None if calm is None else Permit(calm.period), "", began_at)
            if not call.failed(error, monotonic()):
                if policy.fallback is NOTHING or not SWITCH.has_policies:
                    raise
                return cast(R, await afall_back(policy.fallback, error))
        else:
            if calm is not None and breaker is not None and breaker.calm is not calm:
                breaker.settle(Permit(calm.period), SUCCESS)
            return value
        return await arun(call, fn, args, kwargs)

    return guarded


def _needs_every_gate(policy: Policy) -> bool:
    """Whether there is more to do than to watch for a failure. A breaker without failures needs only a look."""
    if policy.breaker is not None and not isinstance(policy.breaker, CircuitBreaker):
        return True
    parts = (policy.limiter, policy.bulkhead, policy.budget, policy.timeout)
    return any(part is not None for part in parts)
