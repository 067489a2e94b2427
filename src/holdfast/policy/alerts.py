"""Alerts: when a rule holds for long enough it fires once, and it is resolved when its value is well clear again.

             holds for `for_s`                        clear
    quiet ──────────────────────▶ firing, a notice ──────────▶ quiet, a notice
                                    │  ▲
                                    └──┘ every `repeat_s`: a reminder
Notices are kept in the state until they are sent, so that somebody else can send them when their sender is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.policy.lags import Sample, growth, sampled
from holdfast.policy.notices import Notice, Outbox, told
from holdfast.policy.rules import (
    BreakerOpen,
    HealthScore,
    LagGrowth,
    NoWorker,
    Reading,
    Rule,
    fallen,
    limit_of,
    words_of,
)

CLEAR_SHARE: Final = 0.8
"""A value is clear at this share of the limit; where low values are bad, a fifth of the way from the limit up to 1."""
YIELD_S: Final = 60.0
"""After so long without an objection an alert whose settings have changed is judged by the new ones."""
_OBJECT_S: Final = 30.0


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
    def fingerprint(self) -> str:
        """The same for the same settings: two versions of a program may have different ones under one name."""
        return sha256(msgspec.json.encode((type(self.rule).__name__, self))).hexdigest()[:16]

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


class Rival(Struct, frozen=True, kw_only=True):
    """Other settings under the same name, which take over if nobody objects."""

    fingerprint: str
    since_at: float


class AlertState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an alert stands; a value that all servers share."""

    is_firing: bool = False
    since_at: float | None = None
    """Since when it is firing; while it is not, since when it has held."""
    told_at: float = 0.0
    """When the latest notice came to be, while it is firing."""
    marks: Mapping[str, float] = {}
    """For breakers: since when each has been open."""
    samples: tuple[Sample, ...] = ()
    """For the growth of lags: what they were."""
    fingerprint: str = ""
    """The settings it was judged by; empty while it is quiet."""
    rival: Rival | None = None
    outbox: Outbox = Outbox()
    """What is not sent yet."""

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to be remembered but notices."""
        return not self.is_firing and self.since_at is None and not self.marks


def value_of(state: AlertState, reading: Reading, now: float) -> float | None:
    """The value to be judged: the reading's own, for how long the first of its breakers has been open, or a growth."""
    if reading.lags is not None:
        return growth(state.samples, reading.lags)[1]
    if reading.keys is None:
        return reading.value
    return max((now - min(now, state.marks.get(key, now)) for key in reading.keys), default=0.0)


def text_of(rule: Rule, state: AlertState, reading: Reading, value: float | None) -> str:
    """What was found, for people, in one line."""
    grown = "" if reading.lags is None else growth(state.samples, reading.lags)[0]
    what = f"stream {grown}" if grown else reading.what
    return words_of(rule, value, reading.keys or (), what)


def step(
    alert: Alert,
    state: AlertState,
    reading: Reading,
    now: float,
    *,
    id: str,  # noqa: A002
    app: str = "",
    to: Collection[str] = (),
    by: str = "",
) -> tuple[AlertState, Notice | None]:
    """Where an alert stands after a reading, and the notice of it under this id, if there is something to tell.

    to: the targets of a notice. by: the server that asks, which is to send it where nothing else waits.
    While servers with other settings judge the same alert, nothing changes: they would fire and end it in turns. Nor
    does it while nobody knows anything.
    """
    if not reading.is_known:
        return state, None
    state, is_ours = _owned(state, alert.fingerprint, now)
    if not is_ours:
        return state, None
    state, kind = _judged(alert, state, reading, now)
    state = replace(state, fingerprint="" if state.is_quiet else alert.fingerprint)
    if kind is None:
        return state, None
    value = value_of(state, reading, now)
    notice = Notice(
        id=id,
        name=alert.name,
        state="resolved" if kind == "resolved" else "firing",
        value=value,
        threshold=alert.limit,
        text=text_of(alert.rule, state, reading, value),
        at=now,
        app=app,
        is_reminder=kind == "reminder",
        metrics=reading.metrics,
    )
    return replace(state, outbox=told(state.outbox, notice, to, by, now)), notice


def _judged(
    alert: Alert, state: AlertState, reading: Reading, now: float
) -> tuple[AlertState, Literal["firing", "reminder", "resolved"] | None]:
    state = replace(state, marks={key: min(now, state.marks.get(key, now)) for key in sorted(reading.keys or ())})
    samples: tuple[Sample, ...] = ()
    if reading.lags is not None and isinstance(alert.rule, LagGrowth):
        samples = sampled(state.samples, reading.lags, now, alert.rule.within)
    state = replace(state, samples=samples)
    value = value_of(state, reading, now)
    # What lies ahead of now was dated by a clock that has been set back: it counts from now on.
    since_at = None if state.since_at is None else min(now, state.since_at)
    if state.is_firing:
        state = replace(state, since_at=since_at, told_at=min(now, state.told_at))
        if alert.is_clear(value):
            return replace(state, is_firing=False, since_at=None, told_at=0.0), "resolved"
        if alert.repeat_s is not None and now - state.told_at >= alert.repeat_s:
            return replace(state, told_at=now), "reminder"
        return state, None
    if not alert.holds(value):
        return replace(state, since_at=None), None
    since_at = now if since_at is None else since_at
    if now - since_at < alert.for_s:
        return replace(state, since_at=since_at), None
    return replace(state, is_firing=True, since_at=now, told_at=now), "firing"


def _owned(state: AlertState, fingerprint: str, now: float) -> tuple[AlertState, bool]:
    """Whether an alert is to be judged by these settings; whoever has others says so, and waits for an objection."""
    rival = state.rival
    waited_s = 0.0 if rival is None else now - rival.since_at
    if state.is_quiet or state.fingerprint in {"", fingerprint}:
        is_answered = rival is not None and (state.is_quiet or not 0.0 <= waited_s < _OBJECT_S)
        return (replace(state, rival=None) if is_answered else state), True
    if rival is not None and rival.fingerprint == fingerprint and waited_s >= YIELD_S:
        return replace(state, rival=None), True
    if rival is None or waited_s < 0.0 or waited_s >= 2 * YIELD_S:
        return replace(state, rival=Rival(fingerprint=fingerprint, since_at=now)), False
    return state, False
