"""Delay steps: which retry topics a policy needs, and which one a delay goes through."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError, RateLimited
from holdfast.policy.backoff import Backoff, Jitter
from holdfast.policy.retry import STREAM_RETRY, FailureKey, RetryPolicy
from holdfast.policy.steps import MOST_STEPS, step_for, steps_of
from holdfast.types import Failure, FailureType

NO_RATE_LIMITS: dict[FailureKey, Backoff] = {FailureType.RATE_LIMITED: Backoff(strategy="immediate")}


@pytest.mark.parametrize(
    ("jitter", "steps"),
    [
        (False, (2.0, 6.0, 18.0)),
        (True, (2.0, 6.0, 18.0)),
        ((1.0, 1.5), (3.0, 9.0, 27.0)),
        ("proportional", (3.0, 9.0, 27.0)),
    ],
)
def test_each_delay_is_a_step_that_is_as_long_as_it_may_be_drawn(jitter: Jitter, steps: tuple[float, ...]) -> None:
    policy = RetryPolicy(max_retries=3, initial_delay=2.0, multiplier=3.0, jitter=jitter, per_failure=NO_RATE_LIMITS)
    assert steps_of(policy) == steps


@pytest.mark.parametrize("draw", [0.0, 0.5, 0.999])
def test_a_delay_goes_through_the_step_of_its_own_retry_whatever_is_drawn(draw: float) -> None:
    steps = steps_of(STREAM_RETRY)
    assert [step_for(steps, STREAM_RETRY.delay(n, rng=lambda: draw)) for n in (1, 2, 3)] == [1, 2, 3]
    refused = Failure(FailureType.RATE_LIMITED, RateLimited("slow down"))
    assert [step_for(steps, STREAM_RETRY.delay(n, refused, rng=lambda: draw)) for n in (1, 2, 3)] == [4, 5, 6]


def test_rate_limits_have_steps_of_their_own_because_they_would_hold_up_the_others() -> None:
    assert steps_of(STREAM_RETRY) == pytest.approx((1.5, 3.0, 6.0, 39.0, 78.0, 156.0))


def test_equal_delays_share_a_step() -> None:
    policy = RetryPolicy(max_retries=40, strategy="fixed", initial_delay=5.0, per_failure=NO_RATE_LIMITS)
    assert steps_of(policy) == (5.0,)


def test_delays_of_single_failures_are_steps_too_unless_these_are_never_retried() -> None:
    policy = RetryPolicy(
        max_retries=1,
        initial_delay=1.0,
        per_failure={
            **NO_RATE_LIMITS,
            ConnectionError: Backoff(initial_delay=7.0),
            FailureType.NETWORK: Backoff(initial_delay=9.0),
            FailureType.PERMANENT: Backoff(initial_delay=11.0),
        },
    )
    assert steps_of(policy) == (1.0, 7.0, 9.0)


def test_without_retries_or_waits_there_are_no_steps() -> None:
    assert steps_of(RetryPolicy(max_retries=0)) == ()
    assert steps_of(RetryPolicy(strategy="immediate", per_failure=NO_RATE_LIMITS)) == ()


def test_of_too_many_delays_the_closest_become_the_longer_one() -> None:
    waits = [1.0, 2.0, 4.0, 8.0, 16.0, 17.0, 32.0, 64.0, 120.0, 125.0]
    policy = RetryPolicy(
        max_retries=10, strategy=lambda n: waits[n - 1], max_delay=1000.0, min_delay=0.0, per_failure=NO_RATE_LIMITS
    )
    assert steps_of(policy) == (1.0, 2.0, 4.0, 8.0, 17.0, 32.0, 64.0, 125.0)


def test_however_many_retries_there_are_there_are_few_steps_and_the_longest_is_among_them() -> None:
    asked: list[int] = []

    def wait(n: int) -> float:
        asked.append(n)
        return float(n)

    policy = RetryPolicy(max_retries=10**9, strategy=wait, max_delay=1e6, per_failure=NO_RATE_LIMITS)
    steps = steps_of(policy)
    assert (len(steps), steps[0], steps[-1]) == (MOST_STEPS, 1.0, 64.0)
    assert asked == list(range(1, 65))


def test_of_delays_that_are_drawn_the_longest_possible_one_is_the_step() -> None:
    policy = RetryPolicy(max_retries=4, strategy="decorrelated", max_delay=50.0, per_failure=NO_RATE_LIMITS)
    assert steps_of(policy) == (3.0, 9.0, 27.0, 50.0)


@pytest.mark.parametrize("wrong", [lambda n: [1.0][n], lambda n: "soon"])
def test_a_function_that_fails_is_refused_at_once(wrong: object) -> None:
    policy = RetryPolicy(max_retries=3, strategy=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^strategy=.*: failed for n=1: \w+Error\("):
        steps_of(policy)


@pytest.mark.parametrize(
    ("delay_s", "step"),
    [(-1.0, 0), (0.0, 0), (0.001, 1), (1.0, 1), (1.001, 2), (2.0, 2), (4.0, 3), (4.001, 3), (1e9, 3)],
)
def test_a_delay_goes_through_the_first_step_that_is_as_long_or_the_last(delay_s: float, step: int) -> None:
    assert step_for((1.0, 2.0, 4.0), delay_s) == step


def test_without_steps_every_delay_goes_through_the_topic_for_none() -> None:
    assert step_for((), 3.0) == 0
