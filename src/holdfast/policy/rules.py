"""What an alert can look at: each rule is a value with its limit, and the words for what is found."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from holdfast.errors import ConfigError
from holdfast.policy import bounds

LONGEST_WINDOW_S: Final = 3600.0
"""The widest window of a rule, and of what is read for it at every look."""
_MINUTE_S: Final = 60.0
_NAMED: Final = 5


class ErrorRate(Struct, frozen=True):
    """The share of attempts that failed in the last `window` seconds is over a limit.

    over: the limit [0.1]. window: seconds, from 60 to 3600 [300]. min_attempts: with fewer nothing is known [10].
    Attempts are counted by the minute, so it is taken over at least the window, in whole minutes.
    """

    over: float = 0.10
    window: float = 300.0
    min_attempts: int = 10

    def __post_init__(self) -> None:
        bounds.number("over", self.over, high=1.0)
        _check_window(self.window)
        bounds.whole("min_attempts", self.min_attempts, low=1)


class HealthScore(Struct, frozen=True):
    """The score of `app.health()` is under a limit [0.5]."""

    under: float = 0.5

    def __post_init__(self) -> None:
        bounds.number("under", self.under, above=0.0, high=1.0)


class DeadLetters(Struct, frozen=True):
    """There are more dead letters than a limit [100]."""

    over: float = 100

    def __post_init__(self) -> None:
        bounds.number("over", self.over)


class DeadLetterGrowth(Struct, frozen=True):
    """More jobs than a limit [50] became dead letters in the last `window` seconds, from 60 to 3600 [600].

    They are counted by the minute: each counts in full for at least the window, in whole minutes.
    """

    over: float = 50
    window: float = 600.0

    def __post_init__(self) -> None:
        bounds.number("over", self.over)
        _check_window(self.window)


class Lag(Struct, frozen=True):
    """The oldest job that could run has been due for longer than `over` seconds [60], in one queue or in any."""

    over: float = 60.0
    queue: str | None = None

    def __post_init__(self) -> None:
        bounds.length("over", self.over)
        _check_name("queue", self.queue)


class BreakerOpen(Struct, frozen=True):
    """A breaker, of one key or any, has not been closed for longer than so many seconds [60]."""

    longer_than: float = 60.0
    key: str | None = None

    def __post_init__(self) -> None:
        bounds.length("longer_than", self.longer_than)
        _check_name("key", self.key)


class NoWorker(Struct, frozen=True):
    """No worker is alive."""


class StreamLag(Struct, frozen=True):
    """A stream, of one name or any, has more unfinished messages than a limit [10,000], over all its partitions."""

    over: float = 10_000
    stream: str | None = None

    def __post_init__(self) -> None:
        bounds.number("over", self.over)
        _check_name("stream", self.stream)


class LagGrowth(Struct, frozen=True):
    """The lag of a stream, of one name or any, has grown by more than a limit [1,000] in `within` seconds [300].

    within: from 60 to 3600. It is what the lag is now, less the least that it was at a look within that time.
    """

    over: float = 1_000
    within: float = 300.0
    stream: str | None = None

    def __post_init__(self) -> None:
        bounds.number("over", self.over)
        _check_window(self.within, "within")
        _check_name("stream", self.stream)


class StreamStuck(Struct, frozen=True):
    """A partition of a stream, of one name or any, has waited for one message for longer than `over` seconds [60]."""

    over: float = 60.0
    stream: str | None = None

    def __post_init__(self) -> None:
        bounds.length("over", self.over)
        _check_name("stream", self.stream)


Rule = (
    ErrorRate
    | HealthScore
    | DeadLetters
    | DeadLetterGrowth
    | Lag
    | BreakerOpen
    | NoWorker
    | StreamLag
    | LagGrowth
    | StreamStuck
)
OF_STREAMS: Final = (StreamLag, LagGrowth, StreamStuck)
"""The rules that look at streams."""


class Reading(Struct, frozen=True, kw_only=True):
    """What was found for a rule."""

    value: float | None = None
    """None: nothing is known, such as an error rate without attempts."""
    keys: Collection[str] | None = None
    """For BreakerOpen in place of a value: the breakers that are not closed."""
    lags: Mapping[str, int] | None = None
    """For LagGrowth in place of a value: the lag of each stream."""
    what: str = ""
    """Whose value it is, where several things were looked at: a stream, a message."""
    is_known: bool = True
    """Whether anybody could say; if not, the alert stays as it is."""
    metrics: Mapping[str, float] = {}
    """How the app was at that time."""


def limit_of(rule: Rule) -> float:
    """Where a rule begins to hold."""
    match rule:
        case ErrorRate() | DeadLetters() | DeadLetterGrowth() | Lag() | StreamLag() | LagGrowth() | StreamStuck():
            return float(rule.over)
        case HealthScore():
            return float(rule.under)
        case BreakerOpen():
            return float(rule.longer_than)
        case NoWorker():
            return 1.0


def fallen(rule: Rule) -> bool:
    """Whether it is low values that are bad."""
    return isinstance(rule, HealthScore | NoWorker)


def minutes_of(rule: Rule) -> int:
    """How many minutes of counts a rule looks at: the current one, and as many before it as its window has."""
    return math.ceil(rule.window / _MINUTE_S) + 1 if isinstance(rule, ErrorRate | DeadLetterGrowth) else 0


def most_within(counts: Sequence[float], second: float) -> float:
    """The most that was counted in a window of whole minutes which ended now, or when the current minute began.

    counts: by minute, one more than the window has, the current one last. second: how far that one has come.

    Of a window that ends now the first minute is there in part, and that part of its count is taken: a steady stream
    comes out as it is. The other window is exact, so that what comes all at once counts in full, whenever that was.
    """
    ended_now = counts[0] * (1.0 - second / _MINUTE_S) + sum(counts[1:])
    return round(max(ended_now, sum(counts[:-1])), 1)


def words_of(rule: Rule, value: float | None, keys: Collection[str] = (), what: str = "") -> str:
    """What was found, for people, in one line."""
    match rule:
        case ErrorRate():
            found = "no attempts to speak of" if value is None else f"{value:.1%} of attempts failed"
            return f"{found} in {rule.window:g} s; the limit is {rule.over:.1%}"
        case HealthScore():
            found = "unknown" if value is None else f"{value:.3g}"
            return f"the health score is {found}; the limit is {rule.under:g}"
        case DeadLetters():
            return f"{value or 0:g} dead letters; the limit is {rule.over:g}"
        case DeadLetterGrowth():
            return f"{value or 0:g} new dead letters in {rule.window:g} s; the limit is {rule.over:g}"
        case Lag():
            where = "any queue" if rule.queue is None else f"queue {rule.queue}"
            found = "no job is due" if value is None else f"the oldest due job has waited for {value:.0f} s"
            return f"{found} in {where}; the limit is {rule.over:g} s"
        case BreakerOpen():
            if not keys:
                return "every breaker is closed" if rule.key is None else f"breaker {rule.key} is closed"
            names = ", ".join(sorted(keys)[:_NAMED]) + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")
            return f"not closed for {value or 0:.0f} s: {names}; the limit is {rule.longer_than:g} s"
        case NoWorker():
            return "no worker is alive" if not value else f"workers alive: {value:g}"
        case StreamLag():
            found = "unknown" if value is None else f"{value:.0f} messages"
            return f"the lag of {what or _stream(rule.stream)} is {found}; the limit is {rule.over:g}"
        case LagGrowth():
            found = "has grown by an unknown number" if value is None else f"has grown by {value:.0f} messages"
            of = what or _stream(rule.stream)
            return f"the lag of {of} {found} in {rule.within:g} s; the limit is {rule.over:g}"
        case StreamStuck():
            of = _stream(rule.stream)
            if value is None:
                found = f"nobody knows whether {of} moves"
            else:
                found = f"{what or of} has waited for {value:.0f} s" if value else f"every partition of {of} moves"
            return f"{found}; the limit is {rule.over:g} s"


def _stream(name: str | None) -> str:
    return "any stream" if name is None else f"stream {name}"


def _check_window(window: object, field: str = "window") -> None:
    bounds.length(field, window, low=_MINUTE_S)
    bounds.number(field, window, low=_MINUTE_S, high=LONGEST_WINDOW_S)


def _check_name(field: str, name: object) -> None:
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigError(f"{field}={name!r}: must be a name, or None for any")
