"""A rate limit whose starts all workers share."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from holdfast.policy.limiter import Rate, Starts
from holdfast.runtime.shared.guard import SKEW_S, Guard

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Starts).decode


class SharedLimit(Guard[Starts, float]):
    """One limit, as this worker knows it. A note is the instant of a start that was taken and never made."""

    def __init__(self, gate: str, rate: Rate) -> None:
        self.rate = rate
        super().__init__(gate)

    # ---- asking

    def wait_s(self, draft: Starts, now: float) -> float:
        """Seconds until one more may start; zero if it may start now."""
        return draft.wait(self.rate, now)

    def take(self, draft: Starts, at: float) -> float:
        """Remember a start in a draft whose `wait_s` is zero, with this date or a later one, and say which."""
        # Other workers may have dated theirs a little ahead, and the starts of a draft must stay in order.
        date = max(at, draft.entries[-1].last) if draft.entries else at
        draft.add(self.rate, date)
        return date

    def lost(self, upto: int) -> None:
        """What may have been given back already is not given back again: it would be another's start."""
        self.landed(upto)

    # ---- looking at it

    def left(self, now: float) -> int:
        """How many may start now."""
        starts, rate = self.known, self.rate
        if starts.wait(rate, now) > 0.0:
            return 0
        if rate.burst == rate.max_calls:
            return rate.max_calls - starts.count
        low, high = 1, min(rate.burst, rate.max_calls - starts.count)
        while low < high:  # the most that may start at once
            middle = (low + high + 1) // 2
            low, high = (middle, high) if starts.wait(rate, now, middle - 1) == 0.0 else (low, middle - 1)
        return low

    def opens_in_s(self, now: float) -> float | None:
        """Seconds until one may start, where none may now."""
        return self.known.wait(self.rate, now) or None

    def is_idle(self, now: float) -> bool:
        """Whether nothing is remembered any more."""
        return not self.notes and self.known.is_idle(self.rate, now)

    # ---- the value

    def empty(self) -> Starts:
        """No start at all."""
        return Starts()

    def read(self, data: bytes, now: float) -> Starts | None:
        """The starts, none of them ahead of the clock."""
        try:
            starts = _decode(data)
        except (ValueError, RecursionError):
            return None
        if any(entry.count < 1 for entry in starts.entries):
            return None
        starts.count = sum(entry.count for entry in starts.entries)
        self._bound(starts, now)
        return starts

    def write(self, state: Starts, now: float) -> bytes | None:
        """The starts as bytes; None when all are forgotten, so that limits of single users do not pile up."""
        if state.is_idle(self.rate, now):
            return None
        fields: dict[str, Any] = {"entries": state.entries, "count": state.count}
        if state.next_even > -math.inf:
            fields["next_even"] = state.next_even
        return _encode(fields)

    def draft(self, now: float) -> Starts:
        """A copy of what is known, without the starts that were never made."""
        del now
        known = self.known
        starts = Starts([replace(entry) for entry in known.entries], known.count, known.next_even)
        for _, at in self.notes:
            self._give_back(starts, at)
        return starts

    def differs(self, draft: Starts) -> bool:
        """Whether a start was given back."""
        return draft.count != self.known.count

    def set_back(self, now: float) -> None:
        """The clock has gone back: what was remembered ahead of it counts as started now."""
        self._bound(self.known, now)

    def _give_back(self, starts: Starts, at: float) -> None:
        for index in range(len(starts.entries) - 1, -1, -1):
            entry = starts.entries[index]
            if entry.first <= at:  # its own, or one that is forgotten earlier: then the limit is kept all the more
                if self.rate.burst < self.rate.max_calls and starts.entries[-1].last <= at:
                    # Once another has started, the pace may have caught up, and there is nothing to give back of it.
                    starts.next_even -= self.rate.time_window / self.rate.max_calls
                entry.count -= 1
                starts.count -= 1
                if entry.count == 0:
                    del starts.entries[index]
                return

    def _bound(self, starts: Starts, now: float) -> None:
        rate = self.rate
        furthest = now + SKEW_S + rate.time_window  # a slow store has starts dated ahead
        for entry in starts.entries:
            if entry.last > furthest:
                entry.first, entry.last = min(entry.first, now), now
        if rate.burst == rate.max_calls:
            starts.next_even = -math.inf
        else:
            starts.next_even = min(starts.next_even, furthest + rate.burst * rate.time_window / rate.max_calls)
