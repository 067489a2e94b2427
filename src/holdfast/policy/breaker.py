"""The circuit breaker: a table of states, and pure functions that go from one to the next.

              enough failures                   recovery time over
    CLOSED ────────────────────▶ OPEN ───────────────────────────────▶ HALF_OPEN
       ▲                          ▲            failed trials               │ │
       │                          └────────────────────────────────────────┘ │
       └──────────────────────── enough good trials ─────────────────────────┘
By hand: `reset` goes from any state to CLOSED, `force_open` from any but DISABLED to FORCED_OPEN, `disable` from any
but FORCED_OPEN to DISABLED.

Every change of state begins a new period. A permit carries the period in which it was given, and what comes back with
a permit of an earlier period changes nothing: that is how late results are told from trials.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import timedelta
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from holdfast.errors import ConfigError, IllegalChange
from holdfast.policy import bounds
from holdfast.policy.window import CountWindow, TimeWindow, Totals, Window
from holdfast.types import BreakerMode, FailureType

COUNTED = frozenset({FailureType.TRANSIENT, FailureType.NETWORK, FailureType.SYSTEM})
"""The failure types that speak of the service's health. The others are the caller's own fault, or a polite refusal."""

# Reading a member from its class costs 100 ns on Python 3.11, as much as a decision; these are read for every call.
_CLOSED: Final = BreakerMode.CLOSED
_HALF_OPEN: Final = BreakerMode.HALF_OPEN
_DEFAULT_WINDOW = 100
_DEFAULT_MIN_CALLS = 10
_ASK_AGAIN_S = 1.0  # nobody knows when the trials in flight will end
_LONGEST_S = 3600.0


class BreakerConfig(Struct, frozen=True, kw_only=True):
    """When a breaker opens, for how long, and what it takes to close it again.

    failure_threshold: consecutive failures that open it. Not used where failure_rate is set.
    recovery_timeout: seconds it stays open before trials are let through.
    half_open_max_calls: trials let through while half-open, and successes needed to close it.
    window: the latest calls that the rates are taken over: a number of calls [100], or a timedelta.
    failure_rate, slow_rate: shares in (0, 1] of the window at which it opens (≥); None does not look at them.
    slow_call: a call that takes longer than this many seconds is slow; exactly as long is not.
    min_calls: below this many calls in the window the rates are unknown [10, or the window if that is smaller].
    recovery_factor, max_recovery_timeout: each reopening multiplies the open time [by 1], up to the maximum [1 h].
    trial_timeout: after so many seconds a trial that has not come back gives its place to another, and what comes of it
        is not counted any more [60].
    failure_types: the types that count; an error of another type is neither a success nor a failure.
    """

    failure_threshold: int = 5
    recovery_timeout: float = 30.0
    half_open_max_calls: int = 3
    window: int | timedelta | None = None
    failure_rate: float | None = None
    slow_call: float | None = None
    slow_rate: float | None = None
    min_calls: int | None = None
    recovery_factor: float = 1.0
    max_recovery_timeout: float | None = None
    trial_timeout: float = 60.0
    failure_types: frozenset[FailureType] = COUNTED

    def __post_init__(self) -> None:
        bounds.whole("failure_threshold", self.failure_threshold, low=1)
        bounds.length("recovery_timeout", self.recovery_timeout, above=0.0)
        bounds.whole("half_open_max_calls", self.half_open_max_calls, low=1)
        bounds.number("recovery_factor", self.recovery_factor, low=1.0)
        bounds.length("trial_timeout", self.trial_timeout, above=0.0)
        if self.max_recovery_timeout is not None:
            bounds.length("max_recovery_timeout", self.max_recovery_timeout, low=self.recovery_timeout)
        for name in ("failure_rate", "slow_rate"):
            if getattr(self, name) is not None:
                bounds.number(name, getattr(self, name), above=0.0, high=1.0)
        self._check_window()
        self._check_failure_types()

    def _check_failure_types(self) -> None:
        given: object = self.failure_types
        kept = list(given) if isinstance(given, Collection) else []
        if not kept or not all(isinstance(one, FailureType) for one in kept):
            raise ConfigError(f"failure_types={given!r}: must be a set of FailureTypes, at least one")
        force_setattr(self, "failure_types", frozenset(kept))

    def _check_window(self) -> None:
        if (self.slow_rate is None) != (self.slow_call is None):
            raise ConfigError(f"slow_rate={self.slow_rate!r}, slow_call={self.slow_call!r}: give both or neither")
        if self.slow_call is not None:
            bounds.length("slow_call", self.slow_call, above=0.0)
        if self.failure_rate is None and self.slow_rate is None:
            for name in ("window", "min_calls"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"{name}={getattr(self, name)!r}: needs failure_rate or slow_rate beside it")
            return
        if self.window is None:
            force_setattr(self, "window", _DEFAULT_WINDOW)
        if not _is_window(self.window):
            raise ConfigError(f"window={self.window!r}: must be a whole number of calls or a timedelta, above 0")
        largest = self.window if isinstance(self.window, int) else None
        if self.min_calls is None:
            force_setattr(self, "min_calls", min(_DEFAULT_MIN_CALLS, largest or _DEFAULT_MIN_CALLS))
        bounds.whole("min_calls", self.min_calls, low=1)
        if largest is not None and self.min_calls is not None and self.min_calls > largest:
            raise ConfigError(f"min_calls={self.min_calls}: must be at most window, which is {largest}")

    def new_window(self) -> Window | None:
        """An empty window, or None where nothing is measured over one."""
        if self.window is None:
            return None
        if isinstance(self.window, timedelta):
            return TimeWindow(self.window.total_seconds())
        return CountWindow(self.window)


def _is_window(window: object) -> bool:
    if isinstance(window, timedelta):
        return window > timedelta(0)
    return isinstance(window, int) and not isinstance(window, bool) and window > 0


class Outcome(Enum):
    """How a permitted call ended, as far as the breaker cares."""

    SUCCESS = "success"
    FAILURE = "failure"
    IGNORED = "ignored"


SUCCESS: Final = Outcome.SUCCESS
FAILURE: Final = Outcome.FAILURE
IGNORED: Final = Outcome.IGNORED


class Permit(Struct, frozen=True):
    """The right to make one call, given in one period. Only a trial has a number."""

    period: int
    trial: int | None = None


class Rejection(Struct, frozen=True):
    """A call that is not let through."""

    retry_after: float | None
    cause: str | None


class Trial(Struct, frozen=True):
    """A half-open call in flight."""

    number: int
    expires_at: float


class BreakerState(Struct, frozen=True):
    """Everything a breaker remembers, but for its window. Small, and changed only by the functions below."""

    mode: BreakerMode = BreakerMode.CLOSED
    period: int = 1
    failures: int = 0
    """Consecutive failures while closed."""
    until: float = 0.0
    """While open: when trials begin."""
    reopenings: int = 0
    """How often it has opened since it was last closed, less one."""
    trials: tuple[Trial, ...] = ()
    trials_given: int = 0
    trial_totals: Totals = Totals()
    """The fresh window of this half-open period."""
    cause: str | None = None
    """What opened it, in words. Whoever records the failure that opens it writes it here: the words cost time."""


def is_calm(config: BreakerConfig, state: BreakerState) -> bool:
    """Whether a success now would change nothing, so that it need not be reported."""
    if state.mode is _CLOSED:
        return state.failures == 0 and config.window is None
    return state.mode is BreakerMode.DISABLED


def aged(state: BreakerState, now: float) -> BreakerState:
    """The state once the time that has passed is taken into account."""
    if state.mode is BreakerMode.OPEN and now >= state.until:
        return replace(state, mode=BreakerMode.HALF_OPEN, period=state.period + 1, trials=(), trial_totals=Totals())
    if state.trials and any(trial.expires_at <= now for trial in state.trials):
        return replace(state, trials=tuple(trial for trial in state.trials if trial.expires_at > now))
    return state


def admit(config: BreakerConfig, state: BreakerState, now: float) -> tuple[BreakerState, Permit | Rejection]:
    """Ask to make one call."""
    state = aged(state, now)
    match state.mode:
        case BreakerMode.CLOSED | BreakerMode.DISABLED:
            return state, Permit(state.period)
        case BreakerMode.OPEN:
            return state, Rejection(state.until - now, state.cause)
        case BreakerMode.FORCED_OPEN:
            return state, Rejection(None, state.cause)
        case BreakerMode.HALF_OPEN:
            if len(state.trials) + state.trial_totals.calls >= config.half_open_max_calls:
                return state, Rejection(min(_ASK_AGAIN_S, config.recovery_timeout), state.cause)
            trial = Trial(state.trials_given + 1, now + config.trial_timeout)
            state = replace(state, trials=(*state.trials, trial), trials_given=trial.number)
            return state, Permit(state.period, trial.number)


def record(
    config: BreakerConfig,
    state: BreakerState,
    permit: Permit,
    outcome: Outcome,
    now: float,
    slow: bool = False,
    totals: Totals | None = None,
) -> BreakerState:
    """Give a permit back, with what came of it. totals: what the window holds, this call included, if there is one."""
    if permit.period != state.period:
        return state
    if state.mode is _HALF_OPEN:
        return _record_trial(config, aged(state, now), permit, outcome, now, slow=slow)
    if state.mode is not _CLOSED or outcome is IGNORED:
        return state
    if totals is not None and _is_tripped(config, totals, config.min_calls or 1):
        return _opened(config, state, now)
    failures = 0 if outcome is SUCCESS or config.failure_rate is not None else state.failures + 1
    if failures >= config.failure_threshold:
        return _opened(config, state, now)
    return state if failures == state.failures else replace(state, failures=failures)


def reset(state: BreakerState) -> BreakerState:
    """Close it by hand, whatever it was."""
    return BreakerState(period=state.period + 1)


def force_open(state: BreakerState) -> BreakerState:
    """Hold it open until somebody resets it."""
    return _set_by_hand(state, BreakerMode.FORCED_OPEN, not_from=BreakerMode.DISABLED)


def disable(state: BreakerState) -> BreakerState:
    """Let everything through until somebody resets it."""
    return _set_by_hand(state, BreakerMode.DISABLED, not_from=BreakerMode.FORCED_OPEN)


def _set_by_hand(state: BreakerState, mode: BreakerMode, *, not_from: BreakerMode) -> BreakerState:
    if state.mode is not_from:
        # One person's hold must not silently become another's opposite.
        raise IllegalChange(f"a breaker that is {not_from.value} cannot become {mode.value}: reset it first")
    return state if state.mode is mode else BreakerState(mode=mode, period=state.period + 1, cause=state.cause)


def _record_trial(
    config: BreakerConfig,
    state: BreakerState,
    permit: Permit,
    outcome: Outcome,
    now: float,
    *,
    slow: bool,
) -> BreakerState:
    others = tuple(trial for trial in state.trials if trial.number != permit.trial)
    if len(others) == len(state.trials):
        return state  # its time was over, and another has its place
    state = replace(state, trials=others)
    if outcome is IGNORED:
        return state
    failed = outcome is FAILURE
    old = state.trial_totals
    totals = Totals(old.calls + 1, old.failures + failed, old.slow + slow)
    known_from = min(config.min_calls or 1, config.half_open_max_calls)
    if (failed and config.failure_rate is None) or _is_tripped(config, totals, known_from):
        return _opened(config, state, now, reopenings=state.reopenings + 1)
    if totals.calls >= config.half_open_max_calls:
        return BreakerState(period=state.period + 1)
    return replace(state, trial_totals=totals)


def _is_tripped(config: BreakerConfig, totals: Totals, known_from: int) -> bool:
    """Whether a rate is known and at its threshold. A success may trip it too, by making the rate known."""
    if totals.calls < known_from:
        return False
    if config.failure_rate is not None and totals.failures / totals.calls >= config.failure_rate:
        return True
    return config.slow_rate is not None and totals.slow / totals.calls >= config.slow_rate


def _opened(config: BreakerConfig, state: BreakerState, now: float, reopenings: int = 0) -> BreakerState:
    return BreakerState(
        mode=BreakerMode.OPEN,
        period=state.period + 1,
        until=now + open_time(config, reopenings),
        reopenings=reopenings,
        cause=state.cause,
    )


def open_time(config: BreakerConfig, reopenings: int) -> float:
    """Seconds the breaker stays open after so many reopenings in a row."""
    try:
        seconds = config.recovery_timeout * config.recovery_factor**reopenings
    except OverflowError:
        seconds = math.inf
    return min(seconds, config.max_recovery_timeout or max(config.recovery_timeout, _LONGEST_S))
