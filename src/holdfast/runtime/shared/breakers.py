"""A circuit breaker whose state all workers share."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.policy import breaker as rules
from holdfast.policy.breaker import (
    FAILURE,
    IGNORED,
    SUCCESS,
    BreakerConfig,
    BreakerState,
    Outcome,
    Permit,
    Rejection,
    Trial,
)
from holdfast.policy.window import Totals
from holdfast.ports import Value
from holdfast.runtime.shared import windows
from holdfast.runtime.shared.guard import SKEW_S, Guard
from holdfast.runtime.shared.names import breaker_gate
from holdfast.runtime.shared.windows import Chunks
from holdfast.types import BreakerMode

_CLOSED: Final = BreakerMode.CLOSED
_OPEN: Final = BreakerMode.OPEN
_HALF_OPEN: Final = BreakerMode.HALF_OPEN
_FORCED_OPEN: Final = BreakerMode.FORCED_OPEN
_DISABLED: Final = BreakerMode.DISABLED
_LONGEST_CAUSE: Final = 300


class BreakerValue(Struct, frozen=True, omit_defaults=True):
    """All that is shared about a breaker."""

    state: BreakerState = BreakerState()
    chunks: Chunks = ()
    """The window of this period."""
    trips: int = 0
    """How often it has opened by itself."""
    last_cause: str | None = None
    """Where a success may open it, what the last failure of this period was."""


class Result(Struct, frozen=True):
    """What came of one permitted run."""

    permit: Permit
    outcome: Outcome
    at: float
    slow: bool = False
    cause: str | None = None


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(BreakerValue).decode


def read_breaker(data: bytes) -> BreakerValue | None:
    """The value as it was written; None where it is no such thing."""
    try:
        value = _decode(data)
    except (ValueError, RecursionError):
        return None
    return value if value.state.period >= 1 and value.state.failures >= 0 else None


def write_breaker(value: BreakerValue) -> bytes:
    """The value as bytes."""
    return _encode(value)


class SharedBreaker(Guard[BreakerValue, Result]):
    """One breaker, as this worker knows it; the decisions are `policy.breaker`'s."""

    def __init__(self, name: str, config: BreakerConfig) -> None:
        self.name = name
        self.config = config
        self.told = _CLOSED
        """The state that was last told of."""
        self._urgent = 0  # the number of the newest note that must not wait
        super().__init__(breaker_gate(name))
        self.view = self.known
        """What was known a moment ago, with the notes added. From any thread, so it is not worked out by who asks."""
        self._is_stale = False

    # ---- asking

    def free_permit(self) -> Permit | None:
        """A permit, where it is closed for certain: such a one changes nothing, so the store need not be asked."""
        state = self.known.state
        if state.mode is not _CLOSED and state.mode is not _DISABLED:
            return None
        if self.notes and self._renewed().state.period != state.period:
            return None
        return Permit(state.period)

    def take(self, draft: BreakerValue, now: float) -> tuple[BreakerValue, Permit | Rejection]:
        """Ask for one permit."""
        state, answer = rules.admit(self.config, draft.state, now)
        return moved(draft, state), answer

    # ---- telling

    def report(
        self, permit: Permit, outcome: Outcome, at: float, *, slow_s: float = 0.0, cause: str | None = None
    ) -> None:
        """Note what came of a permitted run, unless it cannot change anything."""
        state = self.known.state
        if permit.period < state.period:
            return
        if permit.trial is None:
            is_calm = not self.notes and permit.period == state.period and rules.is_calm(self.config, state)
            if outcome is IGNORED or (outcome is SUCCESS and is_calm):
                return
        slow = self.config.slow_call is not None and slow_s > self.config.slow_call
        words = None if cause is None or outcome is not FAILURE else _in_a_line(cause)
        self.add(Result(permit, outcome, at, slow, words))

    def add(self, note: Result) -> None:
        """Remember it until it has reached the store."""
        super().add(note)
        if note.outcome is FAILURE or note.permit.trial is not None:
            self._urgent = self.upto
        self.view = applied(self.config, self.view, note)

    def landed(self, upto: int) -> None:
        """The notes up to this number have reached the store."""
        super().landed(upto)
        self._renew()

    @property
    def is_urgent(self) -> bool:
        """Whether a failure, or what came of a trial, waits to be sent."""
        return bool(self.notes) and self.notes[0][0] <= self._urgent

    # ---- looking at it

    @property
    def is_closed(self) -> bool:
        """Whether it is closed, and nothing is on its way that could change that: there may be one for each domain."""
        return not self.notes and self.known.state.mode is _CLOSED

    def state_at(self, now: float) -> BreakerState:
        """The state as this worker sees it."""
        return rules.aged(self._renewed().state, now)

    def cap(self, now: float) -> int | None:
        """How many runs may begin: none while it is open, the trials left while it is half-open; None is no cap."""
        state = self.state_at(now)
        if state.mode is _HALF_OPEN:
            return max(0, self.config.half_open_max_calls - len(state.trials) - state.trial_totals.calls)
        return 0 if state.mode in (_OPEN, _FORCED_OPEN) else None

    def opens_in_s(self, now: float) -> float | None:
        """Seconds until a cap of zero lifts by itself; None where it does not, or where it is not zero."""
        if self.cap(now) != 0:
            return None
        state = self.state_at(now)
        if state.mode is _OPEN:
            return state.until - now
        return min((trial.expires_at - now for trial in state.trials), default=None)

    # ---- the value

    def absorb(self, value: Value, now: float) -> None:
        """Take over what the store says."""
        super().absorb(value, now)
        if self.notes:
            self._is_stale = True  # most often they have reached the store with that, which is told next
        else:
            self._renew()

    def forget(self) -> None:
        """Begin as if the store had nothing."""
        super().forget()
        self._renew()

    def empty(self) -> BreakerValue:
        """A closed breaker."""
        return BreakerValue()

    def read(self, data: bytes, now: float) -> BreakerValue | None:
        """The value, with no instant further ahead than the settings allow."""
        value = read_breaker(data)
        return None if value is None else _bounded(self.config, value, now)

    def write(self, state: BreakerValue, now: float) -> bytes:
        """The value as bytes; a breaker is never removed, for its periods have to rise."""
        del now
        return write_breaker(state)

    def draft(self, now: float) -> BreakerValue:
        """What is known, with the notes added."""
        del now
        return self._renewed()

    def differs(self, draft: BreakerValue) -> bool:
        """Whether the notes have changed anything."""
        return draft != self.known

    def set_back(self, now: float) -> None:
        """The clock has gone back: it is not to stay open for longer than it would from now on."""
        self.known = _bounded(self.config, self.known, now)
        self._renew()

    def _renewed(self) -> BreakerValue:
        """What is known, with the notes added."""
        if self._is_stale:
            self._renew()
        return self.view

    def _renew(self) -> None:
        value = self.known
        for _, result in self.notes:
            value = applied(self.config, value, result)
        self.view = value
        self._is_stale = False


