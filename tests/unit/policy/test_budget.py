"""At most cap + ratio × successes retries."""

from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.policy.budget import BudgetConfig, earned, spent


def retries_out_of(tokens: float) -> int:
    """How many retries a budget pays for until it says no."""
    for count in range(1000):
        left = spent(tokens)
        if left is None:
            return count
        tokens = left
    raise AssertionError("it never says no")


def test_defaults_are_a_tenth_and_ten() -> None:
    assert (BudgetConfig().ratio, BudgetConfig().cap) == (0.1, 10.0)


@pytest.mark.parametrize(
    ("tokens", "left"),
    [(10.0, 9.0), (1.5, 0.5), (1.0, 0.0), (0.99, None), (0.5, None), (0.0, None)],
)
def test_a_retry_costs_one_and_is_refused_below_one(tokens: float, left: float | None) -> None:
    assert spent(tokens) == left


@pytest.mark.parametrize(
    ("tokens", "successes", "expected"),
    [(0.0, 1, 0.5), (0.0, 3, 1.5), (1.25, 0, 1.25), (3.5, 1, 4.0), (3.75, 1, 4.0), (4.0, 1000, 4.0)],
)
def test_a_success_earns_the_ratio_and_never_more_than_the_cap(tokens: float, successes: int, expected: float) -> None:
    assert earned(BudgetConfig(ratio=0.5, cap=4.0), tokens, successes) == expected


def test_one_success_is_earned_unless_said_otherwise() -> None:
    assert earned(BudgetConfig(ratio=0.25), 1.0) == 1.25


@pytest.mark.parametrize(("ratio", "successes"), [(0.1, 10), (0.2, 5), (0.05, 20), (0.01, 100), (0.3, 10), (0.7, 10)])
def test_so_many_successes_buy_exactly_ratio_times_as_many_retries(ratio: float, successes: int) -> None:
    config, tokens = BudgetConfig(ratio=ratio, cap=50.0), 0.0
    for _ in range(successes - 1):
        tokens = earned(config, tokens)
    bought = round(ratio * successes)
    assert retries_out_of(tokens) == bought - 1
    assert retries_out_of(earned(config, tokens)) == bought


def test_a_retry_paid_to_the_last_leaves_nothing_rather_than_a_debt() -> None:
    tokens = 0.0
    for _ in range(10):
        tokens = earned(BudgetConfig(), tokens)
    assert tokens < 1.0  # ten tenths do not make one, in binary
    assert spent(tokens) == 0.0


def test_when_every_call_fails_the_cap_is_all_that_is_spent() -> None:
    assert retries_out_of(BudgetConfig().cap) == 10
    assert retries_out_of(2.5) == 2


def test_a_ratio_of_nothing_earns_nothing_and_a_ratio_of_one_earns_a_retry_a_success() -> None:
    assert earned(BudgetConfig(ratio=0), 0.0, 10**6) == 0.0
    assert earned(BudgetConfig(ratio=1), 0.0, 3) == 3.0


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf, True, "0.1", None])
def test_a_ratio_outside_nought_to_one_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        BudgetConfig(ratio=value)
    assert str(refused.value) == f"ratio={value!r}: must be a number, at least 0 and at most 1"


@pytest.mark.parametrize("value", [0, 0.5, -1, math.nan, math.inf, False, "10", None])
def test_a_cap_that_never_pays_for_one_retry_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        BudgetConfig(cap=value)
    assert str(refused.value) == f"cap={value!r}: must be a number, at least 1"
