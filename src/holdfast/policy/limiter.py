"""Never more than so many starts in any window of time."""

from __future__ import annotations

import math
import re
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.errors import ConfigError
from holdfast.policy import bounds

_UNITS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_UNITS |= {"d": 86_400.0, "day": 86_400.0}
_UNITS |= {f"{name}s": unit for name, unit in _UNITS.items() if len(name) > 1}  # "ms" would not be minutes
_RATE = r"\s*(\d{1,9})\s*/\s*(\d{1,6}(?:\.\d{1,6})?)?\s*([a-z]+)\s*"
_ALL: Any = None
_ENTRIES = 64
_SOON = 1e-9  # a wait this short is a rounding error, not a wait


class Rate(Struct, frozen=True):
    """At most `max_calls` starts in any `time_window` seconds, of which at most `burst` at once [max_calls].

    With a smaller burst the rest are spread evenly: a burst of 1 puts time_window / max_calls between any two starts.
    """

    max_calls: int
    time_window: float
    burst: int = _ALL
    grain: float = 0.0
    """Starts closer together than this are remembered as one; zero where the limit is low enough to remember each."""

    def __post_init__(self) -> None:
        bounds.whole("max_calls", self.max_calls, low=1)
        bounds.length("time_window", self.time_window, above=0.0)
        if self.burst is _ALL:
            force_setattr(self, "burst", self.max_calls)
        if bounds.whole("burst", self.burst, low=1) > self.max_calls:
            raise ConfigError(f"burst={self.burst!r}: must be at most max_calls, which is {self.max_calls}")
        force_setattr(self, "grain", self.time_window / _ENTRIES if self.max_calls > _ENTRIES else 0.0)

    @classmethod
    def parse(cls, text: str, field: str = "rate") -> Rate:
        """A rate as people write it: "100/minute", "5/10s", "2/second"; `field` names it where it is refused."""
        match = re.fullmatch(_RATE, text.lower()) if isinstance(text, str) else None
        unit = _UNITS.get(match[3]) if match else None
        if match is None or unit is None or int(match[1]) == 0 or (match[2] and float(match[2]) == 0):
            raise ConfigError(f"{field}={text!r}: must be like '100/minute', '5/10s' or '2/second'")
        return cls(int(match[1]), float(match[2] or 1) * unit)


class _Entry(Struct):
    """Starts so close together that they are remembered as one."""

    first: float
    last: float
    count: int = 1


class Starts(Struct):
    """The starts that a window still remembers, oldest first.

    Starts close together share an entry, dated at the last of them, so there are never more than a few dozen entries
    however high the limit, and the limit is kept all the same: an entry is forgotten too late, never too early.
    """

    entries: list[_Entry] = []
    count: int = 0
    next_even: float = -math.inf
    """With a burst smaller than the limit: when the next start would be if all were evenly spread."""

    def take(self, rate: Rate, now: float, ahead: int = 0) -> float:
        """Start now and return zero, or return the seconds to wait, after `ahead` others who already wait."""
        entries = self.entries
        if entries and self.count + ahead < rate.max_calls == rate.burst and entries[0].last > now - rate.time_window:
            # Room, even if nothing is forgotten, and nothing to forget: the common case, so it is worth its own lines.
            last = entries[-1]
            if now - last.first < rate.grain:
                self.count += 1
                last.last = now
                last.count += 1
                return 0.0
        elif (wait := self.wait(rate, now, ahead)) > 0.0:
            return wait
        self.add(rate, now)
        return 0.0

    def wait(self, rate: Rate, now: float, ahead: int = 0) -> float:
        """Seconds until one more may start, after `ahead` others who already wait; zero if it may start now."""
        self._forget(now - rate.time_window)
        wait = 0.0
        over = self.count + ahead + 1 - rate.max_calls
        if over > 0:
            wait = self._room_at(over, rate, now) - now
        if rate.burst < rate.max_calls:
            gap = rate.time_window / rate.max_calls
            wait = max(wait, max(self.next_even, now) - (rate.burst - 1 - ahead) * gap - now)
        return wait if wait > _SOON else 0.0

    def add(self, rate: Rate, now: float) -> None:
        """Remember a start at this instant. The caller has asked `wait` first."""
        self.count += 1
        last = self.entries[-1] if self.entries else None
        if last is not None and now - last.first < rate.grain:
            last.last = now
            last.count += 1
        else:
            self.entries.append(_Entry(now, now))
        if rate.burst < rate.max_calls:
            self.next_even = max(self.next_even, now) + rate.time_window / rate.max_calls

    def is_idle(self, rate: Rate, now: float) -> bool:
        """Whether nothing is remembered any more, so that it may be thrown away."""
        self._forget(now - rate.time_window)
        return not self.entries and self.next_even <= now

    def _forget(self, horizon: float) -> None:
        gone = 0
        for entry in self.entries:
            if entry.last - horizon > _SOON:
                break
            gone += 1
            self.count -= entry.count
        if gone:
            del self.entries[:gone]

    def _room_at(self, over: int, rate: Rate, now: float) -> float:
        """When so many starts that are over the limit will have room; those who wait are remembered in their turn."""
        rounds, left = divmod(over - 1, rate.max_calls)
        instant = now  # those ahead that nothing remembered makes wait start now
        for entry in self.entries:
            left -= entry.count
            if left < 0:
                instant = entry.last
                break
        return instant + rate.time_window * (rounds + 1)
