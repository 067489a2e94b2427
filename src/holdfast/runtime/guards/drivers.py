"""The two loops that drive a GuardedCall: one blocks, one awaits. What they decide is decided in call.py."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast.errors import TimeLimitExceeded
from holdfast.runtime.guards.call import NOTHING, GuardedCall
from holdfast.runtime.guards.functions import refuse_coroutine
from holdfast.runtime.guards.switch import SWITCH
from holdfast.runtime.guards.time_limit import run_within

if TYPE_CHECKING:
    from holdfast.types import RetryScheduled

R = TypeVar("R")

_logger = logging.getLogger("holdfast.policy")


def run(call: GuardedCall, fn: Callable[..., R], args: Any, kwargs: Any) -> R:
    """Attempt after attempt, until one succeeds or the policy gives up; then the fallback, if there is one."""
    if not SWITCH.has_policies:
        return fn(*args, **kwargs)
    policy = call.policy
    try:
        while True:
            if call.attempts and (call.delay_s > 0 or policy.on_retry):
                pause(call)
            if policy.has_gates:
                enter(call)
            try:
                value = fn(*args, **kwargs) if policy.is_direct else _run_held(call, fn, args, kwargs)
            except Exception as error:
                if not call.failed(error, policy.monotonic()):
                    raise
            except BaseException:
                call.dropped()
                raise
            else:
                if type(value) is CoroutineType:
                    call.dropped()
                elif policy.counts_successes:
                    call.succeeded(policy.monotonic())
                break
    except Exception as error:
        if policy.fallback is NOTHING:
            raise
        return cast(R, fall_back(policy.fallback, error))
    finally:
        call.failure = None  # or else its error and the frames that it came through would keep each other alive
        if call.holds_place or call.permit is not None:
            call.abandon()
    if type(value) is CoroutineType:
        refuse_coroutine(value)
    return value


async def arun(call: GuardedCall, fn: Callable[..., Awaitable[R]], args: Any, kwargs: Any) -> R:
    """The same for an async function."""
    if not SWITCH.has_policies:
        return await fn(*args, **kwargs)
    policy = call.policy
    try:
        while True:
            if call.attempts and (call.delay_s > 0 or policy.on_retry):
                await apause(call)
            if policy.has_gates:
                await aenter(call)
            try:
                value = await (fn(*args, **kwargs) if policy.is_direct else _arun_held(call, fn, args, kwargs))
            except Exception as error:
                if not call.failed(error, policy.monotonic()):
                    raise
            except BaseException:
                call.dropped()
                raise
            else:
                if policy.counts_successes:
                    call.succeeded(policy.monotonic())
                return value
    except Exception as error:
        if policy.fallback is NOTHING:
            raise
        return cast(R, await afall_back(policy.fallback, error))
    finally:
        call.failure = None
        if call.holds_place or call.permit is not None:
            call.abandon()


def _run_held(call: GuardedCall, fn: Callable[..., R], args: Any, kwargs: Any) -> R:
    """One attempt within its time limit, giving the bulkhead's place back when the function has really ended."""
    if call.policy.timeout is not None:
        return run_within(call.policy.timeout, call.policy.clock, call.hand_over(), fn, args, kwargs)
    try:
        return fn(*args, **kwargs)
    finally:
        call.leave()


async def _arun_held(call: GuardedCall, fn: Callable[..., Awaitable[R]], args: Any, kwargs: Any) -> R:
    """The same for an async function, which can be cancelled."""
    limit_s = call.policy.timeout
    timer = call.policy.clock.timeout(limit_s)
    try:
        async with timer:
            return await fn(*args, **kwargs)
    except TimeoutError as error:
        if limit_s is not None and timer.expired():
            raise TimeLimitExceeded(limit_s) from error
        raise  # the function's own
    finally:
        call.leave()


def enter(call: GuardedCall) -> None:
    """Pass every gate before an attempt. Refused is raised only before the first; later, the function's last error is.

    An open breaker refuses before anything is waited for, and is asked for its permit last, so that no trial is held
    while waiting; the limit is asked after the bulkhead, because a start is counted from when the function starts.
    """
    policy = call.policy
    try:
        if call.breaker is not None:
            call.breaker.check()
        if policy.bulkhead is not None:
            policy.bulkhead.acquire()
            call.holds_place = True
        if policy.limiter is not None and SWITCH.has_waits:
            policy.limiter.acquire(call.key)
        call.admit()
    except BaseException as error:
        last = call.turned_away(error)
        if last is None:
            raise
    else:
        return
    _raise(last)


async def aenter(call: GuardedCall) -> None:
    """The same without blocking the event loop."""
    policy = call.policy
    try:
        if call.breaker is not None:
            call.breaker.check()
        if policy.bulkhead is not None:
            await policy.bulkhead.aacquire()
            call.holds_place = True
        if policy.limiter is not None and SWITCH.has_waits:
            await policy.limiter.aacquire(call.key)
        call.admit()
    except BaseException as error:
        last = call.turned_away(error)
        if last is None:
            raise
    else:
        return
    _raise(last)


def pause(call: GuardedCall) -> None:
    """Tell the log and the hooks, then wait for the next attempt."""
    policy = call.policy
    _log_retry(call)
    for hook in policy.on_retry:
        try:
            hook(call.scheduled)
        except Exception:
            _log_hook(hook)
    _after_hooks(call)
    if call.delay_s > 0 and SWITCH.has_waits:
        policy.clock.sleep(call.delay_s)
    call.began_at = policy.monotonic()


async def apause(call: GuardedCall) -> None:
    """The same without blocking the event loop; hooks may be async."""
    policy = call.policy
    _log_retry(call)
    for hook in policy.on_retry:
        try:
            answer = hook(call.scheduled)
            if isawaitable(answer):
                await answer
        except Exception:
            _log_hook(hook)
    _after_hooks(call)
    if call.delay_s > 0 and SWITCH.has_waits:
        await policy.clock.asleep(call.delay_s)
    call.began_at = policy.monotonic()


def _after_hooks(call: GuardedCall) -> None:
    """The time that hooks take counts towards the total, since the last attempt ended when `began_at` was set."""
    call.elapsed_s += call.policy.monotonic() - call.began_at
    last = call.out_of_time()
    if last is not None:
        _raise(last)


def _raise(error: Exception) -> None:
    """Raise an error of an earlier attempt, outside any handler, so that it gets no new context."""
    try:
        raise error
    finally:
        del error  # or else it and this frame would keep each other alive


def fall_back(fallback: Any, error: Exception) -> Any:
    """The value to return instead of the error."""
    return fallback(error) if callable(fallback) else fallback


async def afall_back(fallback: Any, error: Exception) -> Any:
    """The same, where the fallback may be async."""
    value = fall_back(fallback, error)
    return await value if isawaitable(value) else value


def _log_retry(call: GuardedCall) -> None:
    if _logger.isEnabledFor(logging.INFO):
        event = call.scheduled
        what = f"{event.failure.type.name} {event.failure.error_name}: {event.failure.message}"
        _logger.info("%s: attempt %d failed (%s); again in %.3g s", event.task, event.attempt, what, event.delay_s)


def _log_hook(hook: Callable[[RetryScheduled], object]) -> None:
    _logger.exception("the on_retry hook %r raised; the call goes on", hook)
