"""A circuit breaker for plain calls, and one per key."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import Final, ParamSpec, TypeVar, cast

from msgspec.structs import replace

from holdfast.clock import SystemClock
from holdfast.errors import CircuitOpenError, ConfigError, Refused
from holdfast.fingerprint import message_of, name_of
from holdfast.policy import bounds
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
from holdfast.runtime.guards.keyed import Keyed
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
        self.name = name
        self.config = config
        self._clock = clock or SystemClock()
        self._on_change = on_change
        self._lock = threading.Lock()
        self._unnamed: deque[Permit] = deque()  # trials given by can_execute, which has no permit to hand out
        self._window = config.new_window()
        self._state = BreakerState()
        # The state while a success would change nothing, else None: a call that finds the same object before and after
        # has nothing to report, and takes no lock. See Policy.
        self.calm: BreakerState | None = None
        self._set(self._state)

    # ---- asking and telling

    def acquire(self) -> BreakerPermit:
        """Ask to make one call; CircuitOpenError when it is not let through."""
        permit = self.admit()
        return BreakerPermit(self, permit, 0.0 if self.config.slow_call is None else self._clock.monotonic())

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
        if outcome is SUCCESS and self.calm is not None and self.calm.period == permit.period:
            return
        slow_call = self.config.slow_call
        slow = slow_call is not None and duration is not None and duration > slow_call
        with self._lock:
            before = self._state
            if before.period != permit.period:
                return
            now = self._clock.monotonic()
            totals = None
            if self._window is not None and outcome is not IGNORED:
                self._window.add(now, failed=outcome is FAILURE, slow=slow)
                totals = self._window.totals(now)
            after = rules.record(self.config, before, permit, outcome, now, slow, totals)
            if after.mode is not before.mode and after.mode is BreakerMode.OPEN:
                after = replace(after, cause=_in_words(failure, slow=slow) or after.cause)
            if after is before:
                return
            self._set(after)
        if after.mode is not before.mode:
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
            self._settle_failure(permit, error, duration)

    def _settle_failure(self, permit: Permit, error: BaseException | Failure | None, duration: float | None) -> None:
        failure = classify(error) if isinstance(error, BaseException) else error
        outcome = self.outcome_of(failure) if failure else FAILURE
        self.settle(permit, outcome, duration=duration, failure=failure)

    def _unnamed_permit(self) -> Permit | None:
        """The oldest trial that `can_execute` gave out; while closed, any call's permit will do."""
        with self._lock:
            state = self._state
            while self._unnamed:
                permit = self._unnamed.popleft()
                if permit.period == state.period:
                    return permit
        return Permit(state.period) if state.mode is _CLOSED else None

    # ---- around a function

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function through the breaker."""
        calm = self.calm
        if calm is None:
            with self.acquire():
                return fn(*args, **kwargs)
        try:
            value = fn(*args, **kwargs)
        except Exception as error:
            self._settle_failure(Permit(calm.period), error, None)
            raise
        if self.calm is not calm:
            self.settle(Permit(calm.period), SUCCESS)
        return value

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Await a function through the breaker."""
        calm = self.calm
        if calm is None:
            with self.acquire():
                return await fn(*args, **kwargs)
        try:
            value = await fn(*args, **kwargs)
        except Exception as error:
            self._settle_failure(Permit(calm.period), error, None)
            raise
        if self.calm is not calm:
            self.settle(Permit(calm.period), SUCCESS)
        return value

    # ---- looking at it, and by hand

    @property
    def state(self) -> BreakerMode:
        """Its state now: "closed", "open", "half_open", "forced_open" or "disabled"."""
        return rules.aged(self.config, self._state, self._clock.monotonic()).mode

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
        state = self._state
        if state.mode is not BreakerMode.CLOSED or state.failures:
            return False
        return self._window is None or self._window.totals(self._clock.monotonic()).calls == 0

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
        now = self._clock.monotonic()
        if self in _IN_TRIAL.get() and rules.aged(self.config, state, now).mode is BreakerMode.HALF_OPEN:
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
        self._state = state
        self.calm = state if rules.is_calm(self.config, state) else None

    def _tell(self, before: BreakerState, after: BreakerState) -> None:
        if before.mode is after.mode:
            return
        event = BreakerChanged(self.name, before.mode, after.mode, after.cause)
        level = logging.INFO if after.mode is BreakerMode.CLOSED else logging.WARNING
        why = f": {after.cause}" if after.cause and after.mode is BreakerMode.OPEN else ""
        _logger.log(level, "circuit %s: %s -> %s%s", self.name or "breaker", before.mode.value, after.mode.value, why)
        if self._on_change is not None:
            try:
                self._on_change(event)
            except Exception:
                _logger.exception("the on_change listener of circuit %s raised; the breaker goes on", self.name)


