"""Whether a failed call is tried again, and when, to the exact second."""

from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.policy.backoff import Backoff, Jitter
from holdfast.policy.retry import STREAM_RETRY, RetryPolicy, next_delay
from holdfast.testing import ScriptedRng
from holdfast.types import Failure, FailureType, GiveUp

ALMOST_ONE = math.nextafter(1.0, 0.0)
HALF = ScriptedRng([0.5])
NETWORK = Failure(FailureType.NETWORK)
REFUSED_429 = Failure(FailureType.RATE_LIMITED)


def fixed(seconds: float) -> Backoff:
    return Backoff(strategy="fixed", initial_delay=seconds, max_delay=1000.0, jitter=False)


def waits(policy: RetryPolicy, failure: Failure | None, count: int) -> list[float]:
    return [policy.delay(n, failure, rng=HALF) for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("field", "default"),
    [
        ("max_retries", 5),
        ("initial_delay", 1.0),
        ("max_delay", 60.0),
        ("multiplier", 3.0),
        ("jitter", True),
        ("strategy", "exponential"),
        ("total_timeout", 300.0),
        ("backoff_factor", 1.5),
        ("min_delay", 0.1),
        ("attempt_timeout", None),
        ("per_failure", {}),
    ],
)
def test_the_default_of(field: str, default: object) -> None:
    value = getattr(RetryPolicy(), field)
    assert value == default
    assert field == "per_failure" or type(value) is type(default)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RetryPolicy(jitter=False), [1, 3, 9, 27, 60]),
        (RetryPolicy(jitter=False, initial_delay=5, multiplier=2), [5, 10, 20, 40]),
        (RetryPolicy(jitter=False, strategy="linear"), [1, 2.5, 4, 5.5]),
        (RetryPolicy(jitter=False, strategy="linear", initial_delay=5, backoff_factor=5), [5, 10, 15]),
        (RetryPolicy(jitter=False, strategy="fixed"), [1, 1, 1]),
        (RetryPolicy(strategy="immediate", min_delay=3), [0, 0, 0]),
        (RetryPolicy(strategy=lambda n: 10.0 * n, jitter=False), [10, 20, 30]),
        (RetryPolicy(jitter=False, max_delay=4), [1, 3, 4, 4]),
        (RetryPolicy(jitter=False, min_delay=2), [2, 3, 9]),
        (RetryPolicy(), [0.5, 1.5, 4.5, 13.5, 30]),
        (RetryPolicy(jitter="additive"), [1.2, 3.6, 10.8]),
    ],
)
def test_the_policys_own_settings_decide_with_and_without_a_failure(policy: RetryPolicy, expected: list[float]) -> None:
    assert waits(policy, None, len(expected)) == pytest.approx(expected)
    assert waits(policy, NETWORK, len(expected)) == pytest.approx(expected)


@pytest.mark.parametrize(("chance", "factor"), [(0.0, 1.0), (0.5, 1.25), (ALMOST_ONE, 1.5)])
def test_the_default_for_streams_is_one_two_four_seconds_plus_up_to_half(chance: float, factor: float) -> None:
    rng = ScriptedRng([chance])
    delays = [STREAM_RETRY.delay(n, NETWORK, rng=rng) for n in (1, 2, 3)]
    assert delays == pytest.approx([factor, 2 * factor, 4 * factor])
    assert next_delay(STREAM_RETRY, NETWORK, retries=3, elapsed_s=0.0, rng=rng) is GiveUp.RETRIES_USED_UP


# ---- different failures


