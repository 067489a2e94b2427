"""Alert rules and a look into the store: what is read for each, and how their states are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from holdfast.policy.alerts import Alert, AlertState, text_of, value_of
from holdfast.policy.health import LATELY_MIN
from holdfast.policy.notices import Notice
from holdfast.policy.rules import (
    BreakerOpen,
    DeadLetterGrowth,
    DeadLetters,
    ErrorRate,
    HealthScore,
    Lag,
    LagGrowth,
    NoWorker,
    Reading,
    Rule,
    StreamLag,
    StreamStuck,
    minutes_of,
    most_within,
)
from holdfast.ports import Value, ValueChange
from holdfast.redact import redacted_text
from holdfast.runtime.crawl_trouble import of_tasks
from holdfast.runtime.health import Look
from holdfast.types import BreakerMode

ALERT: Final = "alert:"
"""The values of alerts are kept under this and their names."""
_WELL: Final = frozenset({BreakerMode.CLOSED, BreakerMode.DISABLED})
_LONGEST_KEY: Final = 60
_TOTALS: Final = ("received", "completed", "failed", "dead", "retried", "healed")

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(AlertState).decode


class Target(Protocol):
    """Where notices go, besides functions: a Webhook is one."""

    async def deliver(self, notice: Notice) -> None:
        """Hand it over, or raise."""


class AlertView(Struct, frozen=True, kw_only=True):
    """An alert and how it stands, for lists."""

    name: str
    is_firing: bool
    since_at: float | None
    """Since when it is firing, on the store's clock; None while it is not."""
    value: float | None
    threshold: float
    text: str


def minutes_for(alerts: Iterable[Alert]) -> int:
    """How many minutes of counts these have to see."""
    return max([LATELY_MIN, *(minutes_of(alert.rule) for alert in alerts)])


def read(rule: Rule, look: Look, score: float | None, metrics: Mapping[str, float]) -> Reading:
    """What a rule finds. score: that of the app's health, where it was asked for."""
    match rule:
        case ErrorRate():
            return Reading(value=_error_rate(look, rule), metrics=metrics)
        case HealthScore():
            return Reading(value=score, metrics=metrics)
        case DeadLetters():
            return Reading(value=look.dead_letters, metrics=metrics)
        case DeadLetterGrowth():
            return Reading(value=_new_letters(look, minutes_of(rule)), metrics=metrics)
        case Lag():
            return Reading(value=look.lag_s(rule.queue), metrics=metrics)
        case BreakerOpen():
            open_keys = [view.key for view in look.breakers if view.mode not in _WELL]
            keys = of_tasks(open_keys, look.crawls) if rule.key is None else {rule.key} & {*open_keys}
            return Reading(keys=sorted(redacted_text(key) for key in keys), metrics=metrics)
        case NoWorker():
            return Reading(value=look.workers, metrics=metrics)
        case StreamLag() | LagGrowth():
            lags = {name: lag for name, lag in look.lags.items() if rule.stream in {None, name}}
            if not lags:
                return Reading(is_known=False, metrics=metrics)
            if isinstance(rule, LagGrowth):
                return Reading(lags=lags, metrics=metrics)
            name = max(sorted(lags), key=lags.__getitem__)
            return Reading(value=lags[name], what=f"stream {name}", metrics=metrics)
        case StreamStuck():
            return _stuck(look, rule, metrics)


def _stuck(look: Look, rule: StreamStuck, metrics: Mapping[str, float]) -> Reading:
    streams = [view for view in look.streams if rule.stream in {None, view.name}]
    if not streams:
        return Reading(is_known=False, metrics=metrics)
    stuck = [(one.stuck_s, view, one) for view in streams for one in view.partitions if one.stuck_id]
    if not stuck:
        return Reading(value=0.0, metrics=metrics)
    longest_s, view, one = max(stuck, key=lambda found: found[0])
    what = f"stream {view.name} at {one.stuck_id}, key {redacted_text(one.stuck_key)[:_LONGEST_KEY]!r},"
    return Reading(value=longest_s, what=what, metrics=metrics)


def _error_rate(look: Look, rule: ErrorRate) -> float | None:
    minutes = minutes_of(rule)
    ended = sum(look.count(name, minutes) for name in ("completed", "retried", "failed"))
    if ended < rule.min_attempts:
        return None
    return 1.0 - look.count("completed", minutes) / ended


def _new_letters(look: Look, minutes: int) -> float:
    latest = [look.count("dead", n) for n in range(minutes + 1)]
    by_minute = [more - less for less, more in pairwise(latest)]
    return most_within(by_minute[::-1], look.stats.now % 60)


def metrics_of(look: Look, score: float | None) -> dict[str, float]:
    """What a notice says of the app besides: totals since the store was made, and how it is now."""
    totals: dict[str, float] = dict.fromkeys(_TOTALS, 0)
    for count in look.stats.totals:
        if count.name in totals:
            totals[count.name] += count.n
    rate = look.success_rate()
    found = {
        "jobs_received": totals["received"],
        "jobs_completed": totals["completed"],
        "jobs_failed": totals["failed"],
        "jobs_dead_lettered": totals["dead"],
        "attempts": totals["completed"] + totals["retried"] + totals["failed"],
        "successful_retries": totals["healed"],
        "breaker_trips": sum(view.trips for view in look.breakers),
        "dead_letters": look.dead_letters,
        "open_breakers": len(look.open_breakers),
        "workers": look.workers,
        "lag_s": round(look.lag_s() or 0.0, 3),
    }
    if lags := look.lags:
        found["stream_lag"] = sum(lags.values())
    return found | ({} if rate is None else {"success_rate": rate}) | ({} if score is None else {"score": score})


def view_of(alert: Alert, state: AlertState, reading: Reading, now: float) -> AlertView:
    """How an alert stands."""
    value = value_of(state, reading, now)
    return AlertView(
        name=alert.name,
        is_firing=state.is_firing,
        since_at=state.since_at if state.is_firing else None,
        value=value,
        threshold=alert.limit,
        text=text_of(alert.rule, state, reading, value),
    )


# ---------------------------------------------------------------- the shared value


def states_in(values: Iterable[Value]) -> dict[str, tuple[AlertState, int]]:
    """The states among these values, by the alert's name, each with its version; one that cannot be read is new."""
    return {
        value.key.removeprefix(ALERT): (_read(value.data), value.version)
        for value in values
        if value.key.startswith(ALERT) and value.data is not None
    }


def change_of(name: str, state: AlertState, expected: int) -> ValueChange:
    """Set an alert's state, if it still has this version; one like new is removed."""
    return ValueChange(ALERT + name, expected, None if state == AlertState() else _encode(state))


def _read(data: bytes) -> AlertState:
    try:
        return _decode(data)
    except (ValueError, RecursionError):
        return AlertState()
