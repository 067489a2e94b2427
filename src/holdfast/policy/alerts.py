"""Alerts: when a rule holds for long enough it fires once, and it is resolved when its value is well clear again.

             holds for `for_s`                        clear
    quiet ──────────────────────▶ firing, a notice ──────────▶ quiet, a notice
                                    │  ▲
                                    └──┘ every `repeat_s`: a reminder
Notices are kept in the state until they are sent, so that somebody else can send them when their sender is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.policy.rules import BreakerOpen, HealthScore, NoWorker, Reading, Rule, fallen, limit_of, words_of

CLEAR_SHARE: Final = 0.8
"""A value is clear at this share of the limit; where low values are bad, a fifth of the way from the limit up to 1."""
HOLD_S: Final = 120.0
"""For how long the sender of a notice has it to itself; then another one may send it again."""
AGAIN_S: Final = 60.0
"""After so long a notice that a target did not take is sent to it again."""
MOST_TRIES: Final = 10
"""After so many tries a notice is dropped."""
_MOST_PENDING: Final = 10


class Alert(Struct, frozen=True, kw_only=True):
    """A rule with a name, and how patient it is."""

    name: str
    rule: Rule
    for_s: float = 0.0
    clear: float | None = None
    repeat_s: float | None = None

    def __post_init__(self) -> None:
        bounds.length("for_s", self.for_s)
        if self.repeat_s is not None:
            bounds.length("repeat_s", self.repeat_s, low=1.0)
        if self.clear is None:
            return
        if isinstance(self.rule, BreakerOpen | NoWorker):
            raise ConfigError(f"clear={self.clear!r}: {type(self.rule).__name__} has nothing between well and not")
        if fallen(self.rule):
            bounds.number("clear", self.clear, low=limit_of(self.rule), high=1.0)
        else:
            bounds.number("clear", self.clear, high=limit_of(self.rule))

    @property
    def limit(self) -> float:
        """Where it begins to hold."""
        return limit_of(self.rule)

    @property
    def clear_at(self) -> float:
        """Where it is well clear again."""
        if self.clear is not None:
            return self.clear
        match self.rule:
            case HealthScore():
                return self.limit + (1.0 - self.limit) * (1.0 - CLEAR_SHARE)
            case NoWorker():
                return self.limit
            case BreakerOpen():
                return 0.0
            case _:
                return self.limit * CLEAR_SHARE

    def holds(self, value: float | None) -> bool:
        """Whether this value is a reason to fire."""
        if value is None:
            return False
        return value < self.limit if fallen(self.rule) else value > self.limit

    def is_clear(self, value: float | None) -> bool:
        """Whether this value ends it; so does none, as there is nothing any more that could be wrong."""
        if value is None:
            return True
        return value >= self.clear_at if fallen(self.rule) else value <= self.clear_at


class Notice(Struct, frozen=True, kw_only=True):
    """What is told when an alert fires, is still firing, or is resolved."""

    id: str
    """The same however often it is sent: who has seen it needs it no more."""
    name: str
    state: Literal["firing", "resolved"]
    value: float | None
    threshold: float
    text: str
    """The same in words."""
    at: float
    """When it came to be, in seconds since 1970 on the store's clock."""
    app: str = ""
    is_reminder: bool = False
    metrics: Mapping[str, float] = {}
    """How the app was at that time."""


class Pending(Struct, frozen=True, kw_only=True):
    """A notice that has not been sent to all who should get it."""

    notice: Notice
    until_at: float
    """Until then it is somebody's to send."""
    tries: int = 1
    done: tuple[int, ...] = ()
    """The targets that have it already, by their place."""


class AlertState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an alert stands; a value that all servers share."""

    is_firing: bool = False
    since_at: float | None = None
    """Since when it is firing; while it is not, since when it has held."""
    told_at: float = 0.0
    """When the latest notice came to be."""
    marks: Mapping[str, float] = {}
    """For breakers: since when each has been open."""
    pending: tuple[Pending, ...] = ()


def value_of(state: AlertState, reading: Reading, now: float) -> float | None:
    """The value to be judged: the reading's own, or for how long the first of its breakers has been open."""
    if reading.keys is None:
        return reading.value
    return max((now - min(now, state.marks.get(key, now)) for key in reading.keys), default=0.0)


def step(
    alert: Alert,
    state: AlertState,
    reading: Reading,
    now: float,
    *,
    id: str,  # noqa: A002
    app: str = "",
) -> tuple[AlertState, Notice | None]:
    """Where an alert stands after a reading, and the notice of it under this id, if there is something to tell."""
    state = replace(state, marks={key: min(now, state.marks.get(key, now)) for key in sorted(reading.keys or ())})
    value = value_of(state, reading, now)
    since_at = None if state.since_at is None else min(now, state.since_at)  # a clock may have been set back
    if state.is_firing:
        if alert.is_clear(value):
            state = replace(state, is_firing=False, since_at=None)
            return _told(alert, state, reading, now, value, id=id, app=app, is_over=True)
        if alert.repeat_s is not None and now - min(now, state.told_at) >= alert.repeat_s:
            return _told(alert, state, reading, now, value, id=id, app=app, is_reminder=True)
        return state, None
    if not alert.holds(value):
        return (state if state.since_at is None else replace(state, since_at=None)), None
    since_at = now if since_at is None else since_at
    if now - since_at < alert.for_s:
        return (state if state.since_at == since_at else replace(state, since_at=since_at)), None
    return _told(alert, replace(state, is_firing=True, since_at=now), reading, now, value, id=id, app=app)


def _told(
    alert: Alert,
    state: AlertState,
    reading: Reading,
    now: float,
    value: float | None,
    *,
    id: str,  # noqa: A002
    app: str,
    is_over: bool = False,
    is_reminder: bool = False,
) -> tuple[AlertState, Notice]:
    notice = Notice(
        id=id,
        name=alert.name,
        state="resolved" if is_over else "firing",
        value=value,
        threshold=alert.limit,
        text=words_of(alert.rule, value, reading.keys or ()),
        at=now,
        app=app,
        is_reminder=is_reminder,
        metrics=reading.metrics,
    )
    pending = (*state.pending, Pending(notice=notice, until_at=now + HOLD_S))[-_MOST_PENDING:]
    return replace(state, told_at=now, pending=pending), notice


# ---------------------------------------------------------------- sending


def taken(state: AlertState, now: float) -> tuple[AlertState, tuple[Pending, ...]]:
    """Take over every notice that is nobody's to send any more; those tried often enough are dropped."""
    mine, kept = [], []
    for one in state.pending:
        # One that is held for longer than anybody may hold it was dated by a clock that has been set back.
        if now < one.until_at <= now + HOLD_S:
            kept.append(one)
        elif one.tries < MOST_TRIES:
            mine.append(replace(one, until_at=now + HOLD_S, tries=one.tries + 1))
            kept.append(mine[-1])
    return (replace(state, pending=tuple(kept)) if mine or len(kept) < len(state.pending) else state), tuple(mine)


def sent(state: AlertState, id: str, done: frozenset[int], targets: int, now: float) -> AlertState:  # noqa: A002
    """The state once these targets have a notice: it is forgotten when all have it, or else kept for another try."""
    pending = []
    for one in state.pending:
        if one.notice.id != id:
            pending.append(one)
            continue
        all_done = done | set(one.done)
        if not set(range(targets)) <= all_done:
            pending.append(replace(one, until_at=now + AGAIN_S, done=tuple(sorted(all_done))))
    return replace(state, pending=tuple(pending))