def test_one_policy_has_different_strategies_for_different_failure_types() -> None:
    policy = RetryPolicy(
        jitter=False,
        strategy="fixed",
        initial_delay=2.0,
        per_failure={
            FailureType.NETWORK: Backoff(jitter=False, initial_delay=1.0, multiplier=2.0),
            FailureType.RATE_LIMITED: Backoff(jitter="equal", initial_delay=10.0, multiplier=2.0),
            FailureType.SYSTEM: Backoff(jitter=False, strategy="linear", initial_delay=5.0, backoff_factor=5.0),
        },
    )
    assert waits(policy, NETWORK, 3) == [1, 2, 4]
    assert waits(policy, REFUSED_429, 3) == [7.5, 15, 30]
    assert waits(policy, Failure(FailureType.SYSTEM), 3) == [5, 10, 15]
    assert waits(policy, Failure(FailureType.TRANSIENT), 3) == [2, 2, 2]
    assert waits(policy, None, 3) == [2, 2, 2]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionResetError(), 3.0),  # its own class
        (ConnectionRefusedError(), 2.0),  # ConnectionError is nearer than OSError
        (PermissionError(), 1.0),
        (KeyError(), 9.0),  # no class matches: the type's entry
        (None, 9.0),
    ],
)
def test_the_most_derived_class_wins_and_a_class_wins_over_a_type(error: Exception | None, expected: float) -> None:
    policy = RetryPolicy(
        per_failure={
            FailureType.NETWORK: fixed(9.0),
            OSError: fixed(1.0),
            ConnectionError: fixed(2.0),
            ConnectionResetError: fixed(3.0),
        }
    )
    failure = Failure(FailureType.NETWORK, error=error)
    assert policy.delay(1, failure) == expected
    assert policy.backoff_for(failure) == fixed(expected)


def test_an_entry_has_limits_of_its_own() -> None:
    policy = RetryPolicy(max_delay=2.0, min_delay=1.5, per_failure={FailureType.NETWORK: fixed(500.0)})
    assert policy.delay(1, NETWORK) == 500.0


@pytest.mark.parametrize("max_delay", [1.0, 60.0, 10_000.0])
def test_a_429_without_retry_after_waits_30_60_120_at_most_300_whatever_max_delay_says(max_delay: float) -> None:
    policy = RetryPolicy(jitter=False, max_delay=max_delay, strategy="linear", initial_delay=7.0, multiplier=9.0)
    assert waits(policy, REFUSED_429, 6) == [30, 60, 120, 240, 300, 300]


@pytest.mark.parametrize("jitter", [True, "full", "equal", "proportional", "additive", (0.1, 0.2)])
@pytest.mark.parametrize(
    ("chance", "expected"),
    [
        (0.0, [33, 66, 132, 264, 300, 300]),
        (0.5, [36, 72, 144, 288, 300, 300]),
        (ALMOST_ONE, [39, 78, 156, 300, 300, 300]),
    ],
)
def test_with_jitter_a_429_never_comes_back_earlier(jitter: Jitter, chance: float, expected: list[float]) -> None:
    policy, rng = RetryPolicy(jitter=jitter), ScriptedRng([chance])
    assert [policy.delay(n, REFUSED_429, rng=rng) for n in range(1, 7)] == pytest.approx(expected)


@pytest.mark.parametrize("jitter", [False, "none", (1.0, 1.0), (0.5, 0.5)])
def test_a_jitter_without_chance_leaves_the_429_waits_exact(jitter: Jitter) -> None:
    assert waits(RetryPolicy(jitter=jitter), REFUSED_429, 3) == [30, 60, 120]


def test_an_entry_for_rate_limited_failures_replaces_the_long_waits() -> None:
    assert waits(RetryPolicy(per_failure={FailureType.RATE_LIMITED: fixed(4.0)}), REFUSED_429, 2) == [4.0, 4.0]


def test_an_entry_for_another_type_leaves_the_long_waits() -> None:
    policy = RetryPolicy(jitter=False, per_failure={FailureType.NETWORK: fixed(4.0)})
    assert waits(policy, REFUSED_429, 2) == [30, 60]


# ---- what the other side asked for


