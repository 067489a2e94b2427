"""The breaker against a plain model that keeps every call there ever was and works everything out anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.errors import IllegalChange
from holdfast.policy import breaker as rules
from holdfast.policy.breaker import BreakerConfig, BreakerState, Outcome, Permit, Rejection
from holdfast.types import BreakerMode

CLOSED, OPEN, HALF_OPEN = BreakerMode.CLOSED, BreakerMode.OPEN, BreakerMode.HALF_OPEN
FORCED_OPEN, DISABLED = BreakerMode.FORCED_OPEN, BreakerMode.DISABLED
BY_HAND: dict[BreakerMode, Callable[[BreakerState], BreakerState]] = {
    CLOSED: rules.reset,
    FORCED_OPEN: rules.force_open,
    DISABLED: rules.disable,
}
TENTHS_OF_TIME_WINDOW = 10


@dataclass(eq=False)
class Call:
    """One call that was let through."""

    period: int
    given_at: float
    is_trial: bool
    ended_at: float | None = None
    outcome: Outcome | None = None
    slow: bool = False


@dataclass
class Model:
    """What a breaker is, told once more and simply. Times are quarters of a second, so nothing is rounded."""

    config: BreakerConfig
    failure_rate: Fraction | None
    slow_rate: Fraction | None
    mode: BreakerMode = CLOSED
    period: int = 1
    until: float = 0.0
    openings: int = 0
    """Since it was last closed."""
    calls: list[Call] = field(default_factory=list)

    def age(self, now: float) -> None:
        if self.mode is OPEN and now >= self.until:
            self._begin(HALF_OPEN)

    def places_taken(self, now: float) -> int:
        """Trials that have come back with a result, and those in flight that have not expired."""
        mine = [call for call in self.calls if call.period == self.period and call.is_trial]
        done = [call for call in mine if call.outcome in (Outcome.SUCCESS, Outcome.FAILURE)]
        return len(done) + len(self.in_flight(now))

    def in_flight(self, now: float) -> list[Call]:
        return [
            call
            for call in self.calls
            if call.period == self.period
            and call.is_trial
            and call.outcome is None
            and now < call.given_at + self.config.trial_timeout
        ]

    def admits(self, now: float) -> bool:
        self.age(now)
        if self.mode is HALF_OPEN:
            return self.places_taken(now) < self.config.half_open_max_calls
        return self.mode in (CLOSED, DISABLED)

    def settle(self, call: Call, outcome: Outcome, *, slow: bool, now: float) -> None:
        if call.is_trial and now >= call.given_at + self.config.trial_timeout:
            outcome = Outcome.IGNORED  # its time was over
        call.ended_at, call.outcome, call.slow = now, outcome, slow
        self.calls.remove(call)
        self.calls.append(call)  # in the order of their results
        if call.period != self.period or outcome is Outcome.IGNORED:
            return
        if self.mode is CLOSED and (self._rates_say_open(self._in_window(now)) or self._failed_too_often()):
            self._open(now, 1)
        elif self.mode is HALF_OPEN:
            trials = self._counted()
            failed = self.failure_rate is None and any(one.outcome is Outcome.FAILURE for one in trials)
            if failed or self._rates_say_open(trials, at_most=self.config.half_open_max_calls):
                self._open(now, self.openings + 1)
            elif len(trials) == self.config.half_open_max_calls:
                self._begin(CLOSED)

    def set_by_hand(self, mode: BreakerMode) -> None:
        if mode is CLOSED or mode is not self.mode:
            self._begin(mode)

    def _counted(self) -> list[Call]:
        counted = (Outcome.SUCCESS, Outcome.FAILURE)
        return [call for call in self.calls if call.period == self.period and call.outcome in counted]

    def _in_window(self, now: float) -> list[Call]:
        calls, window = self._counted(), self.config.window
        if not isinstance(window, timedelta):
            return calls[-window:] if window else calls
        inside, began = list[Call](), float("-inf")
        for call in calls:
            assert call.ended_at is not None
            if call.ended_at - began >= window.total_seconds() / TENTHS_OF_TIME_WINDOW:
                began = call.ended_at
            if now - began < window.total_seconds():
                inside.append(call)
        return inside

    def _rates_say_open(self, calls: list[Call], at_most: int | None = None) -> bool:
        known_from = self.config.min_calls or 1
        if len(calls) < (known_from if at_most is None else min(known_from, at_most)):
            return False
        failures = Fraction(sum(call.outcome is Outcome.FAILURE for call in calls), len(calls))
        slow = Fraction(sum(call.slow for call in calls), len(calls))
        by_failures = self.failure_rate is not None and failures >= self.failure_rate
        return by_failures or (self.slow_rate is not None and slow >= self.slow_rate)

    def _failed_too_often(self) -> bool:
        last = self._counted()[-self.config.failure_threshold :]
        in_a_row = len(last) == self.config.failure_threshold and all(one.outcome is Outcome.FAILURE for one in last)
        return in_a_row and self.failure_rate is None

    def _open(self, now: float, openings: int) -> None:
        self._begin(OPEN)
        self.openings = openings
        length = self.config.recovery_timeout
        for _ in range(openings - 1):
            length *= self.config.recovery_factor
        longest = self.config.max_recovery_timeout
        self.until = now + min(length, 3600.0 if longest is None else longest)

    def _begin(self, mode: BreakerMode) -> None:
        self.mode = mode
        self.period += 1
        if mode in (CLOSED, FORCED_OPEN, DISABLED):
            self.openings = 0


rates = st.sampled_from(["0.1", "0.2", "0.25", "0.3", "0.5", "0.6", "0.7", "1"])
windows = st.one_of(st.integers(1, 12), st.sampled_from([2.5, 10.0]).map(lambda seconds: timedelta(seconds=seconds)))


@st.composite
def flavours(draw: st.DrawFn) -> tuple[dict[str, Any], str | None, str | None]:
    """Settings, and the rates in exact decimals."""
    failure_rate = draw(st.none() | rates)
    slow_rate = draw(st.none() | rates)
    config: dict[str, Any] = {
        "failure_threshold": draw(st.integers(1, 4)),
        "recovery_timeout": draw(st.sampled_from([0.5, 5.0])),
        "half_open_max_calls": draw(st.integers(1, 4)),
        "recovery_factor": draw(st.sampled_from([1.0, 2.0])),
        "max_recovery_timeout": draw(st.sampled_from([None, 17.0])),
        "trial_timeout": draw(st.sampled_from([1.0, 8.0])),
    }
    if failure_rate is not None:
        config["failure_rate"] = float(failure_rate)
    if slow_rate is not None:
        config |= {"slow_rate": float(slow_rate), "slow_call": 1.0}
    if failure_rate or slow_rate:
        config["window"] = draw(st.none() | windows)
        largest = config["window"] if isinstance(config["window"], int) else 12
        config["min_calls"] = draw(st.none() | st.integers(1, largest))
    return config, failure_rate, slow_rate


class BreakerMachine(RuleBasedStateMachine):
    """Anything may happen in any order; breaker and model must agree, and some things must never be."""

    @initialize(flavour=flavours())
    def begin(self, flavour: tuple[dict[str, Any], str | None, str | None]) -> None:
        chosen, failure_rate, slow_rate = flavour
        self.config = BreakerConfig(**chosen)
        self.model = Model(
            self.config,
            None if failure_rate is None else Fraction(failure_rate),
            None if slow_rate is None else Fraction(slow_rate),
        )
        self.state = BreakerState()
        self.window = self.config.new_window()
        self.now = 64.0
        self.out = list[tuple[Permit, Call]]()
        self.left_alone = 0

    def become(self, state: BreakerState) -> None:
        assert state.period >= self.state.period, "the period only rises"
        assert state.mode is self.state.mode or state.period > self.state.period, "every change begins a period"
        if state.period != self.state.period:
            self.window = self.config.new_window()
        self.state = state

    # ---- time

    @rule(quarters=st.integers(0, 12))
    def time_passes(self, quarters: int) -> None:
        self.now += quarters / 4

    @precondition(lambda self: self.state.mode is OPEN)
    @rule(before=st.sampled_from([0.0, 0.0, 0.25]), asks=st.integers(0, 4))
    def the_recovery_time_is_over_or_almost(self, before: float, asks: int) -> None:
        self.now = max(self.now, self.state.until - before)
        self.ask(asks)

    @precondition(lambda self: bool(self.state.trials))
    @rule(before=st.sampled_from([0.0, 0.25]))
    def a_trial_has_expired_or_almost(self, before: float) -> None:
        self.now = max(self.now, self.state.trials[0].expires_at - before)

    # ---- calls

    @rule(times=st.integers(1, 4))
    def ask(self, times: int) -> None:
        for _ in range(times):
            self.left_alone += 1
            before = self.state
            expected = self.model.admits(self.now)
            state, answer = rules.admit(self.config, before, self.now)
            self.become(state)
            if before.mode is OPEN and self.now < before.until:
                assert isinstance(answer, Rejection), "let through while open"
            assert isinstance(answer, Permit) == expected
            if isinstance(answer, Permit):
                assert answer.period == self.model.period
                assert (answer.trial is not None) == (self.model.mode is HALF_OPEN)
                call = Call(answer.period, self.now, answer.trial is not None)
                self.model.calls.append(call)
                self.out.append((answer, call))
            elif self.model.mode is OPEN:
                assert answer.retry_after == self.model.until - self.now > 0
            elif self.model.mode is FORCED_OPEN:
                assert answer.retry_after is None
            else:
                assert answer.retry_after == min(1.0, self.config.recovery_timeout)

    @precondition(lambda self: bool(self.out))
    @rule(data=st.data(), outcome=st.sampled_from(Outcome), slow=st.booleans())
    def a_call_ends(self, data: st.DataObject, outcome: Outcome, slow: bool) -> None:
        permit, call = self.out.pop(data.draw(st.integers(0, len(self.out) - 1), label="which"))
        self.settle(permit, call, outcome, slow=slow)

    @precondition(lambda self: bool(self.out))
    @rule(outcome=st.sampled_from([Outcome.SUCCESS, Outcome.FAILURE]), count=st.integers(1, 6))
    def the_latest_calls_end_alike(self, outcome: Outcome, count: int) -> None:
        for _ in range(min(count, len(self.out))):
            permit, call = self.out.pop()
            self.settle(permit, call, outcome, slow=False)

    @rule(outcomes=st.lists(st.sampled_from([Outcome.SUCCESS, Outcome.FAILURE]), min_size=1, max_size=12))
    def calls_come_and_go(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            waiting = len(self.out)
            self.ask(1)
            if len(self.out) > waiting:
                permit, call = self.out.pop()
                self.settle(permit, call, outcome, slow=outcome is Outcome.FAILURE)

    def settle(self, permit: Permit, call: Call, outcome: Outcome, *, slow: bool) -> None:
        before = self.state
        totals = None
        if self.window is not None and outcome is not Outcome.IGNORED and permit.period == before.period:
            self.window.add(self.now, failed=outcome is Outcome.FAILURE, slow=slow)
            totals = self.window.totals(self.now)
        self.become(rules.record(self.config, before, permit, outcome, self.now, slow=slow, totals=totals))
        self.model.settle(call, outcome, slow=slow, now=self.now)
        if permit.period != before.period:
            assert self.state is before, "a late permit changes nothing"
        self.check()

    # ---- by hand

    @precondition(lambda self: self.left_alone >= 6 or self.state.mode in (FORCED_OPEN, DISABLED))
    @rule(mode=st.sampled_from(list(BY_HAND)))
    def somebody_changes_it(self, mode: BreakerMode) -> None:
        """Not too often, or it would hardly ever be half-open."""
        self.left_alone = 0
        change = BY_HAND[mode]
        if {self.state.mode, mode} == {FORCED_OPEN, DISABLED}:
            with pytest.raises(IllegalChange):
                change(self.state)
            return
        self.become(change(self.state))
        self.model.set_by_hand(mode)

    # ---- what must always hold

    @invariant()
    def agrees_with_the_model(self) -> None:
        if hasattr(self, "model"):
            self.check()

    def check(self) -> None:
        aged = rules.aged(self.state, self.now)
        is_over = self.model.mode is OPEN and self.now >= self.model.until  # it is half-open once somebody asks
        assert aged.mode is (HALF_OPEN if is_over else self.model.mode)
        assert aged.period == self.model.period + is_over
        if aged.mode is OPEN:
            assert aged.until == self.model.until
        assert len(aged.trials) == len(self.model.in_flight(self.now))
        assert len(aged.trials) <= self.config.half_open_max_calls, "too many trials in flight"
        if rules.is_calm(self.config, aged):
            permit = Permit(aged.period)
            assert rules.record(self.config, aged, permit, Outcome.SUCCESS, self.now) is aged
            assert rules.admit(self.config, aged, self.now) == (aged, permit)


TestBreaker = BreakerMachine.TestCase
TestBreaker.settings = settings(stateful_step_count=60)
