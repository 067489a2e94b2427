"""Time limits: an async function is cancelled; a sync one cannot be, and that is said plainly."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import threading
import weakref

import pytest

from holdfast import (
    Bulkhead,
    BulkheadFull,
    CircuitBreaker,
    ConfigError,
    Policy,
    RetryPolicy,
    TimeLimitExceeded,
)
from holdfast.testing import ManualClock, policies_off

pytestmark = pytest.mark.anyio

LIMIT = 2.0


class Stuck:
    """A sync function that goes on after its time limit, until it is let go."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.calls = 0
        self.let_go = threading.Event()
        self.ended = threading.Event()

    def __call__(self) -> str:
        self.calls += 1
        self.clock.advance(LIMIT)
        self.let_go.wait(30)
        self.ended.set()
        return "too late"


def test_the_caller_of_a_stuck_sync_function_is_told_on_time_and_the_function_goes_on(clock: ManualClock) -> None:
    stuck = Stuck(clock)
    with pytest.raises(TimeLimitExceeded, match="took longer than 2 s; the function cannot be stopped") as caught:
        Policy(timeout=LIMIT, clock=clock).call(stuck)
    assert caught.value.still_running
    assert isinstance(caught.value, TimeoutError)
    assert not stuck.ended.is_set()
    stuck.let_go.set()
    assert stuck.ended.wait(30)


def test_a_sync_function_that_is_still_running_is_not_run_again_beside_itself(clock: ManualClock) -> None:
    stuck = Stuck(clock)
    with pytest.raises(TimeLimitExceeded):
        Policy(retry=RetryPolicy(attempt_timeout=LIMIT), clock=clock)(stuck)()
    assert stuck.calls == 1
    stuck.let_go.set()


def test_a_stuck_sync_function_counts_as_a_failure_of_its_service(clock: ManualClock) -> None:
    stuck = Stuck(clock)
    breaker = CircuitBreaker(failure_threshold=1, clock=clock)
    with pytest.raises(TimeLimitExceeded):
        Policy(breaker=breaker, timeout=LIMIT, clock=clock).call(stuck)
    assert breaker.state == "open"
    stuck.let_go.set()


def test_a_stuck_sync_function_keeps_its_place_in_the_bulkhead_until_it_has_ended(clock: ManualClock) -> None:
    stuck = Stuck(clock)
    bulkhead = Bulkhead(1)
    policy = Policy(bulkhead=bulkhead, timeout=LIMIT, clock=clock)
    with pytest.raises(TimeLimitExceeded):
        policy.call(stuck)
    with pytest.raises(BulkheadFull):
        policy.call(len, "abc")
    stuck.let_go.set()
    assert stuck.ended.wait(30)
    while bulkhead.in_use:
        pass
    assert policy.call(len, "abc") == 3


def test_a_sync_function_within_its_limit_returns_raises_and_sees_its_context(clock: ManualClock) -> None:
    who = contextvars.ContextVar("who", default="nobody")
    who.set("ann")
    policy = Policy(timeout=LIMIT, clock=clock)
    assert policy.call(who.get) == "ann"
    with pytest.raises(ZeroDivisionError):
        policy.call(lambda: 1 / 0)


