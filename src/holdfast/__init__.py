"""Holdfast: fault-tolerant processing for Python."""

from __future__ import annotations

from holdfast.errors import (
    BulkheadFull,
    CircuitOpenError,
    ConfigError,
    HoldfastError,
    IllegalChange,
    Invalid,
    Permanent,
    RateLimited,
    RateLimitExceeded,
    Refused,
    Structural,
    TimeLimitExceeded,
    Transient,
)
from holdfast.policy.backoff import Backoff
from holdfast.policy.breaker import BreakerConfig
from holdfast.policy.classify import Classifier, Rule, classify
from holdfast.policy.retry import RetryPolicy
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.guards.breakers import CircuitBreakers
from holdfast.runtime.guards.budget import RetryBudget
from holdfast.runtime.guards.bulkhead import Bulkhead
from holdfast.runtime.guards.limiter import RateLimiter
from holdfast.runtime.guards.policy import Policy
from holdfast.runtime.guards.retry import retry
from holdfast.types import BreakerChanged, Failure, FailureContext, FailureType, RetryScheduled, Severity

__all__ = [
    "Backoff",
    "BreakerChanged",
    "BreakerConfig",
    "Bulkhead",
    "BulkheadFull",
    "CircuitBreaker",
    "CircuitBreakers",
    "CircuitOpenError",
    "Classifier",
    "ConfigError",
    "Failure",
    "FailureContext",
    "FailureType",
    "HoldfastError",
    "IllegalChange",
    "Invalid",
    "Permanent",
    "Policy",
    "RateLimitExceeded",
    "RateLimited",
    "RateLimiter",
    "Refused",
    "RetryBudget",
    "RetryPolicy",
    "RetryScheduled",
    "Rule",
    "Severity",
    "Structural",
    "TimeLimitExceeded",
    "Transient",
    "classify",
    "retry",
]
