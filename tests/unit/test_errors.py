"""Errors cross process pools, and settings do."""

from __future__ import annotations

import pickle

import pytest

from holdfast import (
    Backoff,
    BreakerConfig,
    BulkheadFull,
    CircuitOpenError,
    ConfigError,
    FailureType,
    IllegalChange,
    Invalid,
    Permanent,
    RateLimited,
    RateLimitExceeded,
    RetryPolicy,
    Severity,
    Structural,
    TimeLimitExceeded,
    Transient,
)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("a=1: must be 2"),
        IllegalChange("reset it first"),
        CircuitOpenError("ledger", 3.0, "ConnectionError: refused"),
        RateLimitExceeded("too fast", 2.0),
        BulkheadFull("full"),
        TimeLimitExceeded(2.0, still_running=True),
        Transient("later", retry_after=5.0),
        RateLimited("slow down", retry_after=7.0, severity=Severity.CRITICAL),
        Permanent("never"),
        Invalid("wrong", severity=Severity.LOW),
        Structural("changed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_after_pickling(error: Exception) -> None:
    error.add_note("a note")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize(
    "settings", [RetryPolicy(per_failure={FailureType.NETWORK: Backoff(), KeyError: Backoff()}), BreakerConfig()]
)
def test_settings_are_the_same_after_pickling(settings: object) -> None:
    assert pickle.loads(pickle.dumps(settings)) == settings
