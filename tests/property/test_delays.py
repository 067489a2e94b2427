"""Whatever the settings, no wait is outside its limits and none is begun that would end too late."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.policy.backoff import JITTERS, Backoff
from holdfast.policy.retry import RetryPolicy, next_delay
from holdfast.types import Failure, FailureType, GiveUp

lengths = st.floats(0.0, 60.0) | st.floats(0.0, 1e6)
chances = st.floats(0.0, 1.0, exclude_max=True)
retries = st.integers(1, 8) | st.integers(1, 2_000)
growing = st.sampled_from(["exponential", "linear", "fixed"])
jitters = st.sampled_from([True, False, "none", "full", "equal", "proportional", "additive"])
pairs = st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 10.0)).map(lambda pair: (min(pair), max(pair)))


@st.composite
def settings_of_a_backoff(draw: st.DrawFn) -> dict[str, Any]:
    low, high = sorted((draw(st.just(0.0) | lengths), draw(lengths)))
    return {
        "initial_delay": draw(lengths),
        "min_delay": low,
        "max_delay": high,
        "multiplier": draw(st.floats(1.0, 4.0) | st.floats(1.0, 1e6)),
        "backoff_factor": draw(lengths),
    }


@given(
    settings_of_a_backoff(),
    st.one_of(
        st.sampled_from(["exponential", "linear", "fixed", "decorrelated"]),
        st.floats().map(lambda seconds: lambda n: seconds),
    ),
    jitters | pairs,
    retries,
    chances,
)
def test_every_wait_is_within_its_limits(
    settings: dict[str, Any], strategy: Any, jitter: Any, n: int, chance: float
) -> None:
    delay = Backoff(strategy=strategy, jitter=jitter, **settings).delay(n, rng=lambda: chance)
    assert settings["min_delay"] <= delay <= settings["max_delay"]


@given(settings_of_a_backoff(), jitters, retries, chances)
def test_an_immediate_retry_never_waits(settings: dict[str, Any], jitter: Any, n: int, chance: float) -> None:
    assert Backoff(strategy="immediate", jitter=jitter, **settings).delay(n, rng=lambda: chance) == 0.0


@given(settings_of_a_backoff(), growing, retries)
def test_without_jitter_waits_never_become_shorter(settings: dict[str, Any], strategy: Any, n: int) -> None:
    backoff = Backoff(strategy=strategy, jitter=False, **settings)
    assert backoff.delay(n) <= backoff.delay(n + 1)


@given(settings_of_a_backoff(), growing, st.integers(1, 40))
def test_without_jitter_waits_are_those_of_school_arithmetic(settings: dict[str, Any], strategy: Any, n: int) -> None:
    exact = Fraction(settings["initial_delay"])
    for _ in range(n - 1):
        if strategy == "exponential":
            exact *= Fraction(settings["multiplier"])
        elif strategy == "linear":
            exact += Fraction(settings["backoff_factor"])
    exact = max(Fraction(settings["min_delay"]), min(Fraction(settings["max_delay"]), exact))
    assert Backoff(strategy=strategy, jitter=False, **settings).delay(n) == pytest.approx(float(exact), rel=1e-9)


@given(settings_of_a_backoff(), growing, st.sampled_from(sorted(map(str, JITTERS))) | pairs, retries, chances)
def test_jitter_keeps_a_wait_within_its_range_around_the_wait_without(
    settings: dict[str, Any], strategy: Any, jitter: Any, n: int, chance: float
) -> None:
    settings["min_delay"] = 0.0
    plain = Backoff(strategy=strategy, jitter=False, **settings).delay(n)
    low, high = JITTERS[jitter] if isinstance(jitter, str) else jitter
    delay = Backoff(strategy=strategy, jitter=jitter, **settings).delay(n, rng=lambda: chance)
    rounding = 1.0 + 1e-12
    assert min(settings["max_delay"], plain * low) / rounding <= delay <= plain * high * rounding


@given(settings_of_a_backoff(), st.integers(1, 100), st.lists(chances, min_size=64, max_size=64))
def test_decorrelated_waits_follow_one_walk(settings: dict[str, Any], n: int, drawn: list[float]) -> None:
    initial, highest = settings["initial_delay"], settings["max_delay"]
    wait = initial
    for chance in drawn[:n]:
        wait = initial + (max(initial, min(highest, 3 * wait)) - initial) * chance
    expected = max(settings["min_delay"], min(highest, wait))
    assert Backoff(strategy="decorrelated", **settings).delay(n, rng=iter(drawn).__next__) == pytest.approx(expected)


healing = st.sampled_from([one for one in FailureType if one.is_retriable])


@given(
    settings_of_a_backoff(),
    growing,
    healing,
    st.none() | lengths,
    st.none() | st.floats(1e-3, 1e6),
    st.integers(0, 10),
    st.integers(0, 12),
    lengths,
    chances,
)
def test_no_wait_is_begun_that_would_end_after_the_total_limit(
    settings: dict[str, Any],
    strategy: Any,
    type_: FailureType,
    retry_after: float | None,
    total_timeout: float | None,
    max_retries: int,
    made: int,
    elapsed: float,
    chance: float,
) -> None:
    policy = RetryPolicy(strategy=strategy, total_timeout=total_timeout, max_retries=max_retries, **settings)
    failure = Failure(type_, retry_after=retry_after)
    answer = next_delay(policy, failure, retries=made, elapsed_s=elapsed, rng=lambda: chance)
    wanted = policy.delay(made + 1, failure, rng=lambda: chance)
    if made >= max_retries:
        assert answer is GiveUp.RETRIES_USED_UP
    elif total_timeout is not None and elapsed + wanted > total_timeout:
        assert answer is GiveUp.TOTAL_TIME_OVER
    else:
        assert answer == wanted
    if retry_after is not None:
        assert wanted == min(retry_after, 86_400.0)


@given(settings_of_a_backoff(), jitters | pairs, retries, chances)
def test_a_429_never_comes_back_before_30_60_120_nor_after_300(
    settings: dict[str, Any], jitter: Any, n: int, chance: float
) -> None:
    delay = RetryPolicy(jitter=jitter, **settings).delay(n, Failure(FailureType.RATE_LIMITED), rng=lambda: chance)
    assert min(300.0, 30.0 * 2.0 ** min(n - 1, 10)) <= delay <= 300.0


@given(st.floats() | st.integers(), st.none() | st.floats(-10, 10), st.floats(-10, 10), st.floats(-10, 10))
def test_a_number_is_taken_exactly_when_it_is_finite_and_within_its_limits(
    value: float, above: float | None, low: float, high: float
) -> None:
    assume(low <= high)
    is_right = value - value == 0 and low <= value <= high and (above is None or value > above)
    if is_right:
        assert bounds.number("field", value, above=above, low=low, high=high) == value
        return
    with pytest.raises(ConfigError) as refused:
        bounds.number("field", value, above=above, low=low, high=high)
    assert str(refused.value).startswith(f"field={value!r}: must be ")
    assert "\n" not in str(refused.value)