def applied(config: BreakerConfig, value: BreakerValue, result: Result) -> BreakerValue:
    """The value after one result; that of an earlier period changes nothing."""
    before, outcome = value.state, result.outcome
    if result.permit.period != before.period:
        return value
    totals: Totals | None = None
    if config.window is not None and before.mode is _CLOSED and outcome is not IGNORED:
        failed = outcome is FAILURE
        chunks = windows.added(config.window, value.chunks, result.at, failed=failed, slow=result.slow)
        totals = windows.totals(config.window, chunks, result.at)
        last_cause = (result.cause or value.last_cause) if failed else value.last_cause
        value = BreakerValue(before, chunks, value.trips, last_cause)
    after = rules.record(config, before, result.permit, outcome, result.at, result.slow, totals)
    if after is before:
        return value
    if after.mode is _OPEN and before.mode is not _OPEN:
        cause = result.cause or value.last_cause or ("slow calls" if result.slow else before.cause)
        after = replace(after, cause=cause)
    return moved(value, after)


def moved(value: BreakerValue, state: BreakerState) -> BreakerValue:
    """The value with another state. A new period begins with an empty window."""
    before = value.state
    if state is before:
        return value
    if state.period == before.period:
        return replace(value, state=state)
    return BreakerValue(state, (), value.trips + (state.mode is _OPEN))


def _bounded(config: BreakerConfig, value: BreakerValue, now: float) -> BreakerValue:
    """The value, where a mistaken clock or other settings cannot make it hold work for ever."""
    state = value.state
    until = min(state.until, now + rules.open_time(config, max(0, state.reopenings)))
    latest = now + config.trial_timeout
    trials = state.trials
    if any(trial.expires_at > latest for trial in trials):
        trials = tuple(Trial(trial.number, min(trial.expires_at, latest)) for trial in trials)
    totals = state.trial_totals
    if totals.calls >= config.half_open_max_calls:
        totals = Totals()  # more trials were asked for when they ran; with these settings nothing would ever end it
    if until != state.until or trials is not state.trials or totals is not state.trial_totals:
        state = replace(state, until=until, trials=trials, trial_totals=totals)
    chunks = windows.not_ahead(value.chunks, now + SKEW_S)
    return value if state is value.state and chunks is value.chunks else replace(value, state=state, chunks=chunks)


def _in_a_line(cause: str) -> str:
    """Short, and such that it can be written as JSON."""
    return " ".join(cause[: 2 * _LONGEST_CAUSE].split())[:_LONGEST_CAUSE].encode("utf-8", "replace").decode()
