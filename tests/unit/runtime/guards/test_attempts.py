"""The loop form, where it differs from a function."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

import pytest

from holdfast import (
    Bulkhead,
    CircuitBreaker,
    CircuitBreakers,
    ConfigError,
    HoldfastError,
    Policy,
    RetryPolicy,
    RetryScheduled,
)
from holdfast.testing import ManualClock, policies_off

pytestmark = pytest.mark.anyio


def test_attempts_are_numbered_from_one_and_the_loop_ends_with_the_first_success(clock: ManualClock) -> None:
    numbers = []
    for attempt in Policy(retry=RetryPolicy(jitter=False), clock=clock).attempts():
        with attempt:
            numbers.append(attempt.number)
            if attempt.number < 3:
                raise ConnectionError
    assert numbers == [1, 2, 3]
    assert clock.sleeps == [1.0, 3.0]


def test_a_second_loop_is_a_second_block(clock: ManualClock) -> None:
    attempts = Policy(retry=RetryPolicy(max_retries=1, jitter=False), clock=clock).attempts()
    numbers = []
    for _ in range(2):
        for attempt in attempts:
            with attempt:
                numbers.append(attempt.number)
                if attempt.number == 1:
                    raise ConnectionError
    assert numbers == [1, 2, 1, 2]


def test_a_break_inside_the_block_is_a_success(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=2, clock=clock)
    breaker.record_failure()
    for attempt in Policy(breaker=breaker, clock=clock).attempts():
        with attempt:
            break
    breaker.record_failure()
    assert breaker.state == "closed"


def test_an_attempt_that_was_not_used_is_an_error_rather_than_an_endless_loop(clock: ManualClock) -> None:
    with pytest.raises(HoldfastError, match="write `with attempt:` around the guarded code"):
        for _ in Policy(retry=RetryPolicy(), clock=clock).attempts():
            pass


def test_an_error_before_the_block_holds_no_place_and_no_trial(clock: ManualClock) -> None:
    bulkhead = Bulkhead(1)
    policy = Policy(bulkhead=bulkhead, clock=clock)
    with pytest.raises(RuntimeError, match="before the block"):
        for _ in policy.attempts():
            raise RuntimeError("before the block")
    assert bulkhead.in_use == 0


async def test_for_goes_with_with_and_async_for_with_async_with(clock: ManualClock) -> None:
    policy = Policy(clock=clock)
    with pytest.raises(ConfigError, match="in an `async for`, write `async with attempt:`"):
        async for attempt in policy.attempts():
            with attempt:
                raise AssertionError
    with pytest.raises(ConfigError, match="in a `for`, write `with attempt:`"):
        for attempt in policy.attempts():
            async with attempt:
                raise AssertionError


def test_a_loop_that_ends_leaves_nothing_that_keeps_its_errors_alive(clock: ManualClock) -> None:
    class Held(ConnectionError):
        pass

    dead: list[weakref.ref[BaseException]] = []

    def block() -> None:
        for attempt in Policy(retry=RetryPolicy(max_retries=1), clock=clock).attempts():
            with attempt:
                error = Held("refused")
                dead.append(weakref.ref(error))
                try:
                    raise error
                finally:
                    del error

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(Held):
            block()
        assert dead[0]() is None
    finally:
        gc.enable()


async def test_a_cancelled_block_is_not_a_success_and_its_trial_goes_back(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=1, clock=clock)
    breaker.record_failure()
    clock.advance(30.0)
    began = asyncio.Event()

    async def block() -> None:
        async for attempt in Policy(breaker=breaker, clock=clock).attempts():
            async with attempt:
                began.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await began.wait()
    assert not breaker.can_execute()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert breaker.state == "half_open"
    assert breaker.can_execute()


def test_async_hooks_are_refused_in_a_for_loop(clock: ManualClock) -> None:
    async def hook(event: RetryScheduled) -> None:
        raise AssertionError

    with pytest.raises(ConfigError, match="is async, and cannot be awaited in a `for` loop"):
        list(Policy(retry=RetryPolicy(), on_retry=hook, clock=clock).attempts())


async def test_async_hooks_are_awaited_in_an_async_for_loop(clock: ManualClock) -> None:
    told: list[int] = []

    async def hook(event: RetryScheduled) -> None:
        told.append(event.attempt)

    async for attempt in Policy(retry=RetryPolicy(), on_retry=hook, clock=clock).attempts():
        async with attempt:
            if attempt.number == 1:
                raise ConnectionError
    assert told == [1]


@pytest.mark.parametrize("error", [None, ConnectionError])
def test_policies_that_are_switched_off_inside_a_block_leak_no_place(
    error: type[Exception] | None, clock: ManualClock
) -> None:
    bulkhead = Bulkhead(2)
    with bulkhead, contextlib.ExitStack() as switched, contextlib.suppress(ConnectionError):
        for attempt in Policy(retry=RetryPolicy(), bulkhead=bulkhead, clock=clock).attempts():
            with attempt:
                assert bulkhead.in_use == 2
                switched.enter_context(policies_off())
                if error is not None:
                    raise error
    assert bulkhead.in_use == 0


@pytest.mark.parametrize("error", [None, ConnectionError])
async def test_policies_that_are_switched_on_inside_a_block_give_no_place_back_that_was_not_taken(
    error: type[Exception] | None, clock: ManualClock
) -> None:
    bulkhead = Bulkhead(2)
    policy = Policy(bulkhead=bulkhead, clock=clock)
    with bulkhead:
        switched = contextlib.ExitStack()
        switched.enter_context(policies_off())
        with contextlib.suppress(ConnectionError):
            for attempt in policy.attempts():
                with attempt:
                    switched.close()
                    if error is not None:
                        raise error
        switched.enter_context(policies_off())
        with contextlib.suppress(ConnectionError):
            async for attempt in policy.attempts():
                async with attempt:
                    switched.close()
                    if error is not None:
                        raise error
        assert bulkhead.in_use == 1
    assert bulkhead.in_use == 0


def test_a_loop_has_no_fallback(clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match="a loop has no value to fall back to"):
        Policy(fallback=0, clock=clock).attempts()


def test_a_loop_has_its_own_name_or_key_among_the_breakers(clock: ManualClock) -> None:
    breakers = CircuitBreakers(clock=clock)
    policy = Policy(breaker=breakers, clock=clock)
    for attempts in (policy.attempts(name="export"), policy.attempts(key="ann")):
        for attempt in attempts:
            with attempt:
                pass
    assert sorted(breaker.name for breaker in breakers) == ["ann", "export"]
