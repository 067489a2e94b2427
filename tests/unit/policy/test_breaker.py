"""The circuit breaker's rules, one by one."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import IllegalChange
from holdfast.policy import breaker as rules
from holdfast.policy.breaker import BreakerConfig, BreakerState, Outcome, Permit, Rejection
from holdfast.policy.window import Totals
from holdfast.types import BreakerMode

CLOSED, OPEN, HALF_OPEN = BreakerMode.CLOSED, BreakerMode.OPEN, BreakerMode.HALF_OPEN
FORCED_OPEN, DISABLED = BreakerMode.FORCED_OPEN, BreakerMode.DISABLED
OK, BAD, IGNORED = Outcome.SUCCESS, Outcome.FAILURE, Outcome.IGNORED


class Breaker:
    """A state and its window, moved by the rules as the guards do it."""

    def __init__(self, now: float = 100.0, **settings: Any) -> None:
        self.config = BreakerConfig(**settings)
        self.now = now
        self.window = self.config.new_window()
        self.state = BreakerState()

    @property
    def mode(self) -> BreakerMode:
        return self.state.mode

    def ask(self) -> Permit | Rejection:
        state, answer = rules.admit(self.config, self.state, self.now)
        self.become(state)
        return answer

    def admit(self) -> Permit:
        answer = self.ask()
        assert isinstance(answer, Permit)
        return answer

    def reject(self) -> Rejection:
        answer = self.ask()
        assert isinstance(answer, Rejection)
        return answer

    def settle(self, permit: Permit, outcome: Outcome, *, slow: bool = False) -> BreakerMode:
        totals = None
        if self.window is not None and outcome is not IGNORED and permit.period == self.state.period:
            self.window.add(self.now, failed=outcome is BAD, slow=slow)
            totals = self.window.totals(self.now)
        self.become(rules.record(self.config, self.state, permit, outcome, self.now, slow=slow, totals=totals))
        return self.mode

    def call(self, outcome: Outcome, *, slow: bool = False) -> BreakerMode:
        return self.settle(self.admit(), outcome, slow=slow)

    def calls(self, *outcomes: Outcome) -> BreakerMode:
        for outcome in outcomes:
            self.call(outcome)
        return self.mode

    def become(self, state: BreakerState) -> None:
        if state.period != self.state.period:
            self.window = self.config.new_window()
        self.state = state

    def open(self) -> None:
        """Fail until it opens."""
        for _ in range(100):
            if self.mode is CLOSED:
                self.call(BAD)
        assert self.mode is OPEN

    def half_open(self) -> None:
        """Open it, and wait until trials begin; a first trial is asked for and given back."""
        self.open()
        self.now = self.state.until
        self.settle(self.admit(), IGNORED)
        assert self.mode is HALF_OPEN


# ---- closed: consecutive failures


def test_a_new_breaker_is_closed_in_its_first_period() -> None:
    state = BreakerState()
    assert (state.mode, state.period, state.failures, state.reopenings, state.cause) == (CLOSED, 1, 0, 0, None)


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_it_opens_at_the_threshold_of_consecutive_failures_and_not_before(threshold: int) -> None:
    breaker = Breaker(failure_threshold=threshold)
    assert [breaker.call(BAD) for _ in range(threshold)] == [CLOSED] * (threshold - 1) + [OPEN]


def test_successes_reset_the_count() -> None:
    breaker = Breaker(failure_threshold=3)
    assert breaker.calls(BAD, BAD, OK, BAD, BAD) is CLOSED
    assert breaker.state.failures == 2
    assert breaker.calls(BAD) is OPEN


def test_ignored_calls_neither_reset_nor_raise_the_count() -> None:
    breaker = Breaker(failure_threshold=3)
    assert breaker.calls(BAD, BAD, IGNORED, IGNORED, IGNORED) is CLOSED
    assert breaker.state.failures == 2
    assert breaker.calls(BAD) is OPEN


def test_a_success_that_changes_nothing_leaves_the_very_same_state() -> None:
    breaker = Breaker()
    before = breaker.state
    breaker.calls(OK, IGNORED)
    assert breaker.state is before


def test_failures_of_calls_that_overlap_count_in_the_order_of_their_results() -> None:
    breaker = Breaker(failure_threshold=2)
    first, second, third = breaker.admit(), breaker.admit(), breaker.admit()
    assert [breaker.settle(third, BAD), breaker.settle(first, OK), breaker.settle(second, BAD)] == [CLOSED] * 3


# ---- closed: rates


def test_the_rate_is_unknown_below_min_calls() -> None:
    breaker = Breaker(failure_rate=0.5, min_calls=4, window=10)
    assert [breaker.call(BAD) for _ in range(4)] == [CLOSED, CLOSED, CLOSED, OPEN]


@pytest.mark.parametrize("settings", [{"failure_rate": 0.5}, {"slow_rate": 0.5, "slow_call": 1.0}])
def test_a_success_may_trip_it_by_making_the_rate_known(settings: dict[str, Any]) -> None:
    breaker = Breaker(min_calls=3, window=10, **settings)
    outcome, slow = (BAD, False) if "failure_rate" in settings else (OK, True)
    assert breaker.call(outcome, slow=slow) is CLOSED
    assert breaker.call(outcome, slow=slow) is CLOSED
    assert breaker.call(OK) is OPEN


@pytest.mark.parametrize(
    ("rate", "failures", "calls"),
    [
        (0.1, 3, 30),
        (0.3, 3, 10),
        (0.7, 7, 10),
        (0.6, 3, 5),
        (0.29, 29, 100),
        (0.57, 57, 100),
        (1 / 3, 1, 3),
        (1.0, 7, 7),
        (0.01, 1, 100),
    ],
)
def test_a_rate_trips_exactly_at_its_threshold(rate: float, failures: int, calls: int) -> None:
    breaker = Breaker(failure_rate=rate, min_calls=calls, window=1000)
    breaker.calls(*[BAD] * (failures - 1), *[OK] * (calls - failures))
    assert breaker.mode is CLOSED
    assert breaker.call(BAD) is OPEN

    slow = Breaker(slow_rate=rate, slow_call=1.0, min_calls=calls, window=1000)
    for number in range(calls - 1):
        slow.call(OK, slow=number < failures - 1)
    assert slow.mode is CLOSED
    assert slow.call(OK, slow=True) is OPEN


def test_a_rate_one_call_below_its_threshold_does_not_trip() -> None:
    breaker = Breaker(failure_rate=0.1, min_calls=31, window=31)
    assert breaker.calls(*[BAD] * 3, *[OK] * 28, *[OK] * 100) is CLOSED


def test_only_the_calls_in_the_window_count() -> None:
    breaker = Breaker(failure_rate=0.5, min_calls=4, window=4)
    assert breaker.calls(BAD, OK, OK, OK) is CLOSED
    assert breaker.calls(BAD, OK, OK, OK) is CLOSED  # the failure before leaves as this one comes
    assert breaker.calls(BAD) is CLOSED
    assert breaker.calls(BAD) is OPEN


def test_a_time_window_forgets_by_time() -> None:
    breaker = Breaker(failure_rate=0.5, min_calls=2, window=timedelta(seconds=10))
    breaker.call(BAD)
    breaker.now += 10.0
    assert breaker.call(BAD) is CLOSED  # alone in the window: unknown
    breaker.now += 9.99
    assert breaker.call(OK) is OPEN


def test_with_failure_rate_the_consecutive_threshold_is_not_used() -> None:
    breaker = Breaker(failure_threshold=1, failure_rate=1.0, min_calls=5, window=10)
    assert breaker.calls(BAD, BAD, BAD, BAD) is CLOSED
    assert breaker.state.failures == 0
    assert breaker.calls(BAD) is OPEN


def test_slow_rate_alone_keeps_the_consecutive_threshold() -> None:
    breaker = Breaker(failure_threshold=3, slow_rate=1.0, slow_call=1.0, min_calls=10)
    assert breaker.calls(BAD, BAD, OK, BAD, BAD) is CLOSED
    assert breaker.calls(BAD) is OPEN


def test_failures_do_not_count_as_slow_nor_slow_calls_as_failures() -> None:
    by_slow = Breaker(slow_rate=0.5, slow_call=1.0, min_calls=2, failure_threshold=100)
    assert by_slow.calls(*[BAD] * 50) is CLOSED
    by_failures = Breaker(failure_rate=0.5, min_calls=2)
    for _ in range(50):
        assert by_failures.call(OK, slow=True) is CLOSED


def test_either_rate_trips_it() -> None:
    settings: dict[str, Any] = {"failure_rate": 0.5, "slow_rate": 0.5, "slow_call": 1.0, "min_calls": 2}
    assert Breaker(**settings).calls(BAD, OK) is OPEN
    slow = Breaker(**settings)
    assert slow.call(OK, slow=True) is CLOSED
    assert slow.call(OK) is OPEN


def test_an_ignored_call_never_trips_it() -> None:
    breaker = Breaker(failure_rate=0.5, min_calls=1)
    full = Totals(calls=10, failures=10, slow=10)
    after = rules.record(breaker.config, breaker.state, breaker.admit(), IGNORED, breaker.now, totals=full)
    assert after is breaker.state


# ---- open


def test_while_open_a_rejection_carries_the_remaining_time_and_the_cause() -> None:
    breaker = Breaker(recovery_timeout=30.0)
    breaker.open()
    breaker.state = replace(breaker.state, cause="TimeoutError: no answer")
    for passed, remaining in [(0.0, 30.0), (0.5, 29.5), (29.0, 0.5)]:
        breaker.now += passed
        assert breaker.reject() == Rejection(retry_after=remaining, cause="TimeoutError: no answer")
    assert breaker.mode is OPEN


def test_after_exactly_the_recovery_timeout_a_call_is_let_through() -> None:
    breaker = Breaker(now=100.0, recovery_timeout=30.0)
    breaker.open()
    assert breaker.state.until == 130.0
    breaker.now = math.nextafter(130.0, 0.0)
    breaker.reject()
    breaker.now = 130.0
    assert breaker.admit() == Permit(breaker.state.period, trial=1)
    assert breaker.mode is HALF_OPEN


def test_asking_for_the_state_ages_it_without_a_call() -> None:
    breaker = Breaker(now=100.0)
    breaker.open()
    assert rules.aged(breaker.state, 129.9) is breaker.state
    assert rules.aged(breaker.state, 130.0).mode is HALF_OPEN


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("settings", [{}, {"failure_rate": 0.01, "min_calls": 1}])
def test_late_results_while_open_change_nothing(outcome: Outcome, settings: dict[str, Any]) -> None:
    breaker = Breaker(**settings)
    late = breaker.admit()
    breaker.open()
    before = breaker.state
    breaker.settle(late, outcome, slow=True)
    assert breaker.state is before


@pytest.mark.parametrize("outcome", list(Outcome))
def test_late_results_of_a_closed_period_change_nothing_in_any_later_one(outcome: Outcome) -> None:
    breaker = Breaker(half_open_max_calls=1)
    late = breaker.admit()
    breaker.half_open()
    before = breaker.state
    breaker.settle(late, outcome)
    assert breaker.state is before
    breaker.call(OK)
    assert breaker.mode is CLOSED
    before = breaker.state
    breaker.settle(late, outcome)
    assert breaker.state is before


def test_results_given_while_open_with_a_permit_of_this_period_change_nothing() -> None:
    breaker = Breaker()
    breaker.open()
    before = breaker.state
    for outcome in Outcome:
        breaker.settle(Permit(breaker.state.period), outcome)
    assert breaker.state is before


# ---- half-open


@pytest.mark.parametrize("trials", [1, 3, 7])
def test_half_open_lets_exactly_so_many_through(trials: int) -> None:
    breaker = Breaker(half_open_max_calls=trials)
    breaker.half_open()
    answers = [breaker.ask() for _ in range(trials + 5)]
    assert [isinstance(answer, Permit) for answer in answers] == [True] * trials + [False] * 5


def test_half_open_counts_those_in_flight_and_those_done_together() -> None:
    breaker = Breaker(half_open_max_calls=3)
    breaker.half_open()
    first, second = breaker.admit(), breaker.admit()
    assert breaker.settle(first, OK) is HALF_OPEN
    third = breaker.admit()
    breaker.reject()  # one done, two in flight
    assert breaker.settle(third, OK) is HALF_OPEN
    breaker.reject()  # two done, one in flight
    assert breaker.settle(second, OK) is CLOSED


def test_trials_have_numbers_of_their_own() -> None:
    breaker = Breaker()
    breaker.half_open()
    period = breaker.state.period
    assert [breaker.admit() for _ in range(3)] == [Permit(period, 2), Permit(period, 3), Permit(period, 4)]


@pytest.mark.parametrize(("recovery_timeout", "ask_again"), [(30.0, 1.0), (1.0, 1.0), (0.25, 0.25)])
def test_a_rejection_while_half_open_says_to_ask_again_soon_and_carries_the_cause(
    recovery_timeout: float, ask_again: float
) -> None:
    breaker = Breaker(half_open_max_calls=1, recovery_timeout=recovery_timeout)
    breaker.open()
    breaker.state = replace(breaker.state, cause="OSError: down")
    breaker.now = breaker.state.until
    breaker.admit()
    assert breaker.reject() == Rejection(retry_after=ask_again, cause="OSError: down")


def test_it_closes_after_so_many_good_trials_and_forgets_everything() -> None:
    breaker = Breaker(half_open_max_calls=2)
    breaker.half_open()
    breaker.state = replace(breaker.state, cause="OSError: down", reopenings=4)
    period = breaker.state.period
    assert breaker.calls(OK) is HALF_OPEN
    assert breaker.calls(OK) is CLOSED
    assert breaker.state == BreakerState(period=period + 1)


def test_one_failed_trial_opens_it_again() -> None:
    breaker = Breaker(half_open_max_calls=3, recovery_timeout=30.0)
    breaker.half_open()
    breaker.calls(OK, OK)
    breaker.now += 5.0
    assert breaker.call(BAD) is OPEN
    assert breaker.state.until == breaker.now + 30.0
    assert breaker.state.reopenings == 1


def test_the_cause_stays_when_it_opens_again() -> None:
    breaker = Breaker()
    breaker.half_open()
    breaker.state = replace(breaker.state, cause="OSError: down")
    breaker.call(BAD)
    assert breaker.state.cause == "OSError: down"


def test_the_other_trials_of_a_period_that_is_over_change_nothing() -> None:
    breaker = Breaker(half_open_max_calls=3)
    breaker.half_open()
    bad, good, ignored = breaker.admit(), breaker.admit(), breaker.admit()
    breaker.settle(bad, BAD)
    before = breaker.state
    breaker.settle(good, OK)
    breaker.settle(ignored, IGNORED)
    assert breaker.state is before


def test_a_trial_of_one_half_open_period_is_late_in_the_next() -> None:
    breaker = Breaker(half_open_max_calls=2)
    breaker.half_open()
    bad, late = breaker.admit(), breaker.admit()
    breaker.settle(bad, BAD)
    breaker.now = breaker.state.until
    breaker.admit()
    before = breaker.state
    breaker.settle(late, BAD)
    assert breaker.state is before


def test_half_open_begins_with_no_trials_and_no_counts() -> None:
    breaker = Breaker(failure_rate=0.5, min_calls=1, half_open_max_calls=3)
    breaker.half_open()
    breaker.admit()
    assert breaker.calls(OK, OK) is HALF_OPEN
    assert breaker.state.trial_totals == Totals(2, 0, 0)
    breaker.state = rules._opened(breaker.config, breaker.state, breaker.now)
    breaker.now = breaker.state.until
    aged = rules.aged(breaker.state, breaker.now)
    assert (aged.trials, aged.trials_given, aged.trial_totals) == ((), 0, Totals())


def test_an_ignored_trial_gives_its_permit_back() -> None:
    breaker = Breaker(half_open_max_calls=1)
    breaker.half_open()
    for _ in range(5):
        permit = breaker.admit()
        breaker.reject()
        assert breaker.settle(permit, IGNORED) is HALF_OPEN
    assert breaker.state.trial_totals == Totals()
    assert breaker.call(OK) is CLOSED


def test_a_trial_given_back_leaves_the_others_in_flight() -> None:
    breaker = Breaker(half_open_max_calls=2)
    breaker.half_open()
    breaker.admit()
    breaker.settle(breaker.admit(), IGNORED)
    breaker.admit()
    breaker.reject()


def test_an_expired_trial_gives_its_place_to_another() -> None:
    breaker = Breaker(half_open_max_calls=1, trial_timeout=60.0)
    breaker.half_open()
    breaker.admit()
    breaker.now += 59.999
    breaker.reject()
    breaker.now = breaker.state.trials[0].expires_at
    breaker.admit()
    breaker.reject()


def test_only_expired_trials_lose_their_places() -> None:
    breaker = Breaker(half_open_max_calls=2, trial_timeout=60.0)
    breaker.half_open()
    breaker.admit()
    breaker.now += 30.0
    second = breaker.admit()
    breaker.now += 30.0
    third = breaker.admit()
    breaker.reject()
    assert [trial.number for trial in breaker.state.trials] == [second.trial, third.trial]


@pytest.mark.parametrize("outcome", [OK, BAD])
def test_a_trial_that_comes_back_after_its_time_is_not_counted(outcome: Outcome) -> None:
    breaker = Breaker(half_open_max_calls=1, trial_timeout=60.0)
    breaker.half_open()
    slow_one = breaker.admit()
    breaker.now += 60.0
    assert breaker.settle(slow_one, outcome) is HALF_OPEN
    new_one = breaker.admit()
    assert breaker.settle(slow_one, outcome) is HALF_OPEN
    assert len(breaker.state.trials) == 1
    assert breaker.settle(new_one, OK) is CLOSED


def test_a_trial_is_counted_once() -> None:
    breaker = Breaker(half_open_max_calls=2)
    breaker.half_open()
    permit = breaker.admit()
    assert [breaker.settle(permit, OK) for _ in range(3)] == [HALF_OPEN] * 3


# ---- half-open with rates: a fresh window


def test_half_open_counts_in_a_fresh_window() -> None:
    breaker = Breaker(failure_rate=0.6, min_calls=3, window=3, half_open_max_calls=3)
    assert breaker.calls(BAD, BAD, BAD) is OPEN
    breaker.now = breaker.state.until
    assert breaker.calls(OK, BAD) is HALF_OPEN  # with the failures from before it would be at once too many
    assert breaker.calls(OK) is CLOSED


def test_closed_again_it_counts_in_a_fresh_window_too() -> None:
    breaker = Breaker(failure_rate=0.6, min_calls=3, window=10, half_open_max_calls=1)
    breaker.calls(BAD, BAD, BAD)
    breaker.now = breaker.state.until
    assert breaker.calls(OK) is CLOSED
    assert breaker.calls(BAD, BAD) is CLOSED
    assert breaker.calls(BAD) is OPEN


@pytest.mark.parametrize(
    ("min_calls", "outcomes", "expected"),
    [
        (10, [BAD, BAD, OK], [HALF_OPEN, HALF_OPEN, OPEN]),  # known once all three trials are in
        (10, [BAD, OK, OK], [HALF_OPEN, HALF_OPEN, CLOSED]),
        (2, [BAD, BAD], [HALF_OPEN, OPEN]),
        (2, [OK, BAD], [HALF_OPEN, OPEN]),  # 1 of 2 is the threshold
        (1, [BAD], [OPEN]),
        (1, [OK, OK, BAD], [HALF_OPEN, HALF_OPEN, CLOSED]),  # 1 of 3 is below it
    ],
)
def test_with_failure_rate_the_trials_reopen_it_when_the_fresh_window_says_so(
    min_calls: int, outcomes: list[Outcome], expected: list[BreakerMode]
) -> None:
    breaker = Breaker(failure_rate=0.5, min_calls=min_calls, half_open_max_calls=3)
    breaker.half_open()
    assert [breaker.call(outcome) for outcome in outcomes] == expected


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        ([True, True, False], [HALF_OPEN, HALF_OPEN, OPEN]),
        ([True, False, False], [HALF_OPEN, HALF_OPEN, CLOSED]),
    ],
)
def test_slow_trials_reopen_it_by_their_rate(slow: list[bool], expected: list[BreakerMode]) -> None:
    breaker = Breaker(slow_rate=0.5, slow_call=1.0, min_calls=10, half_open_max_calls=3)
    breaker.half_open()
    assert [breaker.call(OK, slow=one) for one in slow] == expected


def test_with_slow_rate_alone_one_failed_trial_opens_it_again() -> None:
    breaker = Breaker(slow_rate=1.0, slow_call=1.0, half_open_max_calls=3)
    breaker.half_open()
    assert breaker.call(BAD) is OPEN


def test_a_trial_is_not_slow_unless_said_so() -> None:
    breaker = Breaker(slow_rate=0.5, slow_call=1.0, half_open_max_calls=1)
    breaker.half_open()
    permit = breaker.admit()
    after = rules.record(breaker.config, breaker.state, permit, OK, breaker.now)
    assert after.mode is CLOSED


def test_slow_trials_do_not_matter_without_a_slow_rate() -> None:
    breaker = Breaker(half_open_max_calls=2)
    breaker.half_open()
    assert [breaker.call(OK, slow=True) for _ in range(2)] == [HALF_OPEN, CLOSED]


# ---- how long it stays open


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [30, 30, 30, 30]),
        ({"recovery_factor": 2.0}, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]),
        ({"recovery_factor": 2.0, "max_recovery_timeout": 100.0}, [30, 60, 100, 100]),
        ({"recovery_factor": 1.5, "recovery_timeout": 10.0}, [10, 15, 22.5]),
        ({"recovery_timeout": 7200.0, "recovery_factor": 2.0}, [7200, 7200, 7200]),  # longer than the hour's cap
        ({"recovery_factor": 2.0, "max_recovery_timeout": 30.0}, [30, 30]),
        ({"recovery_factor": 10.0, "max_recovery_timeout": 1e6}, [30, 300, 3000, 30_000, 300_000, 1e6]),
    ],
)
def test_the_open_time_grows_by_the_factor_up_to_the_cap(settings: dict[str, Any], expected: list[float]) -> None:
    breaker = Breaker(**settings)
    breaker.open()
    open_times = []
    for _ in expected:
        open_times.append(breaker.state.until - breaker.now)
        breaker.now = breaker.state.until
        breaker.call(BAD)
    assert open_times == expected


@pytest.mark.parametrize("factor", [2, 2.0, 1e300])
def test_an_open_time_beyond_all_floats_is_held_at_the_cap(factor: float) -> None:
    assert rules.open_time(BreakerConfig(recovery_factor=factor), 100_000) == 3600.0


def test_closing_begins_the_open_times_anew() -> None:
    breaker = Breaker(recovery_factor=2.0, half_open_max_calls=1)
    breaker.open()
    for _ in range(2):
        breaker.now = breaker.state.until
        breaker.call(BAD)
    assert breaker.state.until - breaker.now == 120.0
    breaker.now = breaker.state.until
    assert breaker.call(OK) is CLOSED
    breaker.open()
    assert (breaker.state.until - breaker.now, breaker.state.reopenings) == (30.0, 0)


# ---- by hand


def in_mode(mode: BreakerMode) -> Breaker:
    breaker = Breaker()
    match mode:
        case BreakerMode.CLOSED:
            breaker.calls(BAD, BAD)
        case BreakerMode.OPEN:
            breaker.open()
        case BreakerMode.HALF_OPEN:
            breaker.half_open()
        case BreakerMode.FORCED_OPEN:
            breaker.open()
            breaker.become(rules.force_open(breaker.state))
        case BreakerMode.DISABLED:
            breaker.open()
            breaker.become(rules.disable(breaker.state))
    assert breaker.mode is mode
    breaker.state = replace(breaker.state, cause="OSError: down")
    return breaker


@pytest.mark.parametrize("mode", list(BreakerMode))
def test_reset_closes_it_from_every_state_and_begins_anew(mode: BreakerMode) -> None:
    breaker = in_mode(mode)
    assert rules.reset(breaker.state) == BreakerState(period=breaker.state.period + 1)


@pytest.mark.parametrize("mode", [CLOSED, OPEN, HALF_OPEN])
@pytest.mark.parametrize(("change", "target"), [(rules.force_open, FORCED_OPEN), (rules.disable, DISABLED)])
def test_by_hand_it_is_held_open_or_switched_off_and_keeps_its_cause(
    mode: BreakerMode, change: Any, target: BreakerMode
) -> None:
    breaker = in_mode(mode)
    expected = BreakerState(mode=target, period=breaker.state.period + 1, cause="OSError: down")
    assert change(breaker.state) == expected


@pytest.mark.parametrize(("change", "mode"), [(rules.force_open, FORCED_OPEN), (rules.disable, DISABLED)])
def test_the_same_change_by_hand_twice_is_one(change: Any, mode: BreakerMode) -> None:
    state = in_mode(mode).state
    assert change(state) is state


def test_illegal_changes_by_hand_are_refused() -> None:
    with pytest.raises(IllegalChange) as refused:
        rules.disable(in_mode(FORCED_OPEN).state)
    assert str(refused.value) == "a breaker that is forced_open cannot become disabled: reset it first"
    with pytest.raises(IllegalChange) as refused:
        rules.force_open(in_mode(DISABLED).state)
    assert str(refused.value) == "a breaker that is disabled cannot become forced_open: reset it first"


def test_forced_open_rejects_without_end_and_changes_by_nothing() -> None:
    breaker = in_mode(FORCED_OPEN)
    before = breaker.state
    for _ in range(3):
        breaker.now += 1e9
        assert breaker.reject() == Rejection(retry_after=None, cause="OSError: down")
        for outcome in Outcome:
            breaker.settle(Permit(before.period), outcome)
    assert breaker.state is before


def test_disabled_lets_everything_through_and_counts_nothing() -> None:
    breaker = in_mode(DISABLED)
    before = breaker.state
    for _ in range(100):
        assert breaker.admit() == Permit(before.period)
        breaker.calls(BAD, OK)
    assert breaker.state is before


def test_permits_from_before_a_change_by_hand_change_nothing() -> None:
    breaker = Breaker(failure_threshold=1)
    late = breaker.admit()
    breaker.become(rules.reset(breaker.state))
    before = breaker.state
    assert breaker.settle(late, BAD) is CLOSED
    assert breaker.state is before


# ---- calm: the fast path may skip the report


@pytest.mark.parametrize(
    ("mode", "calm"), [(CLOSED, True), (OPEN, False), (HALF_OPEN, False), (FORCED_OPEN, False), (DISABLED, True)]
)
def test_it_is_calm_where_a_success_changes_nothing(mode: BreakerMode, calm: bool) -> None:
    assert rules.is_calm(BreakerConfig(), BreakerState(mode=mode)) is calm


def test_it_is_not_calm_with_failures_counted_or_a_window_to_fill() -> None:
    assert not rules.is_calm(BreakerConfig(), BreakerState(failures=1))
    assert not rules.is_calm(BreakerConfig(failure_rate=0.5), BreakerState())
    assert not rules.is_calm(BreakerConfig(slow_rate=0.5, slow_call=1.0), BreakerState())
    assert rules.is_calm(BreakerConfig(failure_rate=0.5), BreakerState(mode=DISABLED))
