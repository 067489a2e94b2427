"""When a schedule is due: fixed intervals, cron lines, and what becomes of ticks that were missed. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.errors import ConfigError
from holdfast.policy import bounds

Missed: TypeAlias = Literal["once", "skip"]
"""What becomes of ticks that passed while no worker ran: the latest one fires once, or none does."""

MISSED_AFTER_S: Final = 60.0
"""A tick older than this counts as missed."""
AHEAD_S: Final = 86_400.0
"""A last tick that is further ahead than this was written by a clock that was wrong, so nothing waits for it."""

_LONGEST_LINE: Final = 200
_SOME_DAY: Final = datetime(2000, 1, 1)
_MINUTE: Final = timedelta(minutes=1)
_FIELDS: Final = "minute, hour, day of month, month, day of week"


class Every(Struct, frozen=True):
    """A tick every so many seconds (a number or a timedelta, at least 1 s), counted from `anchor`.

    anchor [0, which is 1970-01-01 UTC]: the instant of one tick, in seconds since 1970. Every worker counts from the
    same instant, so all of them agree on the ticks.
    """

    seconds: float | timedelta
    anchor: float = 0.0

    def __post_init__(self) -> None:
        seconds = self.seconds.total_seconds() if isinstance(self.seconds, timedelta) else self.seconds
        force_setattr(self, "seconds", bounds.length("seconds", seconds, low=1.0))
        force_setattr(self, "anchor", bounds.number("anchor", self.anchor, low=-1e11, high=1e11))

    @property
    def text(self) -> str:
        """In words; two timings are the same when their texts are."""
        return f"every {self._length:.12g} s" + (f" from {self.anchor:.15g}" if self.anchor else "")

    def next_after(self, instant: float) -> float | None:
        """The first tick that is later than this instant."""
        n = math.floor((instant - self.anchor) / self._length)
        # The division rounds, so the tick is looked for among its neighbours.
        ticks = (self.anchor + i * self._length for i in (n - 1, n, n + 1, n + 2))
        return next((tick for tick in ticks if tick > instant), None)

    def ticks(self, after: float, until: float) -> Iterator[float]:
        """The ticks that are later than `after` and not later than `until`, in order."""
        return _walk(self, after, until)

    def latest(self, after: float, until: float) -> float | None:
        """The last of them, found without going through the others."""
        return _latest(self, after, until, self._length)

    @property
    def _length(self) -> float:
        return self.seconds  # type: ignore[return-value]  # __post_init__ has made it a number


class Cron(Struct, frozen=True):
    """A cron line of five fields, read in a time zone: "*/5 * * * *", "30 2 * * MON-FRI", "0 9 L * *".

    Where the clocks change, a line that names its hours fires once for each time of day: what falls into the hour that
    is left out fires once at its end, and of an hour that comes twice the first counts. A line for every hour ("*")
    goes by real time, so that "*/5 * * * *" fires every five minutes of that night as well.

    tz ["UTC"]: the name of a time zone, such as "Europe/Berlin".
    """

    line: str
    tz: str = "UTC"

    def __post_init__(self) -> None:
        if not isinstance(self.line, str) or len(self.line) > _LONGEST_LINE or len(self.line.split()) != 5:
            shown = self.line[:_LONGEST_LINE] if isinstance(self.line, str) else self.line
            raise ConfigError(f"line={shown!r}: must be a cron line of five fields: {_FIELDS}")
        force_setattr(self, "line", " ".join(self.line.upper().split()))
        _zone(self.tz)
        try:
            first = next(CronSim(self.line, _SOME_DAY), None)
        except CronSimError as error:
            raise ConfigError(f"line={self.line!r}: {error}; a cron line has five fields: {_FIELDS}") from error
        if first is None:
            raise ConfigError(f"line={self.line!r}: never fires, as no such day exists")

    @property
    def text(self) -> str:
        """In words; two timings are the same when their texts are."""
        return f"{self.line} {self.tz}"

    def next_after(self, instant: float) -> float | None:
        """The first tick that is later than this instant; None where the calendar ends, at the year 9999."""
        return next(self._from(instant), None)

    def ticks(self, after: float, until: float) -> Iterator[float]:
        """The ticks that are later than `after` and not later than `until`, in order."""
        for tick in self._from(after):
            if tick > until:
                return
            yield tick

    def latest(self, after: float, until: float) -> float | None:
        """The last of them, found without going through all the others."""
        return _latest(self, after, until, 3600.0)

    def _from(self, instant: float) -> Iterator[float]:
        zone = _zone(self.tz)
        last = instant
        try:
            start = datetime.fromtimestamp(instant, zone)
            # Times of day without a zone for lines that name their hours; real time for the others.
            is_hourly = self.line.split()[1] == "*"
            for moment in CronSim(self.line, start if is_hourly else start.replace(tzinfo=None)):
                tick = (moment if is_hourly else _existing(moment, zone)).timestamp()
                if tick > last:
                    yield tick
                    last = tick
        except (OverflowError, ValueError):
            return  # the calendar ends here


Timing: TypeAlias = Every | Cron


class Due(Struct, frozen=True):
    """What to do about a schedule now."""

    last: float
    """The tick, or the instant of its start, up to which all is decided."""
    tick: float | None
    """The tick to fire, if any."""


def due(timing: Timing, last: float, now: float, missed: Missed = "once") -> Due | None:
    """What is due at this instant, when all up to `last` has been decided; None when there is nothing to decide.

    Of several ticks only the latest fires. A clock that went back waits until it is past `last` again, so no tick fires
    twice; after more than a day it starts anew.
    """
    if last > now + AHEAD_S:
        return Due(now, None)
    tick = timing.latest(last, now)
    if tick is None:
        return None
    return Due(tick, tick if missed == "once" or now - tick < MISSED_AFTER_S else None)


def timing_of(value: object) -> Timing:
    """A timing as people write it: a cron line (read in UTC), a number of seconds, a timedelta, an Every or a Cron."""
    if isinstance(value, Every | Cron):
        return value
    if isinstance(value, str):
        return Cron(value)
    if isinstance(value, timedelta | int | float):
        return Every(value)
    raise ConfigError(f"timing={value!r}: must be a cron line, a number of seconds, a timedelta, an Every or a Cron")


def _walk(timing: Every, after: float, until: float) -> Iterator[float]:
    tick = timing.next_after(after)
    while tick is not None and tick <= until:
        yield tick
        tick = timing.next_after(tick)


def _latest(timing: Timing, after: float, until: float, span_s: float) -> float | None:
    """Look back from the end in growing spans, until one has a tick in it."""
    while True:
        start = max(after, until - span_s)
        tick = None
        for tick in timing.ticks(start, until):  # noqa: B007  the last one is what is asked for
            pass
        if tick is not None or start <= after:
            return tick
        span_s *= 4.0


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, TypeError, OSError) as error:
        raise ConfigError(f"tz={name!r}: no such time zone on this machine; must be like 'Europe/Berlin'") from error


def _existing(moment: datetime, zone: ZoneInfo) -> datetime:
    """A time of day as an instant: the first of two, and the end of the gap for one that is left out."""
    while True:
        instant = moment.replace(tzinfo=zone)
        if instant.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == moment:
            return instant
        moment += _MINUTE