def test_a_thread_that_cannot_be_started_gives_its_place_back_once(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    bulkhead = Bulkhead(2)
    with bulkhead:
        monkeypatch.setattr(threading.Thread, "start", cannot)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            Policy(bulkhead=bulkhead, timeout=LIMIT, clock=clock).call(len, "abc")
        assert bulkhead.in_use == 1


def test_a_thread_whose_start_is_interrupted_after_it_began_gives_its_place_back_once(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        thread.join(30)
        raise KeyboardInterrupt

    start = threading.Thread.start
    bulkhead = Bulkhead(2)
    with bulkhead:
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Policy(bulkhead=bulkhead, timeout=LIMIT, clock=clock).call(len, "abc")
        assert bulkhead.in_use == 1


def test_a_function_that_ends_after_an_interrupted_wait_gives_its_place_back_when_it_ends() -> None:
    class Interrupted(ManualClock):
        def wait(self, event: threading.Event, seconds: float | None) -> bool:
            raise KeyboardInterrupt

    clock = Interrupted()
    stuck = Stuck(clock)
    bulkhead = Bulkhead(1)
    with pytest.raises(KeyboardInterrupt):
        Policy(bulkhead=bulkhead, timeout=LIMIT, clock=clock).call(stuck)
    assert bulkhead.in_use == 1
    stuck.let_go.set()
    assert stuck.ended.wait(30)
    while bulkhead.in_use:
        pass


def test_an_error_of_a_function_with_a_limit_is_kept_alive_by_nothing(clock: ManualClock) -> None:
    class Held(ConnectionError):
        pass

    dead: list[weakref.ref[BaseException]] = []

    def fail() -> None:
        error = Held("refused")
        dead.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(Held):
            Policy(timeout=LIMIT, clock=clock).call(fail)
        assert [ref() for ref in dead] == [None]
    finally:
        gc.enable()


def test_the_shorter_of_two_limits_holds() -> None:
    assert Policy(timeout=3.0, retry=RetryPolicy(attempt_timeout=2.0)).timeout == 2.0
    assert Policy(timeout=1.0, retry=RetryPolicy(attempt_timeout=2.0)).timeout == 1.0
    assert Policy(retry=RetryPolicy(attempt_timeout=2.0)).timeout == 2.0


async def test_an_async_function_is_cancelled_at_its_limit_and_tried_again(clock: ManualClock) -> None:
    calls = cancelled = 0

    async def slow_twice() -> str:
        nonlocal calls, cancelled
        calls += 1
        if calls == 3:
            return "done"
        clock.advance(LIMIT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise
        raise AssertionError

    policy = Policy(retry=RetryPolicy(jitter=False, attempt_timeout=LIMIT), clock=clock)
    assert await policy.acall(slow_twice) == "done"
    assert (calls, cancelled) == (3, 2)
    assert clock.sleeps == [1.0, 3.0]


async def test_when_attempts_are_used_up_the_time_limit_is_what_is_raised(clock: ManualClock) -> None:
    async def slow() -> None:
        clock.advance(LIMIT)
        await asyncio.Event().wait()

    with pytest.raises(TimeLimitExceeded, match="took longer than 2 s") as caught:
        await Policy(timeout=LIMIT, clock=clock)(slow)()
    assert not caught.value.still_running


async def test_a_timeout_of_the_functions_own_is_not_taken_for_the_limit(clock: ManualClock) -> None:
    async def times_out() -> None:
        raise TimeoutError("the database's own")

    with pytest.raises(TimeoutError, match="the database's own") as caught:
        await Policy(timeout=LIMIT, clock=clock)(times_out)()
    assert not isinstance(caught.value, TimeLimitExceeded)


async def test_a_cancellation_from_outside_is_not_taken_for_the_limit(clock: ManualClock) -> None:
    began = asyncio.Event()

    async def slow() -> None:
        began.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(Policy(timeout=LIMIT, retry=RetryPolicy(), clock=clock).acall(slow))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleeps == []


async def test_a_loop_of_async_blocks_is_interrupted_at_the_limit_too(clock: ManualClock) -> None:
    policy = Policy(retry=RetryPolicy(max_retries=1, jitter=False), timeout=LIMIT, clock=clock)
    numbers = []
    with pytest.raises(TimeLimitExceeded):
        async for attempt in policy.attempts():
            async with attempt:
                numbers.append(attempt.number)
                clock.advance(LIMIT)
                await asyncio.Event().wait()
    assert numbers == [1, 2]
    assert clock.sleeps == [1.0]
    with policies_off():
        async for attempt in policy.attempts():
            async with attempt:
                clock.advance(LIMIT)


async def test_a_loop_of_sync_blocks_cannot_have_a_limit_and_says_so(clock: ManualClock) -> None:
    policy = Policy(timeout=LIMIT, clock=clock)
    with pytest.raises(ConfigError, match="a block of sync code cannot be interrupted"):
        list(policy.attempts())
