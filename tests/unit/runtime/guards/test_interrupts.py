"""Whatever was taken is given back exactly once, however a call ends."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import BreakerConfig, Bulkhead, CircuitBreaker, CircuitBreakers, CircuitOpenError, Policy
from holdfast.runtime.guards.breaker import _IN_TRIAL
from holdfast.testing import ManualClock, policies_off


def half_open(clock: ManualClock) -> CircuitBreaker:
    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=1, clock=clock)
    breaker.record_failure()
    clock.advance(30.0)
    return breaker


def one_call(policy: Policy) -> None:
    policy.call(len, "")


def one_block(policy: Policy) -> None:
    for attempt in policy.attempts():
        with attempt:
            pass


@pytest.mark.parametrize("run", [one_call, one_block])
def test_a_trial_is_given_back_when_the_attempt_is_interrupted_before_it_begins(
    run: Callable[[Policy], None], clock: ManualClock
) -> None:
    breaker = half_open(clock)
    policy = Policy(breaker=breaker, bulkhead=Bulkhead(1), clock=clock)
    plain = policy.monotonic

    def interrupted() -> float:
        if breaker._state.trials:
            raise KeyboardInterrupt
        return 0.0

    policy.monotonic = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(policy)
    policy.monotonic = plain
    assert breaker not in _IN_TRIAL.get()
    run(policy)
    assert breaker.state == "closed"


def test_a_trial_is_given_back_when_policies_are_switched_off_inside_it(clock: ManualClock) -> None:
    breaker = half_open(clock)
    with policies_off():
        pass
    off = policies_off()
    with pytest.raises(ConnectionError):
        for attempt in Policy(breaker=breaker, clock=clock).attempts():
            with attempt:
                off.__enter__()
                raise ConnectionError
    off.__exit__(None, None, None)
    assert breaker not in _IN_TRIAL.get()
    assert breaker.call(len, "") == 0


def test_a_place_is_given_back_when_a_limited_call_is_interrupted_before_its_thread_starts() -> None:
    class Interrupting(ManualClock):
        is_on = False

        def monotonic(self) -> float:
            if self.is_on:
                raise KeyboardInterrupt
            return super().monotonic()

    clock, bulkhead = Interrupting(), Bulkhead(1)
    policy = Policy(bulkhead=bulkhead, timeout=2.0, clock=clock)
    policy.monotonic = lambda: 0.0  # only the time limit reads the clock itself
    clock.is_on = True
    with pytest.raises(KeyboardInterrupt):
        policy.call(len, "")
    assert bulkhead.in_use == 0


def test_a_place_that_was_handed_over_is_given_back_once_however_often_it_is_said(clock: ManualClock) -> None:
    bulkhead = Bulkhead(2)
    bulkhead.acquire()
    bulkhead.acquire()
    call = Policy(bulkhead=bulkhead, clock=clock).begin("fn", (), {})
    call.holds_place = True
    give_back = call.hand_over()
    threads = [threading.Thread(target=give_back) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    give_back()
    assert bulkhead.in_use == 1


def test_a_breaker_that_opens_while_a_sweep_forgets_it_is_not_lost(clock: ManualClock) -> None:
    breakers = CircuitBreakers(BreakerConfig(failure_threshold=1), max_keys=1, clock=clock)
    breakers["ledger"].call(len, "")
    plain, threads = breakers._breakers._retire, list[threading.Thread]()

    def unlucky(breaker: CircuitBreaker) -> bool:
        is_idle = plain(breaker)
        thread = threading.Thread(target=breaker.record_failure)
        thread.start()
        while breaker.state == "closed":
            pass
        threads.append(thread)
        return is_idle

    breakers._breakers._retire = unlucky
    breakers["other"].call(len, "")
    for thread in threads:
        thread.join(30)
    breakers._breakers._retire = plain
    threads.clear()
    del unlucky
    gc.collect()
    assert breakers["ledger"].state == "open"


def test_slow_calls_are_not_blamed_on_a_failure_from_before_a_reset(clock: ManualClock) -> None:
    breaker = CircuitBreaker(window=4, failure_rate=1.0, slow_call=1.0, slow_rate=1.0, min_calls=2, clock=clock)
    breaker.record_failure(ConnectionError("last week"))
    breaker.reset()
    breaker.record_success(duration=5.0)
    breaker.record_success(duration=5.0)
    with pytest.raises(CircuitOpenError, match="opened by slow calls"):
        breaker.acquire()


def test_a_function_whose_repr_raises_can_have_a_time_limit() -> None:
    class Odd:
        def __call__(self) -> int:
            return 1

        def __repr__(self) -> str:
            raise RuntimeError

    odd: Any = Odd()
    assert Policy(bulkhead=Bulkhead(1), timeout=20.0).call(odd) == 1
