"""Settings are refused in one line that names the field, the value and what would be right."""

from __future__ import annotations

import math
import sys
from datetime import timedelta

import pytest

from holdfast.errors import ConfigError
from holdfast.policy import bounds

NOT_A_NUMBER = [math.nan, math.inf, -math.inf, True, False, "1", "", None, [], 1j, timedelta(seconds=1)]
NOT_A_NUMBER += [10**400, -(10**400)]  # larger than any float


@pytest.mark.parametrize("value", [0, 0.0, 1, 2.5, 1e300, sys.float_info.max])
def test_a_number_within_its_limits_comes_back_as_a_float(value: float) -> None:
    answer = bounds.number("delay", value)
    assert answer == value
    assert type(answer) is float


@pytest.mark.parametrize("value", NOT_A_NUMBER, ids=lambda value: repr(value)[:20])
def test_what_is_no_finite_number_is_refused_with_field_value_and_remedy(value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        bounds.number("delay", value)
    assert str(refused.value) == str(ConfigError(f"delay={value!r}: must be a number, at least 0"))
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("value", "above", "low", "high", "remedy"),
    [
        (-0.001, None, 0.0, math.inf, "at least 0"),
        (0.999, None, 1.0, math.inf, "at least 1"),
        (0.0, 0.0, 0.0, math.inf, "above 0"),
        (-1, 0.0, 0.0, math.inf, "above 0"),
        (1.001, None, 0.0, 1.0, "at least 0 and at most 1"),
        (1.001, 0.0, 0.0, 1.0, "above 0 and at most 1"),
        (0.0, 0.0, 0.0, 1.0, "above 0 and at most 1"),
        (2.0, 2.5, 0.0, 7.0, "above 2.5 and at most 7"),
    ],
)
def test_a_number_outside_its_limits_is_refused_and_the_limits_are_named(
    value: float, above: float | None, low: float, high: float, remedy: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        bounds.number("share", value, above=above, low=low, high=high)
    assert str(refused.value) == f"share={value!r}: must be a number, {remedy}"


def test_low_and_high_are_themselves_allowed_and_above_is_not() -> None:
    assert bounds.number("share", 1.0, low=1.0, high=2.0) == 1.0
    assert bounds.number("share", 2.0, low=1.0, high=2.0) == 2.0
    assert bounds.number("share", math.nextafter(1.0, 2.0), above=1.0) > 1.0
    with pytest.raises(ConfigError):
        bounds.number("share", 1.0, above=1.0)


@pytest.mark.parametrize(("value", "low"), [(0, 0), (1, 1), (5, 1), (10**30, 1)])
def test_a_whole_number_of_at_least_low_comes_back(value: int, low: int) -> None:
    assert bounds.whole("calls", value, low=low) == value


@pytest.mark.parametrize("value", [0, -1, 1.0, 1.5, True, "3", None, math.nan])
def test_what_is_no_whole_number_of_at_least_low_is_refused(value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        bounds.whole("calls", value, low=1)
    assert str(refused.value) == f"calls={value!r}: must be a whole number of at least 1"


@pytest.mark.parametrize("value", [0, 0.0, 3, 2.5, 1e9, 10**9])
def test_a_length_of_up_to_31_years_comes_back_as_a_float(value: float) -> None:
    answer = bounds.length("delay", value)
    assert answer == value
    assert type(answer) is float


@pytest.mark.parametrize("value", [math.nextafter(1e9, math.inf), 10**9 + 1, 1e300])
def test_a_length_that_no_clock_can_wait_for_is_refused(value: float) -> None:
    with pytest.raises(ConfigError) as refused:
        bounds.length("delay", value)
    assert str(refused.value) == f"delay={value!r}: must be at most 1e+09 s"


@pytest.mark.parametrize(
    ("value", "above", "low", "remedy"),
    [(0.0, 0.0, 0.0, "above 0"), (-1, None, 0.0, "at least 0"), (1, None, 2.0, "at least 2")],
)
def test_a_length_has_the_limits_of_a_number_too(value: float, above: float | None, low: float, remedy: str) -> None:
    with pytest.raises(ConfigError) as refused:
        bounds.length("delay", value, above=above, low=low)
    assert str(refused.value) == f"delay={value!r}: must be a number, {remedy}"