@pytest.mark.parametrize("asked", [0.0, 0.01, 17.0, 299.0, 5_000.0])
@pytest.mark.parametrize("type_", [FailureType.RATE_LIMITED, FailureType.TRANSIENT])
def test_retry_after_wins_over_the_backoff_and_its_limits(asked: float, type_: FailureType) -> None:
    failure = Failure(type_, retry_after=asked)
    assert RetryPolicy().delay(1, failure) == asked
    assert RetryPolicy(strategy="immediate").delay(3, failure) == asked
    assert RetryPolicy(per_failure={type_: fixed(1.0)}).delay(1, failure) == asked
    assert next_delay(RetryPolicy(total_timeout=None), failure, retries=0, elapsed_s=0.0, rng=HALF) == asked


def test_retry_after_does_not_win_over_the_total_limit() -> None:
    policy = RetryPolicy(total_timeout=100.0)
    allowed = Failure(FailureType.RATE_LIMITED, retry_after=60.0)
    too_long = Failure(FailureType.RATE_LIMITED, retry_after=60.5)
    assert next_delay(policy, allowed, retries=0, elapsed_s=40.0, rng=HALF) == 60.0
    assert next_delay(policy, too_long, retries=0, elapsed_s=40.0, rng=HALF) is GiveUp.TOTAL_TIME_OVER


# ---- when to stop


@pytest.mark.parametrize(
    ("elapsed", "expected"),
    [
        (0.0, 10.0),
        (89.5, 10.0),
        (90.0, 10.0),  # ends exactly at the limit
        (math.nextafter(90.0, 91.0), GiveUp.TOTAL_TIME_OVER),
        (100.0, GiveUp.TOTAL_TIME_OVER),
        (1e9, GiveUp.TOTAL_TIME_OVER),
    ],
)
def test_no_wait_is_begun_that_would_end_after_the_total_limit(elapsed: float, expected: object) -> None:
    policy = RetryPolicy(strategy="fixed", initial_delay=10.0, jitter=False, total_timeout=100.0)
    assert next_delay(policy, NETWORK, retries=0, elapsed_s=elapsed, rng=HALF) == expected


def test_an_immediate_retry_is_made_up_to_the_total_limit_itself() -> None:
    policy = RetryPolicy(strategy="immediate", total_timeout=100.0)
    assert next_delay(policy, NETWORK, retries=0, elapsed_s=100.0, rng=HALF) == 0.0


def test_without_a_total_limit_time_never_runs_out() -> None:
    policy = RetryPolicy(jitter=False, total_timeout=None)
    assert next_delay(policy, NETWORK, retries=0, elapsed_s=1e12, rng=HALF) == 1.0


@pytest.mark.parametrize(("max_retries", "waits_made"), [(0, []), (1, [1]), (3, [1, 3, 9]), (5, [1, 3, 9, 27, 60])])
def test_max_retries_are_retries_after_the_first_attempt(max_retries: int, waits_made: list[float]) -> None:
    policy = RetryPolicy(max_retries=max_retries, jitter=False)
    answers = [next_delay(policy, NETWORK, retries=n, elapsed_s=0.0, rng=HALF) for n in range(max_retries + 2)]
    assert answers == [*waits_made, GiveUp.RETRIES_USED_UP, GiveUp.RETRIES_USED_UP]


@pytest.mark.parametrize("type_", list(FailureType))
def test_only_failures_that_can_heal_are_retried(type_: FailureType) -> None:
    answer = next_delay(RetryPolicy(), Failure(type_, retry_after=1.0), retries=0, elapsed_s=0.0, rng=HALF)
    healing = {FailureType.TRANSIENT, FailureType.RATE_LIMITED, FailureType.NETWORK, FailureType.SYSTEM}
    assert answer == (1.0 if type_ in healing else GiveUp.NOT_RETRIABLE)


def test_the_first_reason_to_stop_is_the_one_given() -> None:
    policy = RetryPolicy(max_retries=0, total_timeout=1.0)
    permanent = Failure(FailureType.PERMANENT)
    assert next_delay(policy, permanent, retries=9, elapsed_s=9.0, rng=HALF) is GiveUp.NOT_RETRIABLE
    assert next_delay(policy, NETWORK, retries=9, elapsed_s=9.0, rng=HALF) is GiveUp.RETRIES_USED_UP


