"""The loop form, where it differs from a function."""

from __future__ import annotations

import gc
import weakref

import pytest

from holdfast import Bulkhead, CircuitBreaker, CircuitBreakers, ConfigError, HoldfastError, Policy, RetryPolicy
from holdfast.testing import ManualClock


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
