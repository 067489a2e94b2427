"""Retries never add more than a set share to the load on a service."""

from __future__ import annotations

from msgspec import Struct

from holdfast.policy import bounds

_ROUNDING = 1e-9  # ten tenths add up to a little less than one


class BudgetConfig(Struct, frozen=True, kw_only=True):
    """ratio: what a success earns, as a share of a retry. cap: how many retries can be saved up; a budget starts full.

    Over any stretch there are at most cap + ratio × successes retries. The cap matters as much as the ratio: when all
    calls fail, the cap is all that is spent.
    """

    ratio: float = 0.1
    cap: float = 10.0

    def __post_init__(self) -> None:
        bounds.number("ratio", self.ratio, high=1.0)
        bounds.number("cap", self.cap, low=1.0)


def earned(config: BudgetConfig, tokens: float, successes: int = 1) -> float:
    """The tokens after so many successes."""
    return min(config.cap, tokens + config.ratio * successes)


def spent(tokens: float) -> float | None:
    """The tokens after one retry, or None when there are not enough for it."""
    return max(0.0, tokens - 1.0) if tokens >= 1.0 - _ROUNDING else None