class BreakerPermit:
    """The right to make one call. Say what came of it once; what is said later is ignored.

    As a context manager it says so by itself: an error of a type that counts is a failure, another error, a
    cancellation or an exit gives the permit back without counting.
    """

    __slots__ = ("_began", "_breaker", "_is_settled", "_permit")

    def __init__(self, breaker: CircuitBreaker, permit: Permit, began: float) -> None:
        self._breaker = breaker
        self._permit = permit
        self._began = began
        self._is_settled = False

    def success(self, duration: float | None = None) -> None:
        """The call has succeeded. Its duration is taken since `acquire`, unless given."""
        if self._settle_once():
            self._breaker.settle(self._permit, SUCCESS, duration=self._duration(duration))

    def failure(self, error: BaseException | Failure | None = None, duration: float | None = None) -> None:
        """The call has failed; an error of a type that does not count is ignored."""
        if self._settle_once():
            self._breaker._settle_failure(self._permit, error, self._duration(duration))

    def release(self) -> None:
        """The call was not made, or says nothing about the service: give the permit back."""
        if self._settle_once():
            self._breaker.settle(self._permit, IGNORED)

    def __enter__(self) -> BreakerPermit:
        if self._permit.trial is not None:
            self._breaker.begin_trial()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._permit.trial is not None:
            self._breaker.end_trial()
        if error is None:
            self.success()
        elif isinstance(error, Exception):
            self.failure(error)
        else:
            self.release()

    def _settle_once(self) -> bool:
        if self._is_settled:
            return False
        self._is_settled = True
        return True

    def _duration(self, given: float | None) -> float:
        return self._breaker._clock.monotonic() - self._began if given is None else given


class CircuitBreakers:
    """One breaker per key (service, task type, domain), made on first use, each apart from the others.

    config: the settings of every breaker; `overrides` has other settings for single keys. Past `max_keys` [10,000]
    breakers that are as good as new are forgotten, so keys may come from outside.
    """

    def __init__(
        self,
        config: BreakerConfig | None = None,
        *,
        overrides: Mapping[str, BreakerConfig] = MappingProxyType({}),
        max_keys: int = 10_000,
        clock: Clock | None = None,
        on_change: Listener | None = None,
    ) -> None:
        default = BreakerConfig() if config is None else config
        for field, one in {"config": default, **{f"overrides[{key!r}]": one for key, one in overrides.items()}}.items():
            if not isinstance(one, BreakerConfig):
                raise ConfigError(f"{field}={one!r}: must be a BreakerConfig")
        bounds.whole("max_keys", max_keys, low=1)
        self._breakers = Keyed(
            lambda key: CircuitBreaker.of(overrides.get(key, default), key, clock=clock, on_change=on_change),
            lambda breaker: breaker.is_idle,
            max_keys,
        )

    def __getitem__(self, key: str) -> CircuitBreaker:
        """The breaker of this key, made if there is none."""
        return self._breakers[key]

    def __contains__(self, key: object) -> bool:
        return key in self._breakers.things

    def __iter__(self) -> Iterator[CircuitBreaker]:
        return iter(self._breakers)

    def __len__(self) -> int:
        return len(self._breakers)


def _in_words(failure: Failure | None, *, slow: bool) -> str | None:
    if failure is None or failure.error is None:
        return "slow calls" if slow else None
    return f"{name_of(type(failure.error))}: {' '.join(message_of(failure.error).split())}"
