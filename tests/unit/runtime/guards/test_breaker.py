"""The breaker behind its lock: permits, the plain trio, threads and coroutines, what is told to people."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    BreakerConfig,
    CircuitBreaker,
    CircuitBreakers,
    CircuitOpenError,
    ConfigError,
    FailureType,
    IllegalChange,
    Policy,
)
from holdfast.testing import ManualClock
from holdfast.types import BreakerChanged, BreakerMode

pytestmark = pytest.mark.anyio


def opened(clock: ManualClock, **settings: Any) -> CircuitBreaker:
    """A breaker that has just opened, with three trials to come after 30 s."""
    breaker = CircuitBreaker("ledger", failure_threshold=1, clock=clock, **settings)
    breaker.record_failure(ConnectionError("refused"))
    assert breaker.state == "open"
    return breaker


async def test_a_call_inside_a_trial_is_part_of_it(clock: ManualClock) -> None:
    breaker = opened(clock, half_open_max_calls=1)
    clock.advance(30.0)

    async def inner() -> str:
        assert breaker.can_execute()
        return breaker.call(str, 7)

    async def outer() -> str:
        return await asyncio.create_task(breaker.acall(inner))

    assert await breaker.acall(outer) == "7"
    assert breaker.state == "closed"


def test_a_call_after_a_trial_is_not_part_of_it(clock: ManualClock) -> None:
    breaker = opened(clock, half_open_max_calls=2)
    clock.advance(30.0)
    breaker.call(len, "")
    breaker.acquire()
    with pytest.raises(CircuitOpenError):
        breaker.acquire()


def test_a_call_inside_a_trial_is_refused_when_it_was_forced_open_meanwhile(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(30.0)
    with breaker.acquire():
        breaker.force_open()
        with pytest.raises(CircuitOpenError):
            breaker.acquire()


def test_what_opened_it_is_told_in_one_line(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=1, clock=clock)
    breaker.record_failure(ConnectionError("refused\nFor more information look elsewhere"))
    with pytest.raises(CircuitOpenError, match="opened by ConnectionError: refused For more information"):
        breaker.acquire()


def test_five_consecutive_failures_open_it_and_a_success_between_them_does_not_let_it(clock: ManualClock) -> None:
    breaker = CircuitBreaker(clock=clock)
    for _ in range(4):
        breaker.record_failure()
    breaker.record_success()
    for _ in range(4):
        breaker.record_failure()
    assert breaker.state == "closed"
    breaker.record_failure()
    assert breaker.state == "open"
    assert not breaker.can_execute()


def test_after_exactly_the_recovery_time_a_call_is_let_through(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(29.999)
    assert breaker.state == "open"
    with pytest.raises(CircuitOpenError):
        breaker.acquire()
    clock.advance(0.001)
    assert breaker.state == "half_open"
    breaker.acquire()


def test_a_rejection_carries_the_remaining_time_and_the_last_cause(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(12.0)
    with pytest.raises(CircuitOpenError) as caught:
        breaker.acquire()
    assert caught.value.retry_after == 18.0
    assert caught.value.cause == "ConnectionError: refused"
    assert str(caught.value) == "circuit ledger is open, try again in 18 s; opened by ConnectionError: refused"


def test_three_good_trials_close_it(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(30.0)
    for expected in ("half_open", "half_open", "closed"):
        with breaker.acquire():
            pass
        assert breaker.state == expected


def test_one_bad_trial_opens_it_again_for_the_whole_time(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(30.0)
    good, bad = breaker.acquire(), breaker.acquire()
    good.success()
    bad.failure(ConnectionError("still down"))
    assert breaker.state == "open"
    with pytest.raises(CircuitOpenError, match="try again in 30 s; opened by ConnectionError: still down"):
        breaker.acquire()


def test_a_trial_whose_error_does_not_count_gives_its_permit_back(clock: ManualClock) -> None:
    breaker = opened(clock, half_open_max_calls=1)
    clock.advance(30.0)
    with pytest.raises(ValueError, match="my own mistake"), breaker.acquire():
        raise ValueError("my own mistake")
    assert breaker.state == "half_open"
    with breaker.acquire():
        pass
    assert breaker.state == "closed"


@pytest.mark.parametrize("exit_error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_a_trial_that_is_cancelled_gives_its_permit_back(clock: ManualClock, exit_error: type[BaseException]) -> None:
    breaker = opened(clock, half_open_max_calls=1)
    clock.advance(30.0)
    with pytest.raises(exit_error), breaker.acquire():
        raise exit_error
    breaker.acquire()


def test_a_trial_that_never_comes_back_loses_its_place_in_time(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=1, trial_timeout=5.0, clock=clock)
    breaker.record_failure()
    clock.advance(30.0)
    breaker.acquire()
    clock.advance(4.999)
    with pytest.raises(CircuitOpenError):
        breaker.acquire()
    clock.advance(0.001)
    breaker.acquire()


def test_late_results_while_open_change_nothing(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=1, clock=clock)
    early = [breaker.acquire() for _ in range(3)]
    early[0].failure()
    clock.advance(10.0)
    early[1].failure()
    early[2].success()
    assert breaker.state == "open"
    with pytest.raises(CircuitOpenError) as caught:
        breaker.acquire()
    assert caught.value.retry_after == 20.0


def test_late_results_from_before_it_opened_are_not_taken_for_trials(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=2, clock=clock)
    late = [breaker.acquire() for _ in range(4)]
    late[0].failure()
    clock.advance(30.0)
    with breaker.acquire():
        late[1].success()
        late[2].failure()
        assert breaker.state == "half_open"
    with breaker.acquire():
        pass
    late[3].failure()
    assert breaker.state == "closed"


def test_what_a_permit_is_told_second_is_ignored(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=2, clock=clock)
    permit = breaker.acquire()
    permit.failure()
    permit.failure()
    permit.success()
    permit.release()
    assert breaker.state == "closed"
    breaker.acquire().failure()
    assert breaker.state == "open"


def test_the_plain_trio_takes_and_settles_trials(clock: ManualClock) -> None:
    breaker = opened(clock, half_open_max_calls=2)
    breaker.record_success()  # late: nothing was let through since it opened
    assert breaker.state == "open"
    clock.advance(30.0)
    assert breaker.can_execute()
    assert breaker.can_execute()
    assert not breaker.can_execute()
    breaker.record_success()
    breaker.record_success()
    assert breaker.state == "closed"


def test_the_plain_trio_cannot_settle_a_trial_that_it_did_not_take(clock: ManualClock) -> None:
    breaker = opened(clock, half_open_max_calls=1)
    clock.advance(30.0)
    breaker.acquire()
    breaker.record_success()
    breaker.record_failure()
    assert breaker.state == "half_open"


def test_trials_of_the_plain_trio_from_an_earlier_period_are_not_settled_later(clock: ManualClock) -> None:
    breaker = opened(clock, half_open_max_calls=2)
    clock.advance(30.0)
    assert breaker.can_execute()
    breaker.acquire().failure()
    clock.advance(30.0)
    assert breaker.state == "half_open"
    assert breaker.can_execute()
    breaker.record_failure()
    assert breaker.state == "open"


def test_only_chosen_failure_types_count(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=1, clock=clock)
    for error in (ValueError("bad input"), PermissionError(13, "no"), AttributeError("bug")):
        breaker.record_failure(error)
        with pytest.raises(type(error)):
            breaker.call(raising(error))
    assert breaker.state == "closed"
    breaker.record_failure(ConnectionError())
    assert breaker.state == "open"

    chosen = CircuitBreaker(failure_threshold=1, failure_types=[FailureType.VALIDATION], clock=clock)
    chosen.record_failure(ConnectionError())
    assert chosen.state == "closed"
    chosen.record_failure(ValueError())
    assert chosen.state == "open"


def raising(error: BaseException) -> Callable[[], None]:
    def fn() -> None:
        raise error

    return fn


def test_a_call_exactly_as_long_as_the_slow_limit_is_not_slow(clock: ManualClock) -> None:
    breaker = CircuitBreaker(slow_call=2.0, slow_rate=1.0, window=2, min_calls=1, clock=clock)
    breaker.call(clock.advance, 2.0)
    assert breaker.state == "closed"
    breaker.record_success(duration=2.0)
    assert breaker.state == "closed"
    breaker.record_success(duration=2.0001)
    breaker.call(clock.advance, 2.5)
    assert breaker.state == "open"
    with pytest.raises(CircuitOpenError, match="opened by slow calls"):
        breaker.acquire()


def test_a_policy_measures_slow_calls_too(clock: ManualClock) -> None:
    breaker = CircuitBreaker(slow_call=2.0, slow_rate=0.5, window=10, min_calls=2, clock=clock)
    slow = Policy(breaker=breaker, clock=clock)(clock.advance)
    slow(1.0)
    assert breaker.state == "closed"
    slow(3.0)
    assert breaker.state == "open"


def test_a_failure_rate_over_a_time_window(clock: ManualClock) -> None:
    breaker = CircuitBreaker(window=timedelta(seconds=10), failure_rate=0.5, min_calls=4, clock=clock)
    for _ in range(3):
        breaker.record_failure()
    clock.advance(10.0)  # forgotten
    for record in (breaker.record_failure, breaker.record_success, breaker.record_success):
        record()
    assert breaker.state == "closed"
    breaker.record_failure()
    assert breaker.state == "open"


def test_it_closes_into_a_fresh_window(clock: ManualClock) -> None:
    breaker = CircuitBreaker(window=4, failure_rate=0.5, min_calls=2, half_open_max_calls=1, clock=clock)
    breaker.record_failure()
    breaker.record_failure()
    clock.advance(30.0)
    breaker.call(len, "")
    assert breaker.state == "closed"
    breaker.record_failure()
    assert breaker.state == "closed"  # the rate is unknown again


def test_an_error_that_does_not_count_is_not_in_the_window_of_a_rate_either(clock: ManualClock) -> None:
    breaker = CircuitBreaker(window=4, failure_rate=0.5, min_calls=2, clock=clock)
    for _ in range(9):
        breaker.record_failure(ValueError("my own mistake"))
        breaker.acquire().release()
    assert breaker.is_idle
    breaker.record_failure()
    breaker.record_failure(ValueError("my own mistake"))
    assert breaker.state == "closed"  # one call of two, so the rate is not known yet
    breaker.record_success()
    assert breaker.state == "open"


def test_what_opened_it_last_is_told_through_reopenings(clock: ManualClock) -> None:
    def cause() -> str | None:
        with pytest.raises(CircuitOpenError) as caught:
            breaker.acquire()
        return caught.value.cause

    breaker = opened(clock)
    causes = [cause()]
    for error in (None, ConnectionError("still down"), None):
        clock.advance(30.0)
        assert breaker.can_execute()
        breaker.record_failure(error)
        causes.append(cause())
    first, second = "ConnectionError: refused", "ConnectionError: still down"
    assert causes == [first, first, second, second]
    breaker.reset()
    breaker.record_failure()
    assert cause() is None  # that it opened earlier, and why, is over


def test_a_success_that_opens_it_by_making_the_rate_known_is_not_told_as_the_cause(clock: ManualClock) -> None:
    breaker = CircuitBreaker(window=10, failure_rate=0.5, min_calls=3, clock=clock)
    breaker.record_failure(ConnectionError("first"))
    breaker.record_failure(ConnectionError("last"))
    assert breaker.state == "closed"
    breaker.record_success()
    with pytest.raises(CircuitOpenError, match="opened by ConnectionError: last"):
        breaker.acquire()


@pytest.mark.parametrize("settings", [{"failure_threshold": 1}, {"window": 4, "failure_rate": 0.5, "min_calls": 1}])
def test_results_from_before_a_reset_change_nothing(settings: dict[str, Any], clock: ManualClock) -> None:
    breaker = CircuitBreaker(clock=clock, **settings)
    late = [breaker.acquire() for _ in range(2)]
    breaker.reset()
    late[0].failure(ConnectionError())
    late[1].success()
    assert breaker.state == "closed"
    assert breaker.is_idle


def test_a_late_success_does_not_reset_the_count_of_a_later_period(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=2, clock=clock)
    late = breaker.acquire()
    breaker.reset()
    breaker.record_failure()
    late.success()
    breaker.record_failure()
    assert breaker.state == "open"


def test_a_trial_of_the_plain_trio_that_has_expired_is_not_taken_for_the_one_that_ended(clock: ManualClock) -> None:
    breaker = opened(clock, half_open_max_calls=1, trial_timeout=5.0)
    clock.advance(30.0)
    assert breaker.can_execute()
    clock.advance(5.0)
    assert breaker.can_execute()
    breaker.record_success()
    assert breaker.state == "closed"


async def test_a_success_that_ends_after_others_have_failed_resets_their_count(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=2, clock=clock)

    def call() -> None:
        breaker.record_failure()  # another call fails while this one runs

    async def acall() -> None:
        call()

    for _ in range(3):
        breaker.call(call)
        await breaker.acall(acall)
    assert breaker.state == "closed"


def test_every_change_is_told_with_a_higher_period(clock: ManualClock) -> None:
    told: list[BreakerChanged] = []
    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=1, clock=clock, on_change=told.append)
    for _ in range(2):
        breaker.record_failure()
        clock.advance(30.0)
        breaker.call(len, "")
    for change in (breaker.force_open, breaker.reset, breaker.disable, breaker.reset):
        change()
    periods = [event.period for event in told]
    assert len(periods) == 10
    assert all(later > earlier for earlier, later in itertools.pairwise(periods))
    assert periods[-1] == breaker.admit().period


def test_by_hand(clock: ManualClock) -> None:
    breaker = CircuitBreaker("ledger", failure_threshold=1, clock=clock)
    breaker.force_open()
    assert breaker.state == "forced_open"
    clock.advance(1e6)
    with pytest.raises(CircuitOpenError, match="until it is reset by hand") as caught:
        breaker.acquire()
    assert caught.value.retry_after is None
    with pytest.raises(IllegalChange, match="forced_open cannot become disabled: reset it first"):
        breaker.disable()
    breaker.reset()
    breaker.disable()
    for _ in range(9):
        breaker.record_failure()
        breaker.acquire().failure()
    assert breaker.state == "disabled"
    assert breaker.call(len, "abc") == 3
    with pytest.raises(IllegalChange, match="disabled cannot become forced_open: reset it first"):
        breaker.force_open()
    breaker.reset()
    assert breaker.state == "closed"
    assert repr(breaker) == "<CircuitBreaker 'ledger' closed>"


def test_changes_are_told_and_logged(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    told: list[BreakerChanged] = []
    breaker = CircuitBreaker("ledger", failure_threshold=1, half_open_max_calls=1, clock=clock, on_change=told.append)
    with caplog.at_level(logging.INFO, "holdfast.breaker"):
        breaker.record_failure(ConnectionError("refused"))
        clock.advance(30.0)
        breaker.call(len, "")
    assert [(event.name, event.before.value, event.after.value, event.cause) for event in told] == [
        ("ledger", "closed", "open", "ConnectionError: refused"),
        ("ledger", "open", "half_open", "ConnectionError: refused"),
        ("ledger", "half_open", "closed", None),
    ]
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "circuit ledger: closed -> open: ConnectionError: refused"),
        ("WARNING", "circuit ledger: open -> half_open"),
        ("INFO", "circuit ledger: half_open -> closed"),
    ]


def test_a_listener_that_raises_is_logged_and_ignored(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    def bad(event: BreakerChanged) -> None:
        raise RuntimeError("a bug in the listener")

    breaker = CircuitBreaker("ledger", failure_threshold=1, clock=clock, on_change=bad)
    with caplog.at_level(logging.ERROR, "holdfast.breaker"):
        breaker.record_failure()
    assert breaker.state == "open"
    assert "a bug in the listener" in caplog.text


def test_half_open_lets_exactly_three_of_eight_threads_through(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(30.0)
    ready, done = threading.Barrier(8), threading.Barrier(8)

    def hammer(number: int) -> int:
        ready.wait(30)
        allowed = 0
        for _ in range(200):
            try:
                breaker.acquire()
            except CircuitOpenError:
                continue
            allowed += 1
        done.wait(30)
        return allowed

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(hammer, range(8))) == 3


async def test_half_open_lets_exactly_three_of_a_thousand_coroutines_through(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(30.0)
    let_through = 0
    refused = 0
    release = asyncio.Event()

    async def trial() -> None:
        nonlocal let_through
        let_through += 1
        await release.wait()

    async def caller() -> None:
        nonlocal refused
        try:
            await breaker.acall(trial)
        except CircuitOpenError:
            refused += 1
            if refused == 997:
                release.set()

    await asyncio.gather(*(caller() for _ in range(1000)))
    assert (let_through, refused) == (3, 997)
    assert breaker.state == "closed"


def test_eight_threads_of_failures_are_each_counted_once(clock: ManualClock) -> None:
    breaker = CircuitBreaker(failure_threshold=8 * 500, clock=clock)

    def fail(times: int) -> None:
        for _ in range(times):
            breaker.record_failure()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fail, [500] * 7 + [499]))
        assert breaker.state == "closed"
        list(pool.map(fail, [1]))
    assert breaker.state == "open"


def test_one_breaker_per_key_each_with_its_own_threshold(clock: ManualClock) -> None:
    breakers = CircuitBreakers(overrides={"payments": BreakerConfig(failure_threshold=2)}, clock=clock)
    assert breakers["mail"] is breakers["mail"]
    for _ in range(2):
        breakers["payments"].record_failure()
        breakers["mail"].record_failure()
    assert breakers["payments"].state == "open"
    assert breakers["mail"].state == "closed"
    assert sorted(breaker.name for breaker in breakers) == ["mail", "payments"]
    assert "mail" in breakers
    assert "male" not in breakers
    assert len(breakers) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CircuitBreakers(overrides={"mail": 3}), "overrides['mail']=3: must be a BreakerConfig"),  # type: ignore[dict-item]
        (lambda: CircuitBreakers({"mail": 3}), "config={'mail': 3}: must be a BreakerConfig"),  # type: ignore[arg-type]
        (lambda: CircuitBreakers(max_keys=0), "max_keys=0: must be a whole number of at least 1"),
        (lambda: CircuitBreaker.of(5), "config=5: must be a BreakerConfig"),  # type: ignore[arg-type]
        (
            lambda: CircuitBreaker(failure_types="network"),  # type: ignore[arg-type]
            "failure_types='network': must be a set of FailureTypes, at least one",
        ),
        (
            lambda: CircuitBreaker(failure_types=5),  # type: ignore[arg-type]
            "failure_types=5: must be a set of FailureTypes, at least one",
        ),
    ],
)
def test_impossible_settings_are_refused_when_it_is_made(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()
    assert str(refused.value) == message


def test_keys_from_outside_do_not_fill_the_memory_and_open_breakers_are_kept(clock: ManualClock) -> None:
    breakers = CircuitBreakers(BreakerConfig(failure_threshold=1), max_keys=10, clock=clock)
    for number in range(5):
        breakers[f"bad {number}"].record_failure()
    for number in range(1000):
        breakers[f"good {number}"].call(len, "")
    assert len(breakers) <= 10
    assert sum(breaker.state == "open" for breaker in breakers) == 5


def test_a_breaker_with_calls_in_its_window_is_not_forgotten(clock: ManualClock) -> None:
    config = BreakerConfig(window=timedelta(seconds=10), failure_rate=0.5, min_calls=4)
    breaker = CircuitBreaker.of(config, clock=clock)
    seen = [breaker.is_idle]
    breaker.record_failure()
    seen.append(breaker.is_idle)
    clock.advance(10.0)
    seen.append(breaker.is_idle)
    assert seen == [True, False, True]


def test_a_breaker_that_has_counted_a_failure_is_not_as_good_as_new(clock: ManualClock) -> None:
    breakers = CircuitBreakers(BreakerConfig(failure_threshold=2), max_keys=1, clock=clock)
    breakers["ledger"].record_failure()
    assert not breakers["ledger"].is_idle
    for number in range(5):
        breakers[f"visitor {number}"]
    breakers["ledger"].record_failure()
    assert breakers["ledger"].state == "open"


def test_a_breaker_that_is_not_closed_is_not_as_good_as_new(clock: ManualClock) -> None:
    for change in (CircuitBreaker.force_open, CircuitBreaker.disable):
        breaker = CircuitBreaker(clock=clock)
        change(breaker)
        assert not breaker.is_idle


def swept(clock: ManualClock) -> tuple[CircuitBreakers, CircuitBreaker]:
    """Breakers, and the one of "ledger", which has been forgotten since it was asked for."""
    breakers = CircuitBreakers(BreakerConfig(failure_threshold=1), max_keys=1, clock=clock)
    ledger = breakers["ledger"]
    for number in range(3):
        breakers[f"visitor {number}"]
    assert "ledger" not in breakers
    return breakers, ledger


def test_a_breaker_that_was_forgotten_during_a_call_counts_its_failure_and_is_found_again(clock: ManualClock) -> None:
    breakers, ledger = swept(clock)
    with pytest.raises(ConnectionError):
        ledger.call(raising(ConnectionError("refused")))
    del ledger
    gc.collect()
    assert "ledger" in breakers
    assert breakers["ledger"].state == "open"


def test_a_call_that_fails_while_its_breaker_is_forgotten_opens_it(clock: ManualClock) -> None:
    breakers = CircuitBreakers(BreakerConfig(failure_threshold=1), max_keys=1, clock=clock)

    @Policy(breaker=breakers, key=lambda key: key, clock=clock)
    def call(key: str) -> None:
        for number in range(3):
            breakers[f"visitor {number}"]
        assert key not in breakers
        raise ConnectionError("refused")

    with pytest.raises(ConnectionError):
        call("ledger")
    assert breakers["ledger"].state == "open"


def test_an_operators_handle_on_a_forgotten_breaker_still_holds_what_the_key_gives(clock: ManualClock) -> None:
    breakers, ledger = swept(clock)
    ledger.force_open()
    assert breakers["ledger"] is ledger
    breakers, ledger = swept(clock)
    assert breakers["ledger"] is ledger
    ledger.force_open()
    with pytest.raises(CircuitOpenError):
        breakers["ledger"].acquire()


def test_state_compares_as_text_and_as_a_member() -> None:
    assert CircuitBreaker().state == "closed"
    assert CircuitBreaker().state is BreakerMode.CLOSED
