"""What goes wrong in one simulation: each kind of trouble is there or not, by the seed, and more or less often."""

from __future__ import annotations

import random
from typing import Final

from msgspec import Struct

LEASE_S: Final = 2.0


class Weather(Struct, frozen=True, kw_only=True):
    """Trouble of calls, as shares of them, and of machines, as the mean seconds between two; 0 is none.

    Most seeds have a few kinds only: where everything fails all the time, little happens that could go wrong.
    """

    away: float = 0.0
    """The request does not arrive, and the caller hears so."""
    lost: float = 0.0
    """It is done, and the reply is lost."""
    late: float = 0.0
    """The caller hears that nobody answers; then it is done."""
    twice: float = 0.0
    """It arrives a second time, a little later."""
    slow: float = 0.0
    """Request and reply take up to a lease."""
    dies_before: float = 0.0
    """The caller's machine dies with the request on its lips."""
    dies_after: float = 0.0
    """It dies when the request is done, before the reply."""
    kill_s: float = 0.0
    hold_s: float = 0.0
    """A machine stands still, for up to three leases."""
    cut_s: float = 0.0
    """A machine reaches nobody, for up to three leases."""
    stop_s: float = 0.0
    """A worker is told to drain, and another begins."""
    outage_s: float = 0.0
    """The store answers nobody for up to a lease."""
    skew_s: float = 0.0
    """The clocks of machines are wrong by up to this."""
    latency_s: float = 0.002
    """How long a request or a reply takes, about."""


_SHARES = {"away": 0.1, "lost": 0.1, "late": 0.1, "twice": 0.1, "slow": 0.05, "dies_before": 0.02, "dies_after": 0.02}
_TIMES = {"kill_s": 3.0, "hold_s": 4.0, "cut_s": 4.0, "stop_s": 4.0, "outage_s": 8.0}


def weather_of(dice: random.Random) -> Weather:
    """The weather of a seed."""
    chosen: dict[str, float] = {}
    for name, most in _SHARES.items():
        if dice.random() < 0.35:
            chosen[name] = most * dice.random()
    for name, mean_s in _TIMES.items():
        if dice.random() < 0.35:
            chosen[name] = mean_s * (0.3 + dice.random())
    if dice.random() < 0.2:
        chosen["skew_s"] = 7_200.0
    chosen["latency_s"] = dice.choice([0.0005, 0.002, 0.01, 0.05])
    return Weather(**chosen)
