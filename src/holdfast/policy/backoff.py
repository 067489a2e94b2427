"""How long to wait before the n-th retry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

from msgspec import Struct

from holdfast.clock import chance
from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.types import Rng

StrategyName = Literal["exponential", "linear", "fixed", "immediate", "decorrelated"]
Strategy = StrategyName | Callable[[int], float]
JitterName = Literal["none", "full", "equal", "proportional", "additive"]
Jitter = bool | JitterName | tuple[float, float]

JITTERS: dict[object, tuple[float, float]] = {
    "none": (1.0, 1.0),
    "full": (0.0, 1.0),
    "equal": (0.5, 1.0),
    "proportional": (0.5, 1.5),
    "additive": (1.1, 1.3),
}
"""Each jitter multiplies the delay by a number drawn from a range; these are the ranges that have names."""

_DECORRELATED_GROWTH = 3.0
_DECORRELATED_STEPS = 64  # by then every sequence has long reached its cap


class Backoff(Struct, frozen=True, kw_only=True):
    """How waits grow from retry to retry.

    strategy: "exponential" (initial × multiplier each time), "linear" (initial, then + backoff_factor each time),
        "fixed", "immediate" (no wait at all; limits and jitter do not apply), "decorrelated" (each wait drawn between
        the initial one and three times the one before), or a function from n to seconds.
    jitter: True is "full"; a pair of factors is a range of its own: (1.0, 1.5) adds up to half.
    min_delay, max_delay: applied after the jitter, so no wait is ever outside them. The growth is held at max_delay
        before the jitter too, or else late retries would all wait exactly max_delay.
    """

    strategy: Strategy = "exponential"
    initial_delay: float = 1.0
    max_delay: float = 60.0
    multiplier: float = 3.0
    jitter: Jitter = True
    backoff_factor: float = 1.5
    min_delay: float = 0.1

    def __post_init__(self) -> None:
        bounds.length("initial_delay", self.initial_delay)
        bounds.length("min_delay", self.min_delay)
        bounds.length("max_delay", self.max_delay)
        bounds.number("multiplier", self.multiplier, low=1.0)
        bounds.length("backoff_factor", self.backoff_factor)
        if self.max_delay < self.min_delay:
            raise ConfigError(f"max_delay={self.max_delay!r}: must be at least min_delay, which is {self.min_delay!r}")
        names = get_args(StrategyName)
        if self.strategy not in names and not callable(self.strategy):
            raise ConfigError(f"strategy={self.strategy!r}: must be one of {', '.join(names)}, or a function of n")
        jitter_range(self.jitter)

    def delay(self, n: int, *, rng: Rng = chance) -> float:
        """Seconds to wait before the n-th retry, n from 1."""
        if n < 1:
            raise ValueError(f"n={n}: retries are counted from 1")
        if self.strategy == "immediate":
            return 0.0
        if self.strategy == "decorrelated":
            return self._clamped(self._decorrelated(n, rng))
        low, high = jitter_range(self.jitter)
        factor = low if low == high else low + (high - low) * rng()
        return self._clamped(min(self._grown(n), self.max_delay) * factor)

    def _grown(self, n: int) -> float:
        match self.strategy:
            case "exponential":
                return _power(self.initial_delay, self.multiplier, n - 1)
            case "linear":
                return self.initial_delay + self.backoff_factor * (n - 1)
            case "fixed":
                return self.initial_delay
            case _:
                assert callable(self.strategy)  # noqa: S101 - the other names do not come here
                seconds = self.strategy(n)
                return self.max_delay if math.isnan(seconds) else seconds

    def _decorrelated(self, n: int, rng: Rng) -> float:
        """The n-th step of the walk, drawn from its beginning, so that nobody has to remember the step before."""
        wait = self.initial_delay
        for _ in range(min(n, _DECORRELATED_STEPS)):
            highest = max(self.initial_delay, min(self.max_delay, wait * _DECORRELATED_GROWTH))
            wait = self.initial_delay + (highest - self.initial_delay) * rng()
        return wait

    def _clamped(self, seconds: float) -> float:
        return max(self.min_delay, min(self.max_delay, seconds))


def jitter_range(jitter: Jitter) -> tuple[float, float]:
    """The range of factors a jitter stands for."""
    if isinstance(jitter, bool):
        return JITTERS["full" if jitter else "none"]
    if isinstance(jitter, str) and jitter in JITTERS:
        return JITTERS[jitter]
    if isinstance(jitter, tuple) and len(jitter) == 2:
        low, high = (bounds.number("jitter", factor) for factor in jitter)
        if low > high:
            raise ConfigError(f"jitter={jitter!r}: must have the lower factor first")
        return low, high
    raise ConfigError(
        f"jitter={jitter!r}: must be True, False, a pair of factors, or one of {', '.join(map(str, JITTERS))}"
    )


def _power(base: float, factor: float, exponent: int) -> float:
    try:
        return base * factor**exponent
    except OverflowError:
        return math.inf if base else 0.0