def test_chance_is_handed_in_and_the_machines_own_otherwise() -> None:
    policy = RetryPolicy()
    assert next_delay(policy, NETWORK, retries=1, elapsed_s=0.0, rng=ScriptedRng([0.25])) == 0.75
    assert len({policy.delay(1) for _ in range(20)}) > 1
    assert len({policy.delay(1, NETWORK) for _ in range(20)}) > 1


# ---- settings that cannot work


@pytest.mark.parametrize("value", [-1, 1.0, True, "5", None, math.nan])
def test_max_retries_that_are_no_whole_number_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        RetryPolicy(max_retries=value)
    assert str(refused.value) == f"max_retries={value!r}: must be a whole number of at least 0"


@pytest.mark.parametrize("field", ["total_timeout", "attempt_timeout"])
@pytest.mark.parametrize("value", [0, 0.0, -1, math.nan, math.inf, True, "300"])
def test_a_time_limit_that_cannot_be_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        RetryPolicy(**{field: value})
    assert str(refused.value) == f"{field}={value!r}: must be a number, above 0"


@pytest.mark.parametrize("field", ["total_timeout", "attempt_timeout"])
def test_a_time_limit_may_be_none_or_short(field: str) -> None:
    for value in (None, 0.001):
        settings: dict[str, Any] = {field: value}
        assert getattr(RetryPolicy(**settings), field) == value


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"initial_delay": -1}, "initial_delay=-1: must be a number, at least 0"),
        ({"min_delay": math.nan}, "min_delay=nan: must be a number, at least 0"),
        ({"max_delay": math.inf}, "max_delay=inf: must be a number, at least 0"),
        ({"multiplier": 0.5}, "multiplier=0.5: must be a number, at least 1"),
        ({"backoff_factor": "2"}, "backoff_factor='2': must be a number, at least 0"),
        ({"max_delay": 0.05}, "max_delay=0.05: must be at least min_delay, which is 0.1"),
        (
            {"strategy": "wild"},
            "strategy='wild': must be one of exponential, linear, fixed, immediate, decorrelated, or a function of n",
        ),
        (
            {"jitter": "wild"},
            "jitter='wild': must be True, False, a pair of factors, "
            "or one of none, full, equal, proportional, additive",
        ),
    ],
)
def test_the_backoff_settings_are_refused_when_the_policy_is_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        RetryPolicy(**settings)
    assert str(refused.value) == message


@pytest.mark.parametrize("key", ["network", int, 429, None, ConnectionError()])
def test_a_per_failure_key_that_is_no_type_or_exception_class_is_refused(key: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        RetryPolicy(per_failure={key: fixed(1.0)})
    assert str(refused.value) == f"per_failure={key!r}: a key must be a FailureType or an exception class"


@pytest.mark.parametrize("entry", [3.0, "linear", None, RetryPolicy()])
def test_a_per_failure_entry_that_is_no_backoff_is_refused(entry: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        RetryPolicy(per_failure={FailureType.NETWORK: entry})
    assert (
        str(refused.value)
        == f"per_failure[{FailureType.NETWORK!r}]={entry!r}: must be a Backoff, not a whole RetryPolicy"
    )


@pytest.mark.parametrize("mapping", [None, [(OSError, 1.0)], "network", 3])
def test_a_per_failure_that_is_no_mapping_is_refused(mapping: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        RetryPolicy(per_failure=mapping)
    assert str(refused.value) == f"per_failure={mapping!r}: must be a mapping from failures to Backoffs"


def test_a_policy_keeps_its_entries_when_the_callers_mapping_changes() -> None:
    entries: dict[Any, Backoff] = {FailureType.NETWORK: fixed(4.0)}
    policy = RetryPolicy(per_failure=entries)
    entries.clear()
    assert policy.delay(1, NETWORK) == 4.0
