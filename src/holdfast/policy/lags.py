"""How the lag of streams grows: what it was at some of the latest looks, and what it is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

SAMPLES: Final = 10
"""So many looks are remembered of a window, at equal distances: the value is shared, and stays small."""
_MOST_STREAMS: Final = 100


class Sample(Struct, frozen=True):
    """The lags at one look."""

    at: float
    lags: Mapping[str, int]


def sampled(samples: Sequence[Sample], lags: Mapping[str, int], now: float, within_s: float) -> tuple[Sample, ...]:
    """The samples of the window that ends now, with this look among them where it is time for one.

    What lies ahead of now was dated by a clock that has been set back, and goes.
    """
    kept = tuple(one for one in samples if now - within_s <= one.at <= now)
    if kept and now - kept[-1].at < within_s / SAMPLES:
        return kept
    largest = sorted(lags.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST_STREAMS]
    return (*kept, Sample(now, dict(sorted(largest))))


def growth(samples: Sequence[Sample], lags: Mapping[str, int]) -> tuple[str, float]:
    """The stream whose lag has grown most above the least of its samples, and by how much; 0 for none."""
    most = "", 0.0
    for name, lag in sorted(lags.items()):
        known = [one.lags[name] for one in samples if name in one.lags]
        if known and lag - min(known) > most[1]:
            most = name, float(lag - min(known))
    return most
