"""The circuit breaker's settings: defaults, what follows from them, and what is refused."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.policy.breaker import COUNTED, BreakerConfig
from holdfast.policy.window import CountWindow, TimeWindow, Totals
from holdfast.types import FailureType


@pytest.mark.parametrize(
    ("field", "default"),
    [
        ("failure_threshold", 5),
        ("recovery_timeout", 30.0),
        ("half_open_max_calls", 3),
        ("window", None),
        ("failure_rate", None),
        ("slow_call", None),
        ("slow_rate", None),
        ("min_calls", None),
        ("recovery_factor", 1.0),
        ("max_recovery_timeout", None),
        ("trial_timeout", 60.0),
        ("failure_types", frozenset({FailureType.TRANSIENT, FailureType.NETWORK, FailureType.SYSTEM})),
    ],
)
def test_the_default_of(field: str, default: object) -> None:
    assert getattr(BreakerConfig(), field) == default


@pytest.mark.parametrize(
    ("settings", "window", "min_calls"),
    [
        ({"failure_rate": 0.5}, 100, 10),
        ({"slow_rate": 0.5, "slow_call": 1.0}, 100, 10),
        ({"failure_rate": 0.5, "window": 20}, 20, 10),
        ({"failure_rate": 0.5, "window": 10}, 10, 10),
        ({"failure_rate": 0.5, "window": 4}, 4, 4),
        ({"failure_rate": 0.5, "window": 1}, 1, 1),
        ({"failure_rate": 0.5, "window": 4, "min_calls": 4}, 4, 4),
        ({"failure_rate": 0.5, "window": 4, "min_calls": 1}, 4, 1),
        ({"failure_rate": 0.5, "window": timedelta(seconds=5)}, timedelta(seconds=5), 10),
        ({"failure_rate": 0.5, "window": timedelta(seconds=5), "min_calls": 500}, timedelta(seconds=5), 500),
    ],
)
def test_a_rate_brings_a_window_and_a_least_number_of_calls(
    settings: dict[str, Any], window: object, min_calls: int
) -> None:
    config = BreakerConfig(**settings)
    assert (config.window, config.min_calls) == (window, min_calls)


def test_the_window_is_by_count_or_by_time_or_not_there() -> None:
    assert BreakerConfig().new_window() is None
    by_count = BreakerConfig(failure_rate=0.5, window=2).new_window()
    assert isinstance(by_count, CountWindow)
    by_time = BreakerConfig(failure_rate=0.5, window=timedelta(minutes=2)).new_window()
    assert isinstance(by_time, TimeWindow)
    for window, until in ((by_count, 1e9), (by_time, 119.9)):
        window.add(0.0, failed=True, slow=False)
        assert window.totals(until).calls == 1
    by_count.add(0.0, failed=False, slow=False)
    by_count.add(0.0, failed=False, slow=False)
    assert by_count.totals(0.0) == Totals(2, 0, 0)
    assert by_time.totals(120.0) == Totals()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"failure_threshold": 0}, "failure_threshold=0: must be a whole number of at least 1"),
        ({"failure_threshold": True}, "failure_threshold=True: must be a whole number of at least 1"),
        ({"failure_threshold": 2.5}, "failure_threshold=2.5: must be a whole number of at least 1"),
        ({"recovery_timeout": 0}, "recovery_timeout=0: must be a number, above 0"),
        ({"recovery_timeout": math.inf}, "recovery_timeout=inf: must be a number, above 0"),
        ({"recovery_timeout": "30"}, "recovery_timeout='30': must be a number, above 0"),
        ({"half_open_max_calls": 0}, "half_open_max_calls=0: must be a whole number of at least 1"),
        ({"half_open_max_calls": -3}, "half_open_max_calls=-3: must be a whole number of at least 1"),
        ({"recovery_factor": 0.9}, "recovery_factor=0.9: must be a number, at least 1"),
        ({"recovery_factor": math.nan}, "recovery_factor=nan: must be a number, at least 1"),
        ({"trial_timeout": 0.0}, "trial_timeout=0.0: must be a number, above 0"),
        ({"max_recovery_timeout": 29.0}, "max_recovery_timeout=29.0: must be a number, at least 30"),
        ({"max_recovery_timeout": 0}, "max_recovery_timeout=0: must be a number, at least 30"),
        ({"failure_rate": 0}, "failure_rate=0: must be a number, above 0 and at most 1"),
        ({"failure_rate": 1.01}, "failure_rate=1.01: must be a number, above 0 and at most 1"),
        ({"failure_rate": 50}, "failure_rate=50: must be a number, above 0 and at most 1"),
        ({"failure_rate": True}, "failure_rate=True: must be a number, above 0 and at most 1"),
        ({"slow_rate": 0, "slow_call": 1}, "slow_rate=0: must be a number, above 0 and at most 1"),
        ({"slow_rate": 1.5, "slow_call": 1}, "slow_rate=1.5: must be a number, above 0 and at most 1"),
        ({"slow_rate": 0.5}, "slow_rate=0.5, slow_call=None: give both or neither"),
        ({"slow_call": 2.0}, "slow_rate=None, slow_call=2.0: give both or neither"),
        ({"slow_rate": 0.5, "slow_call": 0}, "slow_call=0: must be a number, above 0"),
        ({"slow_rate": 0.5, "slow_call": "1"}, "slow_call='1': must be a number, above 0"),
        ({"window": 100}, "window=100: needs failure_rate or slow_rate beside it"),
        ({"min_calls": 5}, "min_calls=5: needs failure_rate or slow_rate beside it"),
        ({"failure_rate": 0.5, "window": 0}, "window=0: must be a whole number of calls or a timedelta, above 0"),
        ({"failure_rate": 0.5, "window": 10.0}, "window=10.0: must be a whole number of calls or a timedelta, above 0"),
        ({"failure_rate": 0.5, "window": True}, "window=True: must be a whole number of calls or a timedelta, above 0"),
        (
            {"failure_rate": 0.5, "window": timedelta(0)},
            "window=datetime.timedelta(0): must be a whole number of calls or a timedelta, above 0",
        ),
        ({"failure_rate": 0.5, "min_calls": 0}, "min_calls=0: must be a whole number of at least 1"),
        ({"failure_rate": 0.5, "min_calls": "3"}, "min_calls='3': must be a whole number of at least 1"),
        ({"failure_rate": 0.5, "min_calls": 101}, "min_calls=101: must be at most window, which is 100"),
        ({"failure_rate": 0.5, "window": 4, "min_calls": 5}, "min_calls=5: must be at most window, which is 4"),
        ({"failure_types": []}, "failure_types=[]: must be a set of FailureTypes, at least one"),
        ({"failure_types": ["network"]}, "failure_types=['network']: must be a set of FailureTypes, at least one"),
        ({"failure_types": "network"}, "failure_types='network': must be a set of FailureTypes, at least one"),
        ({"failure_types": None}, "failure_types=None: must be a set of FailureTypes, at least one"),
        (
            {"failure_types": FailureType.NETWORK},
            "failure_types=<FailureType.NETWORK: 'network'>: must be a set of FailureTypes, at least one",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_with_field_value_and_remedy(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        BreakerConfig(**settings)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "settings",
    [
        {"failure_rate": 1.0},
        {"failure_rate": 1e-9},
        {"recovery_factor": 1},
        {"max_recovery_timeout": 30.0},
        {"slow_rate": 1, "slow_call": 1e-9},
        {"failure_threshold": 1, "half_open_max_calls": 1, "recovery_timeout": 1e-9, "trial_timeout": 1e-9},
    ],
)
def test_settings_at_their_very_limits_are_allowed(settings: dict[str, Any]) -> None:
    BreakerConfig(**settings)


def test_failure_types_may_be_any_collection_and_are_kept_as_a_set() -> None:
    types: Any = [FailureType.RATE_LIMITED, FailureType.NETWORK]
    assert BreakerConfig(failure_types=types).failure_types == frozenset(types)
    assert BreakerConfig().failure_types is COUNTED or BreakerConfig().failure_types == COUNTED
