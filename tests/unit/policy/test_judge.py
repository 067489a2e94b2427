"""A failure, or what a task returned, becomes one verdict."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import Invalid, RateLimited, Transient
from holdfast.policy.classify import classify
from holdfast.policy.judge import (
    COMPLETE,
    UNKNOWN_TASK_RETRY,
    Bury,
    Drop,
    Park,
    RetryAt,
    blames_orphan,
    judge,
    judge_value,
)
from holdfast.policy.retry import RetryPolicy
from holdfast.testing import ScriptedRng
from holdfast.types import Discard, Snooze

PLAIN = RetryPolicy(max_retries=2, initial_delay=1.0, multiplier=3.0, jitter=False, total_timeout=100.0)


def half() -> float:
    return 0.5


def test_a_failure_that_can_heal_is_retried_after_its_backoff() -> None:
    failure = classify(Transient("busy"))
    assert judge(PLAIN, failure, 0, 0.0, half) == RetryAt(1.0)
    assert judge(PLAIN, failure, 1, 0.0, half) == RetryAt(3.0)


def test_chance_is_handed_in() -> None:
    jittered = RetryPolicy(initial_delay=10.0)
    assert judge(jittered, classify(Transient("busy")), 0, 0.0, ScriptedRng([0.25])) == RetryAt(2.5)


def test_what_the_other_side_asked_for_wins() -> None:
    assert judge(PLAIN, classify(RateLimited("slow down", retry_after=42)), 0, 0.0, half) == RetryAt(42.0)


def test_a_failure_that_cannot_heal_is_buried_at_once() -> None:
    assert judge(PLAIN, classify(Invalid("no such field")), 0, 0.0, half) == Bury("not retriable")


def test_after_the_last_retry_it_is_buried() -> None:
    assert judge(PLAIN, classify(Transient("busy")), 2, 0.0, half) == Bury("retries used up")


@pytest.mark.parametrize(("elapsed_s", "verdict"), [(99.0, RetryAt(1.0)), (99.5, Bury("total time over"))])
def test_no_wait_is_begun_that_would_end_after_the_total_time(elapsed_s: float, verdict: RetryAt | Bury) -> None:
    assert judge(PLAIN, classify(Transient("busy")), 0, elapsed_s, half) == verdict


def test_a_strategy_that_raises_buries_the_job_and_loses_no_failure() -> None:
    def broken(n: int) -> float:
        raise ZeroDivisionError(n)

    policy = RetryPolicy(strategy=broken)
    assert judge(policy, classify(Transient("busy")), 0, 0.0, half) == Bury("the retry strategy itself failed")


def test_an_unknown_task_is_given_some_minutes_to_become_known() -> None:
    failure = classify(Transient("unknown"))
    waits = []
    for retries in range(UNKNOWN_TASK_RETRY.max_retries):
        verdict = judge(UNKNOWN_TASK_RETRY, failure, retries, 0.0, lambda: 0.999)
        assert isinstance(verdict, RetryAt)
        waits.append(verdict.delay_s)
    assert 60 < sum(waits) < 600
    assert judge(UNKNOWN_TASK_RETRY, failure, UNKNOWN_TASK_RETRY.max_retries, 0.0, half) == Bury("retries used up")


def test_what_a_task_returns_is_judged_too() -> None:
    assert judge_value("done") is COMPLETE
    assert judge_value(None) is COMPLETE
    assert judge_value(Snooze(5.0)) == Park(5.0, "snoozed by the task")
    assert judge_value(Discard("sold out")) == Drop("sold out")


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 2e9, "5", None, True])
def test_a_snooze_of_no_length_is_refused_where_it_is_written(seconds: Any) -> None:
    with pytest.raises(ValueError, match="must be a number of seconds"):
        Snooze(seconds)


def test_a_death_is_blamed_on_who_was_alone_or_was_there_three_times() -> None:
    assert blames_orphan(is_alone=True, orphaned=1)
    assert not blames_orphan(is_alone=False, orphaned=1)
    assert not blames_orphan(is_alone=False, orphaned=2)
    assert blames_orphan(is_alone=False, orphaned=3)
