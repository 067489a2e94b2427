"""A circuit breaker for plain calls."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from datetime import timedelta
from types import CoroutineType
from typing import Final, ParamSpec, TypeVar, cast

from msgspec.structs import replace

from holdfast.clock import SystemClock
from holdfast.errors import CircuitOpenError, ConfigError, Refused
from holdfast.fingerprint import message_of, name_of
from holdfast.policy import breaker as rules
from holdfast.policy.breaker import (
    COUNTED,
    FAILURE,
    IGNORED,
    SUCCESS,
    BreakerConfig,
    BreakerState,
    Outcome,
    Permit,
    Rejection,
)
from holdfast.policy.classify import classify
from holdfast.ports import Clock
from holdfast.runtime.guards.functions import refuse_coroutine, refuse_unguardable
from holdfast.runtime.guards.permit import BreakerPermit
from holdfast.types import BreakerChanged, BreakerMode, Failure, FailureType

P = ParamSpec("P")
R = TypeVar("R")
Listener = Callable[[BreakerChanged], object]

_CLOSED: Final = BreakerMode.CLOSED  # see policy/breaker.py
_IN_TRIAL: ContextVar[frozenset[CircuitBreaker]] = ContextVar("holdfast_in_trial", default=frozenset())
"""The breakers whose trial the running code is part of."""

_PART_OF_TRIAL = Permit(0)
"""What a call inside a trial gets from the same breaker: no period is 0, so what comes of it is not counted twice."""

_logger = logging.getLogger("holdfast.breaker")


class CircuitBreaker:
    """Stops calling a service that is down, and finds out by itself when it is back.

    The settings are those of `BreakerConfig`, where each is explained. `name` says whose breaker it is. `on_change` is
    told of every change of state; every change is logged as well. Safe to use from threads and coroutines together.
    """

    def __init__(
        self,
        name: str = "",
        *,
        failure_threshold: int = 5,
        recovery_timeout: float = 30.0,
        half_open_max_calls: int = 3,
        window: int | timedelta | None = None,
        failure_rate: float | None = None,
        slow_call: float | None = None,
        slow_rate: float | None = None,
        min_calls: int | None = None,
        recovery_factor: float = 1.0,
        max_recovery_timeout: float | None = None,
        trial_timeout: float = 60.0,
        failure_types: Collection[FailureType] = COUNTED,
        clock: Clock | None = None,
        on_change: Listener | None = None,
    ) -> None:
        config = BreakerConfig(
            failure_threshold=failure_threshold,
            recovery_timeout=recovery_timeout,
            half_open_max_calls=half_open_max_calls,
            window=window,
            failure_rate=failure_rate,
            slow_call=slow_call,
            slow_rate=slow_rate,
            min_calls=min_calls,
            recovery_factor=recovery_factor,
            max_recovery_timeout=max_recovery_timeout,
            trial_timeout=trial_timeout,
            failure_types=cast(frozenset[FailureType], failure_types),  # which BreakerConfig makes it
        )
        self._begin(name, config, clock, on_change)

    @classmethod
    def of(
        cls, config: BreakerConfig, name: str = "", *, clock: Clock | None = None, on_change: Listener | None = None
    ) -> CircuitBreaker:
        """A breaker with settings that were made before."""
        breaker = cls.__new__(cls)
        breaker._begin(name, config, clock, on_change)
        return breaker

    def _begin(self, name: str, config: BreakerConfig, clock: Clock | None, on_change: Listener | None) -> None:
        if not isinstance(config, BreakerConfig):
            raise ConfigError(f"config={config!r}: must be a BreakerConfig")
        if not isinstance(name, str):
            raise ConfigError(f"name={name!r}: must be a text")
        if on_change is not None and not callable(on_change):
            raise ConfigError(f"on_change={on_change!r}: must be a function")
        self.name = name
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self._on_change = on_change
        self._lock = threading.Lock()
        self._unnamed: deque[Permit] = deque()  # trials given by can_execute, which has no permit to hand out
        self._window = config.new_window()
        self._last_cause: str | None = None  # where a success may open it, what the last failure was
        self.on_use: Callable[[CircuitBreaker], None] | None = None
        """Told when there is something to remember; see CircuitBreakers."""
        self._state = BreakerState()
        # The state while a success would change nothing, else None: a call that finds the same object before and after
        # has nothing to report, and takes no lock. See Policy.
        self.calm: BreakerState | None = None
        self._set(self._state)

    # ---- asking and telling

    def acquire(self) -> BreakerPermit:
        """Ask to make one call; CircuitOpenError when it is not let through."""
        permit = self.admit()
        return BreakerPermit(self, permit, 0.0 if self.config.slow_call is None else self.clock.monotonic())

    def admit(self) -> Permit:
        """The same as `acquire`, as the bare value that `settle` takes back."""
        state = self._state
        if state.mode is _CLOSED:  # always lets through, and nothing changes by asking
            return Permit(state.period)
        answer = self._ask()
        if isinstance(answer, Rejection):
            raise CircuitOpenError(self.name, answer.retry_after, answer.cause)
        return answer

    def check(self) -> None:
        """Raise CircuitOpenError if a call would be refused now; takes no permit."""
        if self._state.mode is not _CLOSED:
            _, answer = self._answer(self._state)
            if isinstance(answer, Rejection):
                raise CircuitOpenError(self.name, answer.retry_after, answer.cause)

    def settle(
        self, permit: Permit, outcome: Outcome, *, duration: float | None = None, failure: Failure | None = None
    ) -> None:
        """Give a permit back with what came of it."""
        calm = self.calm
        if outcome is SUCCESS and calm is not None and calm.period == permit.period:
            return
        slow_call = self.config.slow_call
        slow = slow_call is not None and duration is not None and duration > slow_call
        with self._lock:
            before = self._state
            if before.period != permit.period:
                return
            now = self.clock.monotonic()
            totals = None
            if self._window is not None and outcome is not IGNORED:
                self._window.add(now, failed=outcome is FAILURE, slow=slow)
                totals = self._window.totals(now)
                if outcome is FAILURE:
                    self._last_cause = _in_words(failure)
            after = rules.record(self.config, before, permit, outcome, now, slow, totals)
            if after.mode is not before.mode and after.mode is BreakerMode.OPEN:
                cause = _in_words(failure) or self._last_cause or ("slow calls" if slow else after.cause)
                after = replace(after, cause=cause)
            self._set(after)
        self._tell(before, after)

    def outcome_of(self, failure: Failure) -> Outcome:
        """Whether a failure of this type counts here. A refusal never does: it says nothing about the service."""
        if failure.type not in self.config.failure_types or isinstance(failure.error, Refused):
            return IGNORED
        return FAILURE

    # ---- the plain trio, for code that has no place to keep a permit

    def can_execute(self) -> bool:
        """Whether a call may be made now. While half-open, True takes one of the trials: report what came of it."""
        answer = self._ask()
        if isinstance(answer, Rejection):
            return False
        if answer.trial is not None:
            self._unnamed.append(answer)
        return True

    def record_success(self, duration: float | None = None) -> None:
        """A call that `can_execute` allowed has succeeded."""
        permit = self._unnamed_permit()
        if permit is not None:
            self.settle(permit, SUCCESS, duration=duration)

    def record_failure(self, error: BaseException | Failure | None = None, duration: float | None = None) -> None:
        """A call that `can_execute` allowed has failed; an error of a type that does not count here is ignored."""
        permit = self._unnamed_permit()
        if permit is not None:
            self.settle_error(permit, error, duration)

    def settle_error(self, permit: Permit, error: BaseException | Failure | None, duration: float | None) -> None:
        """Give a permit back with an error that is not classified yet; None is a failure that counts."""
        failure = classify(error) if isinstance(error, BaseException) else error
        outcome = self.outcome_of(failure) if failure else FAILURE
        self.settle(permit, outcome, duration=duration, failure=failure)

    def _unnamed_permit(self) -> Permit | None:
        """The oldest trial that `can_execute` gave out and that has not expired; while closed, any call's permit."""
        with self._lock:
            state = rules.aged(self._state, self.clock.monotonic())
            in_flight = {trial.number for trial in state.trials}
            while self._unnamed:
                permit = self._unnamed.popleft()
                if permit.period == state.period and permit.trial in in_flight:
                    return permit
        return Permit(state.period) if state.mode is _CLOSED else None

    # ---- around a function

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a sync function through the breaker."""
        refuse_unguardable(fn)
        calm = self.calm
        if calm is None:
            with self.acquire() as permit:
                value = fn(*args, **kwargs)
                if type(value) is CoroutineType:
                    permit.release()
        else:
            try:
                value = fn(*args, **kwargs)
            except Exception as error:
                self.settle_error(Permit(calm.period), error, None)
                raise
            if self.calm is not calm:
                self.settle(Permit(calm.period), SUCCESS)
        if type(value) is CoroutineType:
            refuse_coroutine(value)
        return value

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await a function through the breaker."""
        refuse_unguardable(fn)
        calm = self.calm
        if calm is None:
            with self.acquire():
                return await fn(*args, **kwargs)
        try:
            value = await fn(*args, **kwargs)
        except Exception as error:
            self.settle_error(Permit(calm.period), error, None)
            raise
        if self.calm is not calm:
            self.settle(Permit(calm.period), SUCCESS)
        return value

    # ---- looking at it, and by hand

    @property
    def state(self) -> BreakerMode:
        """Its state now: "closed", "open", "half_open", "forced_open" or "disabled"."""
        return rules.aged(self._state, self.clock.monotonic()).mode

    @property
    def refuses_for(self) -> float:
        """Seconds during which every call is refused; zero when one may be let through, infinite when forced open."""
        state = self._state
        if state.mode is _CLOSED:
            return 0.0
        _, answer = self._answer(state)
        if isinstance(answer, Permit):
            return 0.0
        return math.inf if answer.retry_after is None else answer.retry_after

    def reset(self) -> None:
        """Close it by hand, whatever it was."""
        self._change(rules.reset)

    def force_open(self) -> None:
        """Hold it open until `reset`; refused while it is disabled."""
        self._change(rules.force_open)

    def disable(self) -> None:
        """Let everything through until `reset`; refused while it is forced open."""
        self._change(rules.disable)

    @property
    def is_idle(self) -> bool:
        """Whether it is as good as new: closed, with nothing counted."""
        with self._lock:
            if self._state.mode is not _CLOSED or self._state.failures:
                return False
            return self._window is None or self._window.totals(self.clock.monotonic()).calls == 0

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self.name!r} {self.state.value}>"

    # ---- inside

    def begin_trial(self) -> None:
        """From here on, calls through this breaker are part of the trial that was permitted."""
        _IN_TRIAL.set(_IN_TRIAL.get() | {self})

    def end_trial(self) -> None:
        """The trial is over."""
        _IN_TRIAL.set(_IN_TRIAL.get() - {self})

    def _answer(self, state: BreakerState) -> tuple[BreakerState, Permit | Rejection]:
        """What a call that asks now is told. A trial whose own calls were refused could never succeed."""
        now = self.clock.monotonic()
        if self in _IN_TRIAL.get() and rules.aged(state, now).mode is BreakerMode.HALF_OPEN:
            return state, _PART_OF_TRIAL
        return rules.admit(self.config, state, now)

    def _ask(self) -> Permit | Rejection:
        with self._lock:
            before = self._state
            after, answer = self._answer(before)
            self._set(after)
        self._tell(before, after)
        return answer

    def _change(self, change: Callable[[BreakerState], BreakerState]) -> None:
        with self._lock:
            before = self._state
            after = change(before)
            self._set(after)
        self._tell(before, after)

    def _set(self, state: BreakerState) -> None:
        """Take over a new state; the caller holds the lock. A new period begins with an empty window."""
        if state.period != self._state.period:
            self._window = self.config.new_window()
            self._last_cause = None
        self._state = state
        self.calm = state if rules.is_calm(self.config, state) else None

    def _tell(self, before: BreakerState, after: BreakerState) -> None:
        if self.on_use is not None:
            self.on_use(self)
        if before.mode is after.mode:
            return
        event = BreakerChanged(self.name, before.mode, after.mode, after.period, after.cause)
        level = logging.INFO if after.mode is BreakerMode.CLOSED else logging.WARNING
        why = f": {after.cause}" if after.cause and after.mode is BreakerMode.OPEN else ""
        _logger.log(level, "circuit %s: %s -> %s%s", self.name or "breaker", before.mode.value, after.mode.value, why)
        if self._on_change is not None:
            try:
                self._on_change(event)
            except Exception:
                _logger.exception("the on_change listener of circuit %s raised; the breaker goes on", self.name)


def _in_words(failure: Failure | None) -> str | None:
    if failure is None or failure.error is None:
        return None
    return f"{name_of(type(failure.error))}: {' '.join(message_of(failure.error).split())}"
