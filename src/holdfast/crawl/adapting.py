"""How many requests a site takes at once, and how far apart: learnt from its answers."""

from __future__ import annotations

import math
from typing import Final

FIRST_LIMIT: Final = 4
"""So many requests at once are put to a site of which nothing is known."""

_CUT: Final = 0.5
_CUT_SLOW: Final = 0.7
_FIRST_STEP: Final = 0.25  # per answer, until the first trouble: from 4 to 32 takes 112 answers
_PATIENCE: Final = 32  # where it was refused last, a step takes so many times the answers that it takes elsewhere
_MOST_PATIENCE: Final = 1024
_FIRST_INTERVAL_S: Final = 0.25
_LONGEST_INTERVAL_S: Final = 60.0
_SLOWER: Final = 3.0  # times the usual time
_SHARE: Final = 1 / 16  # of the latest answer in the recent time
_OUTLIER: Final = 4.0
_LONGEST_RUN: Final = 16  # a longer one proves no more: an interval of a sixteenth of the rest is always tried
_RUN_SHARE: Final = 1 / 4
_ALONE: Final = 2.0  # below this limit there is one request at a time
_NEVER: Final = -1.0


class Tempo:
    """The limit of requests in flight and, once that is down to one, the interval between their starts.

    Good answers raise the limit by about one per `limit` of them. A refusal or a failure halves it, slow answers take
    it to 0.7, once per round trip: requests that began before a cut do not cut again. At a limit of one, failures
    double the interval and each good answer halves it. What was refused last is neared quickly and tried again rarely,
    the more so the more often it was refused: a site that takes eight requests at once, and wants a minute's rest after
    the ninth, would otherwise mostly rest.

    An answer is slow when it and the recent time (a moving average, to which one outlier adds little) are over three
    times the usual time. The usual time is meant to be the site's own, without the queue that we make in it. So it
    follows the recent time down always, but up only while we ask one request at a time: an average that followed it up
    under load would take every queue for usual in the end. A site that has become slow for good is thus asked one by
    one for a few answers, and then more again.
    """

    __slots__ = (
        "interval_s",
        "limit",
        "_credit",
        "_cut_s",
        "_good",
        "_is_untroubled",
        "_most",
        "_patience",
        "_recent_s",
        "_refused_interval_s",
        "_refused_limit",
        "_run",
        "_slow_s",
        "_used",
        "_usual_s",
    )

    def __init__(self, most: int, slow_s: float) -> None:
        self.limit = float(min(most, FIRST_LIMIT))
        self.interval_s = 0.0
        self._most = float(most)
        self._slow_s = slow_s
        self._is_untroubled = True
        self._cut_s = -math.inf
        self._refused_limit = math.inf
        self._refused_interval_s = _NEVER
        self._patience = _PATIENCE
        self._credit = 0
        """Good answers since the interval was last changed."""
        self._good = 0
        """Good answers since the last refusal."""
        self._run = 0.0
        """How many come between two refusals: a moving average."""
        self._recent_s = 0.0
        self._usual_s = 0.0
        self._used = 0
        """For so many answers the limit counts as used: more was wanted than it gives."""

    @property
    def is_as_new(self) -> bool:
        """Whether nothing was learnt that asks for more care than a new site."""
        was_refused = self._refused_limit < math.inf or self._refused_interval_s >= 0.0
        return not was_refused and self.interval_s == 0.0 and self.limit >= min(self._most, FIRST_LIMIT)

    def answered(self, now_s: float, began_s: float, took_s: float, in_flight: int, *, is_timed: bool) -> bool:
        """The site answered well, when so many were in flight; True if limit or interval have changed.

        Only a page that was asked for is timed (`is_timed`): error pages come quicker than the site's usual answer.
        """
        self._good += 1
        limit = self.limit
        recent_s = self._timed(took_s) if is_timed else self._recent_s
        usual_s = self._usual_s
        bound_s = max(self._slow_s, _SLOWER * usual_s)
        is_slow = took_s > bound_s and recent_s > bound_s
        if recent_s < usual_s or limit < _ALONE:
            self._usual_s = usual_s + _SHARE * (recent_s - usual_s)
        if is_slow:
            return limit >= _ALONE and self._cut(now_s, began_s, _CUT_SLOW)
        if self.interval_s > 0.0 or self._refused_interval_s >= 0.0:
            return self._draws_closer()
        if limit < self._most and (self._used > 0 or 2 * in_flight >= limit):  # one that is not used proves nothing
            self._used -= self._used > 0
            self._grow()
            return True
        return False

    def filled(self) -> None:
        """More was wanted than the limit gives; what is in flight at an answer may be less, where pages take time."""
        self._used = int(self.limit)

    def refused(self, now_s: float, began_s: float, rest_s: float = math.inf) -> bool:
        """The site asked for a rest of so long; True if limit or interval have changed."""
        limit, interval_s = self.limit, self.interval_s
        if not self._cut(now_s, began_s, _CUT):
            return False
        good, self._good = min(self._good, _LONGEST_RUN), 0
        self._run += _RUN_SHARE * (good - self._run)
        if limit >= self._refused_limit or interval_s <= self._refused_interval_s:  # tried again, and refused again
            self._patience = min(2 * self._patience, _MOST_PATIENCE)
        if limit < _ALONE:
            self.interval_s = min(self.interval_s, rest_s / max(1.0, self._run))
            self._refused_interval_s = min(interval_s, self.interval_s)
        else:
            self._refused_limit = float(int(limit))
        return True

    def failed(self, now_s: float, began_s: float) -> bool:
        """The site failed; True if limit or interval have changed."""
        return self._cut(now_s, began_s, _CUT)

    def _timed(self, took_s: float) -> float:
        recent_s = self._recent_s
        if recent_s <= 0.0:
            self._recent_s = self._usual_s = took_s
            return took_s
        most_s = _OUTLIER * max(recent_s, self._slow_s)
        recent_s += _SHARE * ((took_s if took_s < most_s else most_s) - recent_s)
        self._recent_s = recent_s
        return recent_s

    def _cut(self, now_s: float, began_s: float, factor: float) -> bool:
        if began_s <= self._cut_s:
            return False
        self._cut_s = now_s
        self._is_untroubled = False
        self._credit = 0
        if self.limit < _ALONE:
            self.interval_s = min(max(2 * self.interval_s, _FIRST_INTERVAL_S), _LONGEST_INTERVAL_S)
        self.limit = max(1.0, self.limit * factor)
        return True

    def _grow(self) -> None:
        limit, wall = self.limit, self._refused_limit
        if limit < wall - 1.0:
            step = _FIRST_STEP if self._is_untroubled else 1.0 / limit
            self.limit = min(limit + step, wall - 1.0, self._most)
            return
        self.limit = min(limit + 1.0 / (self._patience * limit), self._most)
        if self.limit >= wall + 1.0:  # it takes what it refused
            self._refused_limit, self._patience = math.inf, _PATIENCE

    def _draws_closer(self) -> bool:
        closer_s = self.interval_s / 2 if self.interval_s > _FIRST_INTERVAL_S else 0.0
        self._credit += 1
        if closer_s <= self._refused_interval_s:
            if self._credit < self._patience:
                return False
            if self.interval_s <= self._refused_interval_s:  # it takes what it refused
                self._refused_interval_s, self._patience = _NEVER, _PATIENCE
        self._credit = 0
        self.interval_s = closer_s
        return True
