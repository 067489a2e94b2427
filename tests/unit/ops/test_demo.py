"""The demo must notice when a promise is not kept, or its exit code would mean nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.ops import cli, demo
from holdfast.policy.classify import classify
from holdfast.policy.retry import RetryPolicy
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.guards.policy import Policy
from holdfast.testing import ManualClock, no_wait
from holdfast.types import Failure, FailureType


def tell_nobody(kind: str, line: str) -> None:
    del kind, line


@pytest.fixture
def few_customers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "CUSTOMERS", 3)


def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "RetryPolicy", lambda **settings: RetryPolicy(max_retries=0))


def no_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_opens(name: str, **settings: Any) -> CircuitBreaker:
        return CircuitBreaker(name, **{**settings, "failure_threshold": 10**9})

    monkeypatch.setattr(demo, "CircuitBreaker", never_opens)


def no_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_closes(name: str, **settings: Any) -> CircuitBreaker:
        return CircuitBreaker(name, **settings, half_open_max_calls=10**9)

    monkeypatch.setattr(demo, "CircuitBreaker", never_closes)


def classified_by(change: Callable[[Failure], Failure], monkeypatch: pytest.MonkeyPatch) -> None:
    def policy(**settings: Any) -> Policy:
        return Policy(**settings, classify=lambda error, context: change(classify(error, context)))

    monkeypatch.setattr(demo, "Policy", policy)


def retries_everything(failure: Failure) -> Failure:
    return failure if failure.is_retriable else Failure(FailureType.TRANSIENT, failure.error)


@pytest.mark.parametrize(
    ("broken", "noticed"),
    [
        (no_retries, "order 2: charged (200)"),
        (no_breaker, "the breaker is open"),
        (no_breaker, "no request while the breaker is open"),
        (no_closing, "the breaker is closed"),
        (functools.partial(classified_by, retries_everything), "one request for the malformed order"),
    ],
)
def test_a_broken_promise_is_noticed(
    broken: Callable[[pytest.MonkeyPatch], None], noticed: str, monkeypatch: pytest.MonkeyPatch, few_customers: None
) -> None:
    broken(monkeypatch)
    one = demo.Demo(tell_nobody, ManualClock())
    assert not one.run()
    assert noticed in one.surprises


def test_kept_promises_are_no_surprise(few_customers: None) -> None:
    clock = ManualClock()
    one = demo.Demo(tell_nobody, clock)
    assert one.run()
    assert one.surprises == []
    assert clock.sleeps == [0.2, 0.4, 1.0, 0.2, 0.4, 0.8, demo.RECOVERY_S]


def test_a_broken_promise_is_told_and_ends_the_command_with_1(
    monkeypatch: pytest.MonkeyPatch, few_customers: None
) -> None:
    no_breaker(monkeypatch)
    monkeypatch.setattr(demo, "RECOVERY_S", 0.001)
    with no_wait():
        result = CliRunner().invoke(cli.main, ["demo"])
    assert result.exit_code == 1
    assert "Not as promised: the breaker is open" in result.stderr
    assert "Every promise was kept." not in result.stdout
