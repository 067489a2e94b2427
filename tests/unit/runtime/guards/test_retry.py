"""`@retry`, the short form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import (
    ConfigError,
    FailureType,
    Permanent,
    Policy,
    RateLimited,
    RetryPolicy,
    RetryScheduled,
    Transient,
    classify,
    retry,
)
from holdfast.runtime.guards.retry import RetrySettings
from holdfast.testing import ManualClock


class Shaky:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_bare_it_retries_what_can_heal() -> None:
    @retry
    def fine() -> int:
        return 3

    assert fine() == 3
    assert fine.__name__ == "fine"


def test_with_settings_it_is_a_policy_that_decorates(clock: ManualClock) -> None:
    shaky = Shaky(ConnectionError(), TimeoutError())
    assert retry(max_retries=2, initial_delay=5, multiplier=2, jitter=False, clock=clock)(shaky)() == "done"
    assert clock.sleeps == [5.0, 10.0]


@pytest.mark.parametrize(
    "on",
    [ValueError, (KeyError, ValueError), lambda error: isinstance(error, ValueError)],
    ids=["class", "several", "function"],
)
def test_chosen_errors_are_retried_whatever_their_type_and_no_others(
    on: type[Exception] | Callable[[Exception], bool], clock: ManualClock
) -> None:
    shaky = Shaky(ValueError("a parser that is flaky"))
    assert retry(on=on, clock=clock)(shaky)() == "done"
    other = Shaky(ConnectionError("would heal, but was not chosen"))
    with pytest.raises(ConnectionError):
        retry(on=on, clock=clock)(other)()
    assert other.calls == 1


def test_a_chosen_error_keeps_its_type_and_its_wait_if_it_is_retriable(clock: ManualClock) -> None:
    told: list[RetryScheduled] = []
    shaky = Shaky(RateLimited("slow down", retry_after=7.0))
    retry(on=RateLimited, on_retry=told.append, clock=clock)(shaky)()
    assert told[0].failure.type is FailureType.RATE_LIMITED
    assert clock.sleeps == [7.0]


def test_a_chosen_error_that_would_not_be_retried_keeps_its_wait(clock: ManualClock) -> None:
    group = ExceptionGroup("both", [Permanent("no such order"), RateLimited("slow down", retry_after=7.0)])
    assert classify(group).type is FailureType.PERMANENT
    assert retry(on=ExceptionGroup, clock=clock)(Shaky(group))() == "done"
    assert clock.sleeps == [7.0]


@pytest.mark.parametrize("on", [(), 3, "ValueError", (ValueError, 3), int, [ValueError], KeyboardInterrupt])
def test_what_cannot_be_chosen_is_refused(on: Any) -> None:
    with pytest.raises(ConfigError, match="must be a class of Exception, a tuple of them, or a function from error"):
        retry(on=on)


def test_an_exception_where_the_function_belongs_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"to choose what is retried, write retry\(on=ValueError\)"):
        retry(ValueError)


def test_impossible_settings_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="max_retries=-1: must be a whole number of at least 0"):
        retry(max_retries=-1)


def test_the_typed_settings_are_those_of_the_retry_policy() -> None:
    policy = retry()
    assert isinstance(policy, Policy)
    assert policy.retry is not None
    assert set(policy.retry.__struct_fields__) == RetrySettings.__optional_keys__


IN_17_SECONDS = "Sun, 09 Sep 2001 01:46:57 GMT"  # on a ManualClock that has not moved


def test_an_instant_to_wait_for_is_measured_on_the_clock_that_was_given(clock: ManualClock) -> None:
    retry(on=Transient, clock=clock)(Shaky(Transient("busy", retry_after=IN_17_SECONDS)))()
    broken: Any = lambda error, context: 1 / 0  # noqa: E731
    Policy(retry=RetryPolicy(), classify=broken, clock=clock).call(Shaky(Transient(retry_after="17")))
    assert clock.sleeps == [17.0, 17.0]


def test_a_chosen_error_that_says_it_is_permanent_keeps_the_wait_it_asks_for(clock: ManualClock) -> None:
    retry(on=Permanent, clock=clock)(Shaky(Permanent("not now", retry_after=7.0)))()
    assert clock.sleeps == [7.0]
