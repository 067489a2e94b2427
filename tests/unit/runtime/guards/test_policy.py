"""A policy around a function: what is retried, what is raised, what is never touched."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import math
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from holdfast import (
    Bulkhead,
    BulkheadFull,
    CircuitBreaker,
    CircuitBreakers,
    CircuitOpenError,
    Classifier,
    ConfigError,
    Failure,
    FailureContext,
    FailureType,
    Permanent,
    Policy,
    RateLimiter,
    RateLimitExceeded,
    RetryBudget,
    RetryPolicy,
    RetryScheduled,
    Severity,
    Transient,
    classify,
)
from holdfast.runtime.guards import drivers
from holdfast.testing import ManualClock, no_wait, policies_off

pytestmark = pytest.mark.anyio


class Flaky:
    """Fails so many times, then returns its argument."""

    def __init__(self, failures: int, error: Callable[[], BaseException] = lambda: ConnectionError("refused")) -> None:
        self.failures = failures
        self.error = error
        self.calls = 0

    def __call__(self, value: int = 1) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error()
        return value

    async def acall(self, value: int = 1) -> int:
        return self(value)


Guarded = Callable[[int], Awaitable[int]]


def drive_sync(policy: Policy, flaky: Flaky) -> Guarded:
    @policy
    def fn(value: int) -> int:
        return flaky(value)

    async def run(value: int) -> int:
        return fn(value)

    return run


def drive_async(policy: Policy, flaky: Flaky) -> Guarded:
    @policy
    async def fn(value: int) -> int:
        return flaky(value)

    return fn


def drive_call(policy: Policy, flaky: Flaky) -> Guarded:
    async def run(value: int) -> int:
        return policy.call(flaky, value)

    return run


def drive_acall(policy: Policy, flaky: Flaky) -> Guarded:
    async def run(value: int) -> int:
        return await policy.acall(flaky.acall, value)

    return run


def drive_loop(policy: Policy, flaky: Flaky) -> Guarded:
    async def run(value: int) -> int:
        for attempt in policy.attempts():
            with attempt:
                return flaky(value)
        raise AssertionError("a loop that neither succeeds nor raises")

    return run


def drive_aloop(policy: Policy, flaky: Flaky) -> Guarded:
    async def run(value: int) -> int:
        async for attempt in policy.attempts():
            async with attempt:
                return flaky(value)
        raise AssertionError("a loop that neither succeeds nor raises")

    return run


Drive = Callable[[Policy, Flaky], Guarded]
FUNCTIONS = [drive_sync, drive_async, drive_call, drive_acall]
every_form = pytest.mark.parametrize("drive", [*FUNCTIONS, drive_loop, drive_aloop])
every_function_form = pytest.mark.parametrize("drive", FUNCTIONS)

STEADY = RetryPolicy(jitter=False)


@every_form
async def test_a_call_that_heals_is_retried_after_exact_waits(drive: Drive, clock: ManualClock) -> None:
    flaky = Flaky(3)
    assert await drive(Policy(retry=STEADY, clock=clock), flaky)(7) == 7
    assert clock.sleeps == [1.0, 3.0, 9.0]
    assert flaky.calls == 4


@every_form
async def test_when_retries_are_used_up_the_last_error_is_raised_with_a_note(drive: Drive, clock: ManualClock) -> None:
    flaky = Flaky(99)
    policy = Policy(retry=RetryPolicy(max_retries=2, jitter=False), clock=clock)
    with pytest.raises(ConnectionError, match="refused") as caught:
        await drive(policy, flaky)(1)
    assert flaky.calls == 3
    assert caught.value.__notes__ == ["holdfast: gave up after 3 attempts in 4 s: retries used up"]


@every_form
async def test_what_cannot_heal_is_raised_at_once_and_without_a_note(drive: Drive, clock: ManualClock) -> None:
    flaky = Flaky(99, lambda: Permanent("no such order"))
    with pytest.raises(Permanent) as caught:
        await drive(Policy(retry=STEADY, clock=clock), flaky)(1)
    assert flaky.calls == 1
    assert not hasattr(caught.value, "__notes__")
    assert clock.sleeps == []


@every_form
async def test_no_wait_is_begun_that_would_end_after_the_total_time(drive: Drive, clock: ManualClock) -> None:
    flaky = Flaky(99)
    with pytest.raises(ConnectionError) as caught:
        await drive(Policy(retry=RetryPolicy(jitter=False, total_timeout=13.0), clock=clock), flaky)(1)
    assert clock.sleeps == [1.0, 3.0, 9.0]
    assert "total time over" in caught.value.__notes__[0]


@every_form
async def test_run_time_counts_towards_the_total_time(drive: Drive, clock: ManualClock) -> None:
    def slow_error() -> BaseException:
        clock.advance(4.0)
        return ConnectionError("slow")

    flaky = Flaky(99, slow_error)
    with pytest.raises(ConnectionError):
        await drive(Policy(retry=RetryPolicy(jitter=False, total_timeout=24.0), clock=clock), flaky)(1)
    assert clock.sleeps == [1.0, 3.0]  # the third failure is at 4 + 1 + 4 + 3 + 4 = 16, and a wait of 9 would end at 25
    assert flaky.calls == 3


@every_form
async def test_time_spent_waiting_for_a_limit_does_not_count_towards_the_total_time(
    drive: Drive, clock: ManualClock
) -> None:
    limiter = RateLimiter(1, 100.0, clock=clock)
    policy = Policy(
        retry=RetryPolicy(max_retries=2, strategy="immediate", total_timeout=1.0), limiter=limiter, clock=clock
    )
    flaky = Flaky(2)
    assert await drive(policy, flaky)(5) == 5
    assert clock.sleeps == [100.0, 100.0]


@every_form
async def test_what_the_other_side_asked_for_is_waited_for(drive: Drive, clock: ManualClock) -> None:
    flaky = Flaky(1, lambda: Transient("busy", retry_after=17.0))
    await drive(Policy(retry=STEADY, clock=clock), flaky)(1)
    assert clock.sleeps == [17.0]


@every_form
async def test_an_open_breaker_refuses_without_calling(drive: Drive, clock: ManualClock) -> None:
    flaky = Flaky(2)
    policy = Policy(breaker=CircuitBreaker("ledger", failure_threshold=2, clock=clock), clock=clock)
    guarded = drive(policy, flaky)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await guarded(1)
    clock.advance(10.0)
    with pytest.raises(CircuitOpenError) as caught:
        await guarded(1)
    assert flaky.calls == 2
    assert caught.value.retry_after == 20.0
    assert caught.value.name == "ledger"
    assert caught.value.cause == "ConnectionError: refused"
    clock.advance(20.0)
    assert await guarded(4) == 4


@every_form
async def test_a_breaker_that_opens_between_attempts_ends_the_call_with_the_last_real_error(
    drive: Drive, clock: ManualClock
) -> None:
    flaky = Flaky(99)
    policy = Policy(retry=STEADY, breaker=CircuitBreaker("ledger", failure_threshold=2, clock=clock), clock=clock)
    with pytest.raises(ConnectionError) as caught:
        await drive(policy, flaky)(1)
    assert flaky.calls == 2
    assert clock.sleeps == [1.0]  # and no wait that would be for nothing
    assert caught.value.__notes__ == ["holdfast: gave up after 2 attempts in 1 s: breaker open"]


@every_form
async def test_a_breaker_that_others_open_during_a_wait_ends_the_call_with_the_last_real_error(
    drive: Drive, clock: ManualClock
) -> None:
    flaky = Flaky(99)
    breaker = CircuitBreaker("ledger", clock=clock)
    policy = Policy(retry=STEADY, breaker=breaker, on_retry=lambda event: breaker.force_open(), clock=clock)
    with pytest.raises(ConnectionError) as caught:
        await drive(policy, flaky)(1)
    assert flaky.calls == 1
    assert caught.value.__notes__ == [
        "holdfast: gave up after 1 attempt in 0 s: circuit ledger is open, until it is reset by hand"
    ]
    assert caught.value.__context__ is None


@every_form
async def test_a_wait_that_ends_when_trials_begin_is_waited(drive: Drive, clock: ManualClock) -> None:
    flaky = Flaky(1)
    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=1, recovery_timeout=1.0, clock=clock)
    assert await drive(Policy(retry=STEADY, breaker=breaker, clock=clock), flaky)(3) == 3
    assert breaker.state == "closed"


@every_form
async def test_a_success_resets_the_breakers_count(drive: Drive, clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=2, clock=clock)
    policy = Policy(retry=RetryPolicy(max_retries=1, strategy="immediate"), breaker=breaker, clock=clock)
    for _ in range(3):
        assert await drive(policy, Flaky(1))(1) == 1
    assert breaker.state == "closed"


@every_form
async def test_a_full_bulkhead_refuses_and_its_place_is_given_back_after_each_attempt(
    drive: Drive, clock: ManualClock
) -> None:
    bulkhead = Bulkhead(1)
    seen: list[int] = []

    def error() -> BaseException:
        seen.append(bulkhead.in_use)
        return ConnectionError("refused")

    policy = Policy(retry=STEADY, bulkhead=bulkhead, clock=clock)
    guarded = drive(policy, Flaky(2, error))
    await guarded(1)
    assert seen == [1, 1]
    assert bulkhead.in_use == 0
    with bulkhead, pytest.raises(BulkheadFull):
        await guarded(1)
    assert bulkhead.in_use == 0


@every_form
async def test_a_call_waits_for_its_rate_limit_or_is_refused(drive: Drive, clock: ManualClock) -> None:
    limiter = RateLimiter(2, 60.0, max_wait=100.0, clock=clock)
    guarded = drive(Policy(limiter=limiter, clock=clock), Flaky(0))
    for _ in range(3):
        await guarded(1)
    assert clock.sleeps == [60.0]
    limiter.max_wait = 1.0
    await guarded(1)
    with pytest.raises(RateLimitExceeded) as caught:
        await guarded(1)
    assert caught.value.retry_after == 60.0


@every_form
async def test_a_refusal_by_the_limiter_gives_the_bulkheads_place_back(drive: Drive, clock: ManualClock) -> None:
    bulkhead = Bulkhead(1)
    limiter = RateLimiter(1, 60.0, max_wait=0.0, clock=clock)
    guarded = drive(Policy(limiter=limiter, bulkhead=bulkhead, clock=clock), Flaky(0))
    await guarded(1)
    with pytest.raises(RateLimitExceeded):
        await guarded(1)
    assert bulkhead.in_use == 0


@every_form
async def test_a_budget_stops_retries_whatever_the_policy_says(drive: Drive, clock: ManualClock) -> None:
    budget = RetryBudget(ratio=0.5, cap=2.0)
    policy = Policy(retry=RetryPolicy(strategy="immediate"), budget=budget, clock=clock)
    flaky = Flaky(99)
    with pytest.raises(ConnectionError) as caught:
        await drive(policy, flaky)(1)
    assert flaky.calls == 3
    assert "retry budget empty" in caught.value.__notes__[0]
    assert budget.tokens == 0.0
    for _ in range(2):
        await drive(policy, Flaky(0))(1)
    assert budget.tokens == 1.0
    assert await drive(policy, Flaky(1))(3) == 3


@every_form
async def test_hooks_are_told_before_each_wait(drive: Drive, clock: ManualClock) -> None:
    told: list[tuple[RetryScheduled, list[float]]] = []
    policy = Policy(retry=STEADY, on_retry=lambda event: told.append((event, list(clock.sleeps))), clock=clock)
    await drive(policy, Flaky(2))(1)
    assert [(event.attempt, event.delay_s, event.elapsed_s, waited) for event, waited in told] == [
        (1, 1.0, 0.0, []),
        (2, 3.0, 1.0, [1.0]),
    ]
    assert told[0][0].failure.type is FailureType.NETWORK


@every_form
async def test_a_hook_that_raises_is_logged_and_ignored(
    drive: Drive, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[RetryScheduled] = []

    def bad(event: RetryScheduled) -> None:
        raise RuntimeError("a bug in the hook")

    with caplog.at_level(logging.ERROR, "holdfast"):
        assert await drive(Policy(retry=STEADY, on_retry=[bad, told.append], clock=clock), Flaky(1))(2) == 2
    assert len(told) == 1
    assert "a bug in the hook" in caplog.text


@every_form
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
async def test_exits_and_cancellations_are_never_counted_classified_or_retried(
    drive: Drive, error: type[BaseException], clock: ManualClock
) -> None:
    def never(error: BaseException, context: FailureContext | None) -> Failure:
        raise AssertionError("classified")

    breaker = CircuitBreaker(failure_threshold=1, clock=clock)
    bulkhead = Bulkhead(1)
    policy = Policy(retry=STEADY, breaker=breaker, bulkhead=bulkhead, classify=never, clock=clock)
    flaky = Flaky(99, error)
    guarded = drive(policy, flaky)
    with pytest.raises(error):
        try:
            await guarded(1)
        except BaseException as raised:  # asyncio must not see them
            caught = raised
            raise caught from None
    assert flaky.calls == 1
    assert breaker.state == "closed"
    assert bulkhead.in_use == 0


@every_form
async def test_a_cancelled_trial_gives_its_permit_back(drive: Drive, clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=1, clock=clock)
    breaker.record_failure()
    clock.advance(30.0)
    policy = Policy(breaker=breaker, clock=clock)
    with pytest.raises(KeyboardInterrupt):
        await drive(policy, Flaky(1, KeyboardInterrupt))(1)
    assert await drive(policy, Flaky(0))(1) == 1
    assert breaker.state == "closed"


@every_form
async def test_switched_off_every_policy_just_calls(drive: Drive, clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=1, clock=clock)
    policy = Policy(retry=STEADY, breaker=breaker, limiter=RateLimiter(1, 60.0, clock=clock), clock=clock)
    plain = Policy(retry=STEADY, breaker=breaker, clock=clock)
    with policies_off():
        for one in (policy, policy, plain, plain):
            flaky = Flaky(1)
            with pytest.raises(ConnectionError):
                await drive(one, flaky)(1)
            assert flaky.calls == 1
        breaker.force_open()
        assert await drive(plain, Flaky(0))(2) == 2
    assert clock.sleeps == []
    with pytest.raises(CircuitOpenError):
        await drive(plain, Flaky(0))(2)


@every_form
async def test_without_waits_everything_is_tried_and_nothing_is_waited_for(drive: Drive, clock: ManualClock) -> None:
    flaky = Flaky(3)
    limiter = RateLimiter(1, 60.0, clock=clock)
    with no_wait():
        assert await drive(Policy(retry=STEADY, limiter=limiter, clock=clock), flaky)(1) == 1
    assert flaky.calls == 4
    assert clock.sleeps == []


@every_form
async def test_the_classifier_is_told_which_function_and_which_service(drive: Drive, clock: ManualClock) -> None:
    seen: list[FailureContext | None] = []

    def spy(error: BaseException, context: FailureContext | None) -> Failure:
        seen.append(context)
        return Failure(FailureType.PERMANENT, error=error)

    breaker = CircuitBreaker("ledger", clock=clock)
    with pytest.raises(ConnectionError):
        await drive(Policy(retry=STEADY, breaker=breaker, classify=spy, clock=clock), Flaky(9))(1)
    assert len(seen) == 1
    assert seen[0] is not None
    assert seen[0].service == "ledger"
    assert seen[0].task


@every_function_form
async def test_a_fallback_value_replaces_the_error(drive: Drive, clock: ManualClock) -> None:
    policy = Policy(retry=RetryPolicy(max_retries=1, jitter=False), fallback=None, clock=clock)
    flaky = Flaky(99)
    assert await drive(policy, flaky)(1) is None
    assert flaky.calls == 2
    assert await drive(Policy(fallback=-1, clock=clock), Flaky(9))(1) == -1


@every_function_form
async def test_a_fallback_function_gets_the_error_and_also_refusals(drive: Drive, clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=1, clock=clock)
    policy = Policy(breaker=breaker, fallback=lambda error: type(error).__name__, clock=clock)
    guarded = drive(policy, Flaky(9))
    assert await guarded(1) == "ConnectionError"  # type: ignore[comparison-overlap]
    assert await guarded(1) == "CircuitOpenError"  # type: ignore[comparison-overlap]


@every_function_form
async def test_switched_off_there_is_no_fallback_either(drive: Drive, clock: ManualClock) -> None:
    for policy in (Policy(fallback=0, clock=clock), Policy(fallback=0, bulkhead=Bulkhead(1), clock=clock)):
        with policies_off(), pytest.raises(ConnectionError):
            await drive(policy, Flaky(1))(1)


@every_form
async def test_a_call_inside_a_trial_is_part_of_it(drive: Drive, clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=2, clock=clock)
    policy = Policy(retry=STEADY, breaker=breaker, bulkhead=Bulkhead(9), clock=clock)
    breaker.record_failure()
    clock.advance(30.0)

    class Outer(Flaky):
        def __call__(self, value: int = 1) -> int:
            return policy.call(policy(super().__call__), value)

    assert await drive(policy, Outer(0))(1) == 1
    assert breaker.state == "half_open"  # one trial, though three calls went through the breaker
    assert await drive(policy, Outer(0))(1) == 1
    assert breaker.state == "closed"


@every_form
async def test_a_refusal_inside_a_function_is_not_the_services_failure(drive: Drive, clock: ManualClock) -> None:
    full = Bulkhead(1)
    full.acquire()

    class Outer(Flaky):
        def __call__(self, value: int = 1) -> int:
            return Policy(bulkhead=full).call(super().__call__, value)

    breaker = CircuitBreaker(failure_threshold=1, clock=clock)
    with pytest.raises(BulkheadFull):
        await drive(Policy(breaker=breaker, clock=clock), Outer(0))(1)
    assert breaker.state == "closed"


@every_form
async def test_a_wait_for_a_retry_is_logged(drive: Drive, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast.policy"):
        await drive(Policy(retry=STEADY, clock=clock), Flaky(1))(1)
    assert caplog.messages[0].endswith(": attempt 1 failed (NETWORK ConnectionError: refused); again in 1 s")


@every_form
@pytest.mark.parametrize("trouble", ["frozen", "raises", "odd"])
async def test_an_error_that_cannot_take_a_note_is_raised_all_the_same(
    drive: Drive, trouble: str, clock: ManualClock
) -> None:
    class Frozen(ConnectionError):
        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(name)

    class Raises(ConnectionError):
        def add_note(self, note: str, /) -> None:
            raise RuntimeError

    class Odd(ConnectionError):
        __notes__ = 3  # type: ignore[assignment]

    error = {"frozen": Frozen, "raises": Raises, "odd": Odd}[trouble]
    with pytest.raises(error):
        await drive(Policy(retry=RetryPolicy(max_retries=0), clock=clock), Flaky(9, error))(1)


@every_form
async def test_an_error_that_is_raised_again_and_again_keeps_only_the_latest_notes(
    drive: Drive, clock: ManualClock
) -> None:
    error = ConnectionError("the same one")
    error.add_note("the user's own")
    for _ in range(20):
        with pytest.raises(ConnectionError):
            await drive(Policy(retry=RetryPolicy(max_retries=0), clock=clock), Flaky(9, lambda: error))(1)
    assert error.__notes__ == ["the user's own", *["holdfast: gave up after 1 attempt in 0 s: retries used up"] * 5]


@every_form
async def test_hooks_are_told_also_when_there_is_nothing_to_wait_for(drive: Drive, clock: ManualClock) -> None:
    told: list[float] = []
    policy = Policy(
        retry=RetryPolicy(strategy="immediate"), on_retry=lambda event: told.append(event.delay_s), clock=clock
    )
    await drive(policy, Flaky(2))(1)
    assert told == [0.0, 0.0]


@every_form
async def test_time_that_hooks_take_counts_towards_the_total_time(drive: Drive, clock: ManualClock) -> None:
    def slow_error() -> BaseException:
        clock.advance(2.0)
        return ConnectionError("slow")

    retry = RetryPolicy(jitter=False, total_timeout=17.0)
    policy = Policy(retry=retry, on_retry=lambda event: clock.advance(10.0), clock=clock)
    with pytest.raises(ConnectionError) as caught:
        await drive(policy, Flaky(99, slow_error))(1)
    assert clock.sleeps == [1.0]  # the second failure is at 2 + 10 + 1 + 2, and a wait of 3 would end at 18
    assert caught.value.__notes__ == ["holdfast: gave up after 2 attempts in 15 s: total time over"]


@every_form
async def test_after_hooks_that_took_too_long_the_call_gives_up_before_the_wait(
    drive: Drive, clock: ManualClock
) -> None:
    flaky = Flaky(99)
    retry = RetryPolicy(jitter=False, total_timeout=10.5)
    with pytest.raises(ConnectionError) as caught:
        await drive(Policy(retry=retry, on_retry=lambda event: clock.advance(10.0), clock=clock), flaky)(1)
    assert clock.sleeps == []
    assert flaky.calls == 1
    assert caught.value.__notes__ == ["holdfast: gave up after 1 attempt in 10 s: total time over"]


@every_form
async def test_hooks_that_end_just_in_time_do_not_end_the_call(drive: Drive, clock: ManualClock) -> None:
    retry = RetryPolicy(jitter=False, total_timeout=11.0)
    policy = Policy(retry=retry, on_retry=lambda event: clock.advance(10.0), clock=clock)
    assert await drive(policy, Flaky(1))(3) == 3


@every_form
async def test_an_open_breaker_refuses_before_anything_else_is_asked(drive: Drive, clock: ManualClock) -> None:
    breaker = CircuitBreaker(clock=clock)
    breaker.force_open()
    limiter = RateLimiter(1, 60.0, max_wait=0.0, clock=clock)
    limiter.acquire()
    full = Bulkhead(1)
    full.acquire()
    for policy in (Policy(breaker=breaker, limiter=limiter), Policy(breaker=breaker, bulkhead=full)):
        with pytest.raises(CircuitOpenError):
            await drive(policy, Flaky(0))(1)


@every_form
async def test_an_interrupt_while_waiting_for_the_limiter_gives_the_place_back(drive: Drive) -> None:
    class Interrupted(ManualClock):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

        async def asleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    clock = Interrupted()
    bulkhead = Bulkhead(2)
    limiter = RateLimiter(1, 60.0, clock=clock)
    limiter.acquire()
    with bulkhead:
        with pytest.raises(KeyboardInterrupt):
            await drive(Policy(bulkhead=bulkhead, limiter=limiter, clock=clock), Flaky(0))(1)
        assert bulkhead.in_use == 1
    assert limiter._buckets[""].queue == []


@pytest.mark.parametrize("drive", [drive_async, drive_acall, drive_aloop])
async def test_a_cancellation_while_waiting_for_the_limiter_gives_the_place_back(drive: Drive) -> None:
    clock = ManualClock(auto=False)
    bulkhead = Bulkhead(2)
    limiter = RateLimiter(1, 60.0, clock=clock)
    limiter.acquire()
    with bulkhead:
        guarded = drive(Policy(bulkhead=bulkhead, limiter=limiter, clock=clock), Flaky(0))
        waiting = asyncio.ensure_future(guarded(1))
        while not clock.sleeps:
            await asyncio.sleep(0)  # noqa: TID251 - lets it begin to wait
        assert bulkhead.in_use == 2
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert bulkhead.in_use == 1
    assert limiter._buckets[""].queue == []


@every_form
async def test_an_interrupt_while_the_gates_are_passed_gives_the_place_back(drive: Drive, clock: ManualClock) -> None:
    bulkhead = Bulkhead(2)
    policy = Policy(bulkhead=bulkhead, clock=clock)
    flaky = Flaky(0)

    def interrupted() -> float:
        if bulkhead.in_use == 2:
            raise KeyboardInterrupt
        return 0.0

    policy.monotonic = interrupted
    with bulkhead:
        with pytest.raises(KeyboardInterrupt):
            await drive(policy, flaky)(1)
        assert bulkhead.in_use == 1
    assert flaky.calls == 0


@every_function_form
async def test_an_interrupt_between_the_gates_and_the_function_gives_place_and_trial_back(
    drive: Drive, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    bulkhead = Bulkhead(2)
    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=1, clock=clock)
    breaker.record_failure()
    clock.advance(30.0)
    guarded = drive(Policy(bulkhead=bulkhead, breaker=breaker, clock=clock), Flaky(0))
    with bulkhead, monkeypatch.context() as patch:
        patch.setattr(drivers, "_run_held", interrupted)
        patch.setattr(drivers, "_arun_held", interrupted)
        with pytest.raises(KeyboardInterrupt):
            await guarded(1)
        assert bulkhead.in_use == 1
    assert breaker.state == "half_open"
    assert await guarded(1) == 1
    assert breaker.state == "closed"


@every_form
async def test_a_cancelled_call_is_neither_a_success_of_its_breaker_nor_of_its_budget(
    drive: Drive, clock: ManualClock
) -> None:
    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=1, clock=clock)
    breaker.record_failure()
    clock.advance(30.0)
    budget = RetryBudget(0.5)
    budget.spend()
    with pytest.raises(KeyboardInterrupt):
        await drive(Policy(breaker=breaker, budget=budget, clock=clock), Flaky(1, KeyboardInterrupt))(1)
    assert breaker.state == "half_open"
    assert breaker.can_execute()
    assert budget.tokens == 9.0


@every_form
@pytest.mark.parametrize("kind", ["default", "Classifier", "with its own clock"])
async def test_a_wait_until_an_instant_is_measured_on_the_policys_clock(
    drive: Drive, kind: str, clock: ManualClock
) -> None:
    chosen: dict[str, Any] = {
        "default": {},
        "Classifier": {"classify": Classifier()},
        "with its own clock": {"classify": Classifier(now=lambda: clock.now() + 10.0)},
    }[kind]
    in_17_s = "Sun, 09 Sep 2001 01:46:57 GMT"  # the clock starts a thousand million seconds after 1970
    await drive(Policy(retry=STEADY, clock=clock, **chosen), Flaky(1, lambda: Transient("busy", retry_after=in_17_s)))(
        1
    )
    assert clock.sleeps == [7.0 if kind == "with its own clock" else 17.0]


@every_form
@pytest.mark.parametrize(
    ("asked", "waited"), [(math.nan, 1.0), (math.inf, 1.0), (-math.inf, 1.0), (-5.0, None), (1e12, 86_400.0)]
)
async def test_a_wait_from_the_users_own_classifier_is_kept_within_a_day(
    drive: Drive, asked: float, waited: float | None, clock: ManualClock
) -> None:
    def own(error: BaseException, context: FailureContext | None) -> Failure:
        return Failure(FailureType.TRANSIENT, error=error, retry_after=asked)

    policy = Policy(retry=RetryPolicy(jitter=False, total_timeout=None), classify=own, clock=clock)
    assert await drive(policy, Flaky(1))(3) == 3
    assert clock.sleeps == ([] if waited is None else [waited])


def test_arguments_may_have_any_name(clock: ManualClock) -> None:
    def odd(**kwargs: int) -> dict[str, int]:
        return kwargs

    assert Policy(clock=clock).call(odd, fn=1, self=2) == {"fn": 1, "self": 2}
    assert CircuitBreaker(clock=clock).call(odd, fn=1, self=2) == {"fn": 1, "self": 2}


def test_hooks_are_told_which_function_and_which_key(clock: ManualClock) -> None:
    told: list[RetryScheduled] = []
    policy = Policy(retry=STEADY, key=lambda value: f"user {value}", on_retry=told.append, clock=clock)
    policy.call(Flaky(1), 7)
    assert (told[0].task.rpartition(".")[2], told[0].key) == ("Flaky", "user 7")


def test_a_class_is_refused_as_a_function_to_decorate_and_can_still_be_called(clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match="a policy guards functions, not classes"):
        Policy(clock=clock)(Flaky)
    assert Policy(clock=clock).call(int, "7") == 7


def test_everything_says_what_it_is(clock: ManualClock) -> None:
    policy = Policy(
        breaker=CircuitBreaker("ledger"), limiter="9/s", bulkhead=Bulkhead(3), budget=RetryBudget(), timeout=2.0
    )
    assert repr(policy) == (
        "Policy(breaker=<CircuitBreaker 'ledger' closed>, limiter=<RateLimiter 9 per 1 s>, "
        "bulkhead=<Bulkhead 0 of 3 in use>, budget=<RetryBudget 10 of 10>, timeout=2.0)"
    )


@every_form
@pytest.mark.parametrize("answer", [None, "network", FailureType.NETWORK])
async def test_a_classifier_that_returns_no_failure_is_logged_and_passed_over(
    drive: Drive, answer: Any, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    policy = Policy(retry=STEADY, classify=lambda error, context: answer, clock=clock)
    with caplog.at_level(logging.ERROR, "holdfast"):
        assert await drive(policy, Flaky(1))(3) == 3
    assert "which is no Failure" in caplog.text


@every_form
@pytest.mark.parametrize("kept", [None, KeyError("the cause")])
async def test_a_classifier_that_does_not_keep_the_error_does_not_lose_it(
    drive: Drive, kept: Exception | None, clock: ManualClock
) -> None:
    told: list[RetryScheduled] = []
    breaker = CircuitBreaker("ledger", clock=clock)
    policy = Policy(
        retry=STEADY,
        breaker=breaker,
        classify=lambda error, context: Failure(FailureType.TRANSIENT, kept, Severity.CRITICAL, retry_after=7.0),
        on_retry=[told.append, lambda event: breaker.force_open()],
        clock=clock,
    )
    with pytest.raises(ConnectionError, match="refused"):
        await drive(policy, Flaky(9))(1)
    failure = told[0].failure
    assert (failure.error_name, failure.message) == ("ConnectionError", "refused")
    assert (failure.type, failure.severity, failure.retry_after) == (FailureType.TRANSIENT, Severity.CRITICAL, 7.0)


@every_form
async def test_a_classifier_that_raises_is_logged_and_the_built_in_one_is_asked(
    drive: Drive, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(error: BaseException, context: FailureContext | None) -> Failure:
        raise RuntimeError("a bug in the classifier")

    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=1, clock=clock)
    breaker.record_failure()
    clock.advance(30.0)
    with caplog.at_level(logging.ERROR, "holdfast"), pytest.raises(ConnectionError):
        await drive(Policy(breaker=breaker, classify=bad, clock=clock), Flaky(1))(1)
    assert breaker.state == "open"  # its trial has come back
    assert "a bug in the classifier" in caplog.text


@every_form
@pytest.mark.parametrize("strategy", [lambda n: 1 / 0, lambda n: None, lambda n: "soon"])
async def test_a_strategy_that_fails_ends_the_retries_and_not_the_error(
    drive: Drive, strategy: Callable[[int], float], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    flaky = Flaky(9)
    with caplog.at_level(logging.ERROR, "holdfast"), pytest.raises(ConnectionError) as caught:
        await drive(Policy(retry=RetryPolicy(strategy=strategy), clock=clock), flaky)(1)
    assert flaky.calls == 1
    assert caught.value.__notes__ == ["holdfast: gave up after 1 attempt in 0 s: the retry strategy itself failed"]
    assert "there are no more retries" in caplog.text


@every_function_form
async def test_a_finished_call_leaves_nothing_that_keeps_its_error_alive(drive: Drive, clock: ManualClock) -> None:
    class Held(ConnectionError):
        pass

    dead: list[weakref.ref[BaseException]] = []

    def error() -> BaseException:
        one = Held("refused")
        dead.append(weakref.ref(one))
        return one

    gc.collect()
    gc.disable()
    try:
        await drive(Policy(retry=STEADY, bulkhead=Bulkhead(1), clock=clock), Flaky(2, error))(1)
        assert [ref() for ref in dead] == [None, None]
    finally:
        gc.enable()


async def test_async_hooks_and_fallbacks_are_awaited(clock: ManualClock) -> None:
    told: list[int] = []

    async def hook(event: RetryScheduled) -> None:
        told.append(event.attempt)

    async def fallback(error: Exception) -> str:
        return f"fell back from {error}"

    policy = Policy(retry=RetryPolicy(max_retries=1), on_retry=hook, fallback=fallback, clock=clock)
    assert await policy.acall(Flaky(9).acall) == "fell back from refused"  # type: ignore[comparison-overlap]
    assert told == [1]


def test_async_parts_are_refused_on_a_sync_function(clock: ManualClock) -> None:
    async def hook(event: RetryScheduled) -> None:
        raise AssertionError

    async def fallback(error: Exception) -> int:
        raise AssertionError

    for policy in (Policy(on_retry=hook), Policy(fallback=fallback)):
        with pytest.raises(ConfigError, match="is async, and cannot be awaited in the sync function"):
            policy(len)
        with pytest.raises(ConfigError, match="is async"):
            policy.call(len, "abc")


def test_one_breaker_and_one_limit_per_key(clock: ManualClock) -> None:
    breakers = CircuitBreakers(clock=clock)
    policy = Policy(
        breaker=breakers,
        limiter=RateLimiter(5, 60.0, max_wait=0.0, clock=clock),
        key=lambda host, **_: host,
        clock=clock,
    )

    @policy
    def fetch(host: str, *, ok: bool = True) -> str:
        if not ok:
            raise ConnectionError(host)
        return host

    for _ in range(5):
        with pytest.raises(ConnectionError):
            fetch("bad.example", ok=False)
    with pytest.raises(CircuitOpenError):
        fetch("bad.example")
    for _ in range(5):
        assert fetch("good.example") == "good.example"
    with pytest.raises(RateLimitExceeded, match=r"good\.example"):
        fetch("good.example")
    assert {breaker.name: breaker.state.value for breaker in breakers} == {
        "bad.example": "open",
        "good.example": "closed",
    }


def test_without_a_key_each_function_has_its_own_breaker(clock: ManualClock) -> None:
    breakers = CircuitBreakers(clock=clock)
    policy = Policy(breaker=breakers, clock=clock)
    policy(Flaky(0))()
    policy(len)("abc")
    policy(functools.partial(functools.partial(max, 1), 2))()
    assert sorted(breaker.name.rpartition(".")[2] for breaker in breakers) == ["Flaky", "len", "max"]


def test_a_success_that_ends_after_others_have_failed_resets_their_count(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=2, clock=clock)

    @Policy(breaker=breaker, clock=clock)
    def call() -> None:
        breaker.record_failure()  # another call fails while this one runs

    call()
    call()
    assert breaker.state == "closed"


async def test_a_success_of_an_async_function_that_ends_after_others_have_failed_resets_their_count(
    clock: ManualClock,
) -> None:
    breaker = CircuitBreaker(failure_threshold=2, clock=clock)

    @Policy(breaker=breaker, clock=clock)
    async def call() -> None:
        breaker.record_failure()  # another call fails while this one runs

    await call()
    await call()
    assert breaker.state == "closed"


def test_a_success_that_ends_after_the_breaker_opened_changes_nothing(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=1, clock=clock)

    @Policy(breaker=breaker, clock=clock)
    def call() -> None:
        breaker.record_failure()

    call()
    assert breaker.state == "open"


def test_the_wrapped_function_keeps_its_name_and_is_still_a_method(clock: ManualClock) -> None:
    class Shop:
        def __init__(self) -> None:
            self.calls = 0

        @Policy(retry=STEADY, clock=clock)
        def sell(self, item: str) -> str:
            """Sell one."""
            self.calls += 1
            if self.calls == 1:
                raise ConnectionError
            return item

    assert Shop.sell.__doc__ == "Sell one."
    assert Shop.sell.__name__ == "sell"
    assert Shop().sell("tea") == "tea"


async def test_an_async_callable_object_and_a_partial_are_awaited(clock: ManualClock) -> None:
    class Client:
        async def __call__(self, value: int) -> int:
            return value

    policy = Policy(retry=STEADY, clock=clock)
    assert await policy(Client())(3) == 3
    assert await policy(functools.partial(Client().__call__, 4))() == 4


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class GeneratorObject:
    def __call__(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize("fn", [generator, async_generator, functools.partial(generator), GeneratorObject()])
def test_generators_are_refused_rather_than_left_unguarded(fn: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match="is a generator: it would run outside its guard"):
        Policy()(fn)
    with pytest.raises(ConfigError, match="is a generator"):
        Policy().call(fn)


@pytest.mark.parametrize("wrapper", [staticmethod, classmethod])
def test_a_policy_on_the_wrong_side_of_a_method_decorator_is_refused(wrapper: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=f"put the policy below @{wrapper.__name__}"):
        Policy()(wrapper(len))


def test_what_is_not_a_function_is_refused() -> None:
    with pytest.raises(ConfigError, match="a policy guards a function"):
        Policy()(3)  # type: ignore[arg-type]


def test_a_coroutine_from_a_sync_call_is_refused_rather_than_left_unguarded(clock: ManualClock) -> None:
    with pytest.raises(TypeError, match="use `acall` instead of `call`"):
        _ = Policy(retry=STEADY, clock=clock).call(Flaky(0).acall)
    with pytest.raises(TypeError, match="returned a coroutine"):
        _ = Policy(retry=STEADY, clock=clock)(lambda: Flaky(0).acall())()
    with pytest.raises(TypeError, match="returned a coroutine"):
        _ = Policy(fallback=0, clock=clock).call(Flaky(0).acall)
    with pytest.raises(TypeError, match="returned a coroutine"):
        _ = Policy(fallback=0, clock=clock)(lambda: Flaky(0).acall())()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retry": 3}, "retry=3: must be a RetryPolicy"),
        ({"breaker": "payments"}, "breaker='payments': must be a CircuitBreaker or a CircuitBreakers"),
        ({"limiter": 5}, "limiter=5: must be a RateLimiter or a rate such as '100/minute'"),
        ({"limiter": "often"}, "limiter='often': must be like"),
        ({"bulkhead": 5}, "bulkhead=5: must be a Bulkhead"),
        ({"budget": 0.1}, "budget=0.1: must be a RetryBudget"),
        ({"timeout": 0}, "timeout=0: must be a number, above 0"),
        ({"timeout": -1.0}, "timeout=-1.0: must be a number, above 0"),
        ({"on_retry": 5}, "on_retry=5: must be a function"),
        ({"on_retry": [len, "x"]}, "on_retry='x': must be a function"),
        ({"classify": None}, "classify=None: must be a function"),
        ({"key": 5}, "key=5: must be a function"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Policy(**settings)
    assert "\n" not in str(caught.value)


def test_a_rate_in_words_is_a_limiter(clock: ManualClock) -> None:
    policy = Policy(limiter="2/minute", clock=clock)
    for _ in range(3):
        policy.call(len, "x")
    assert clock.sleeps == [60.0]


def test_nested_switches_put_back_what_they_found(clock: ManualClock) -> None:
    def waits_and_calls() -> tuple[int, int]:
        flaky, before = Flaky(1), len(clock.sleeps)
        with contextlib.suppress(ConnectionError):
            Policy(retry=STEADY, clock=clock).call(flaky)
        return len(clock.sleeps) - before, flaky.calls

    with no_wait():
        with no_wait():
            assert waits_and_calls() == (0, 2)
        assert waits_and_calls() == (0, 2)
    assert waits_and_calls() == (1, 2)
    with policies_off():
        with policies_off():
            assert waits_and_calls() == (0, 1)
        assert waits_and_calls() == (0, 1)
    assert waits_and_calls() == (1, 2)
    for switch in (no_wait, policies_off):
        with pytest.raises(ZeroDivisionError), switch():
            raise ZeroDivisionError
        assert waits_and_calls() == (1, 2)


def test_classify_is_the_default(clock: ManualClock) -> None:
    assert Policy().classify is classify
