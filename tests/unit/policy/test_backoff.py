"""The exact waits of every strategy, with jitter off and with chance scripted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.policy.backoff import Backoff, Jitter, jitter_range
from holdfast.testing import ScriptedRng

ALMOST_ONE = math.nextafter(1.0, 0.0)


def no_chance() -> float:
    raise AssertionError("chance was asked where none is needed")


def waits(backoff: Backoff, count: int) -> list[float]:
    return [backoff.delay(n, rng=no_chance) for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Backoff(jitter=False), [1.0, 3.0, 9.0, 27.0, 60.0, 60.0]),
        (Backoff(jitter=False, initial_delay=1, multiplier=3), [1, 3, 9, 27]),
        (Backoff(jitter=False, initial_delay=5, multiplier=2), [5, 10, 20, 40]),
        (Backoff(jitter=False, strategy="linear", initial_delay=1, backoff_factor=1.5), [1, 2.5, 4, 5.5]),
        (Backoff(jitter=False, strategy="linear"), [1, 2.5, 4, 5.5]),
        (Backoff(jitter=False, strategy="linear", initial_delay=5, backoff_factor=5), [5, 10, 15]),
        (Backoff(jitter=False, strategy="fixed", initial_delay=1), [1, 1, 1]),
        (Backoff(jitter=False, strategy="fixed", initial_delay=7, multiplier=2, backoff_factor=3), [7, 7, 7]),
        (Backoff(jitter=False, strategy="immediate", min_delay=5), [0, 0, 0]),
        (Backoff(jitter=True, strategy="immediate", min_delay=5), [0, 0, 0]),
        (Backoff(jitter="none", multiplier=1), [1, 1, 1]),
        (Backoff(jitter=(2.0, 2.0)), [2, 6, 18, 54, 60]),
    ],
)
def test_without_jitter_the_waits_are_exact_and_need_no_chance(backoff: Backoff, expected: list[float]) -> None:
    assert waits(backoff, len(expected)) == expected


@pytest.mark.parametrize(
    ("jitter", "low", "high"),
    [
        ("none", 8.0, 8.0),
        ("full", 0.0, 8.0),
        ("equal", 4.0, 8.0),
        ("proportional", 4.0, 12.0),
        ("additive", 8.8, 10.4),
        (True, 0.0, 8.0),
        (False, 8.0, 8.0),
        ((1.0, 1.5), 8.0, 12.0),
        ((0.25, 0.5), 2.0, 4.0),
        ((0, 2), 0.0, 16.0),
    ],
)
def test_each_jitter_has_its_exact_range(jitter: Jitter, low: float, high: float) -> None:
    backoff = Backoff(strategy="fixed", initial_delay=8.0, jitter=jitter, min_delay=0.0)
    assert backoff.delay(1, rng=ScriptedRng([0.0])) == pytest.approx(low)
    assert backoff.delay(1, rng=ScriptedRng([0.5])) == pytest.approx((low + high) / 2)
    assert backoff.delay(1, rng=ScriptedRng([ALMOST_ONE])) == pytest.approx(high)


def test_jitter_is_drawn_anew_for_every_retry() -> None:
    backoff, rng = Backoff(min_delay=0.0), ScriptedRng([0.5, 0.25, 1 / 3])
    assert [backoff.delay(n, rng=rng) for n in (1, 2, 3)] == [0.5, 0.75, 3.0]


@pytest.mark.parametrize(
    ("n", "chance", "expected"),
    [
        (1, 0.0, 0.1),  # 1 × 0 is below min_delay
        (1, 0.05, 0.1),
        (1, 0.2, 0.2),
        (5, 0.5, 30.0),  # 81 is held at 60 before the jitter
        (9, 0.0, 0.1),
    ],
)
def test_limits_are_applied_after_the_jitter(n: int, chance: float, expected: float) -> None:
    assert Backoff().delay(n, rng=ScriptedRng([chance])) == expected


def test_a_jitter_that_adds_does_not_go_over_max_delay() -> None:
    assert Backoff(jitter="additive").delay(5, rng=ScriptedRng([0.5])) == 60.0
    assert Backoff(jitter="proportional", initial_delay=50.0).delay(1, rng=ScriptedRng([0.9])) == 60.0


@pytest.mark.parametrize(
    ("chance", "expected"),
    [
        ([0.0], [1.0, 1.0, 1.0, 1.0]),
        ([0.5], [2.0, 3.5, 5.75, 9.125]),  # between 1 and 3 × the one before: 1–3, 1–6, 1–10.5, 1–17.25
        ([0.5, 0.0], [2.0, 1.0, 2.0, 1.0]),
    ],
)
def test_decorrelated_draws_between_the_initial_delay_and_three_times_the_wait_before(
    chance: list[float], expected: list[float]
) -> None:
    backoff = Backoff(strategy="decorrelated")
    assert [backoff.delay(n, rng=ScriptedRng(chance)) for n in range(1, 5)] == expected


def test_decorrelated_is_held_at_max_delay_and_min_delay() -> None:
    high = Backoff(strategy="decorrelated", max_delay=10.0)
    assert high.delay(40, rng=ScriptedRng([ALMOST_ONE])) == pytest.approx(10.0)
    assert high.delay(40, rng=ScriptedRng([0.5])) == 5.5  # half-way between 1 and 10
    assert Backoff(strategy="decorrelated", initial_delay=0.0).delay(3, rng=ScriptedRng([0.5])) == 0.1
    assert Backoff(strategy="decorrelated", initial_delay=90.0).delay(1, rng=ScriptedRng([0.5])) == 60.0
    assert Backoff(strategy="decorrelated", initial_delay=90.0).delay(9, rng=ScriptedRng([0.5])) == 60.0


@pytest.mark.parametrize(("n", "draws"), [(1, 1), (63, 63), (64, 64), (65, 64), (10**9, 64)])
def test_decorrelated_draws_once_a_step_and_at_most_64_times(n: int, draws: int) -> None:
    asked = []

    def counted() -> float:
        asked.append(n)
        return 0.5

    Backoff(strategy="decorrelated").delay(n, rng=counted)
    assert len(asked) == draws


def test_decorrelated_does_not_look_at_the_jitter_setting() -> None:
    for jitter in (True, False):
        assert Backoff(strategy="decorrelated", jitter=jitter).delay(1, rng=ScriptedRng([0.5])) == 2.0


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda n: n * 2.0, [2.0, 4.0, 6.0]),
        (lambda n: -5.0, [0.1, 0.1, 0.1]),
        (lambda n: 1e9, [60.0, 60.0, 60.0]),
        (lambda n: math.inf, [60.0, 60.0, 60.0]),
        (lambda n: -math.inf, [0.1, 0.1, 0.1]),
        (lambda n: math.nan, [60.0, 60.0, 60.0]),
    ],
)
def test_a_function_is_given_n_and_held_within_the_limits(
    function: Callable[[int], float], expected: list[float]
) -> None:
    assert waits(Backoff(strategy=function, jitter=False), 3) == expected


def test_a_function_that_answers_no_number_is_held_at_max_delay_before_the_jitter() -> None:
    assert Backoff(strategy=lambda n: math.nan).delay(1, rng=ScriptedRng([0.5])) == 30.0


def test_jitter_applies_to_a_function_too() -> None:
    assert Backoff(strategy=lambda n: 10.0 * n).delay(2, rng=ScriptedRng([0.25])) == 5.0


@pytest.mark.parametrize("n", [10_000, 10**9])
def test_growth_beyond_all_floats_is_held_at_max_delay(n: int) -> None:
    assert Backoff(jitter=False).delay(n) == 60.0
    assert Backoff(jitter=False, strategy="linear").delay(n) == 60.0
    assert Backoff(jitter=False, initial_delay=0.0, min_delay=0.0).delay(n) == 0.0
    assert Backoff(jitter=False, initial_delay=1e-300).delay(n) == 60.0


@pytest.mark.parametrize("n", [0, -1])
@pytest.mark.parametrize("strategy", ["exponential", "immediate", "decorrelated"])
def test_retries_are_counted_from_one(n: int, strategy: Any) -> None:
    with pytest.raises(ValueError, match=rf"^n={n}: retries are counted from 1$"):
        Backoff(strategy=strategy).delay(n)


def test_chance_is_the_machines_own_unless_given() -> None:
    drawn = {Backoff(min_delay=0.0).delay(1) for _ in range(20)}
    assert len(drawn) > 1
    assert all(0.0 <= wait < 1.0 for wait in drawn)


@pytest.mark.parametrize(
    ("field", "default"),
    [
        ("strategy", "exponential"),
        ("initial_delay", 1.0),
        ("max_delay", 60.0),
        ("multiplier", 3.0),
        ("jitter", True),
        ("backoff_factor", 1.5),
        ("min_delay", 0.1),
    ],
)
def test_defaults(field: str, default: object) -> None:
    assert getattr(Backoff(), field) == default


@pytest.mark.parametrize("field", ["initial_delay", "min_delay", "max_delay", "backoff_factor"])
@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, True, "1", None])
def test_a_delay_that_cannot_be_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Backoff(**{field: value})
    assert str(refused.value) == f"{field}={value!r}: must be a number, at least 0"


@pytest.mark.parametrize("value", [0, 0.999, -2, math.nan, True, "2", None])
def test_a_multiplier_that_would_shrink_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Backoff(multiplier=value)
    assert str(refused.value) == f"multiplier={value!r}: must be a number, at least 1"


@pytest.mark.parametrize("field", ["initial_delay", "backoff_factor", "min_delay"])
def test_zero_is_a_delay(field: str) -> None:
    settings: dict[str, Any] = {field: 0}
    assert getattr(Backoff(**settings), field) == 0


def test_max_delay_below_min_delay_is_refused_and_equal_is_not() -> None:
    with pytest.raises(ConfigError, match=r"^max_delay=1\.0: must be at least min_delay, which is 2\.0$"):
        Backoff(min_delay=2.0, max_delay=1.0)
    assert waits(Backoff(min_delay=2.0, max_delay=2.0, jitter=False), 3) == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("strategy", ["quadratic", "", "EXPONENTIAL", None, 3, ["fixed"], True])
def test_an_unknown_strategy_is_refused_and_the_known_ones_are_named(strategy: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Backoff(strategy=strategy)
    assert str(refused.value) == (
        f"strategy={strategy!r}: must be one of exponential, linear, fixed, immediate, decorrelated, or a function of n"
    )


@pytest.mark.parametrize(
    "jitter", ["some", "", "FULL", None, 0, 1, 0.5, [1.0, 1.5], (1.0,), (1.0, 1.2, 1.4), (), {"full": 1}]
)
def test_an_unknown_jitter_is_refused_and_the_known_ones_are_named(jitter: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Backoff(jitter=jitter)
    assert str(refused.value) == (
        f"jitter={jitter!r}: must be True, False, a pair of factors, "
        "or one of none, full, equal, proportional, additive"
    )


@pytest.mark.parametrize(
    ("jitter", "message"),
    [
        ((1.5, 1.0), "jitter=(1.5, 1.0): must have the lower factor first"),
        ((-0.5, 1.0), "jitter=-0.5: must be a number, at least 0"),
        ((0.5, math.inf), "jitter=inf: must be a number, at least 0"),
        ((math.nan, 1.0), "jitter=nan: must be a number, at least 0"),
        ((True, 1.0), "jitter=True: must be a number, at least 0"),
        ((0.5, "1"), "jitter='1': must be a number, at least 0"),
    ],
)
def test_a_pair_of_factors_that_is_no_range_is_refused(jitter: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        jitter_range(jitter)
    assert str(refused.value) == message
