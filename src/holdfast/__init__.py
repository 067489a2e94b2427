"""Holdfast: fault-tolerant processing for Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    StoreError,
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
from holdfast.types import (
    BreakerChanged,
    Discard,
    Failure,
    FailureContext,
    FailureType,
    JobState,
    RetryScheduled,
    Severity,
    Snooze,
)

if TYPE_CHECKING:
    from holdfast.app import App, Job, Task
    from holdfast.runtime.context import JobContext

__all__ = [
    "App",
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
    "Discard",
    "Failure",
    "FailureContext",
    "FailureType",
    "HoldfastError",
    "IllegalChange",
    "Invalid",
    "Job",
    "JobContext",
    "JobState",
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
    "Snooze",
    "StoreError",
    "Structural",
    "Task",
    "TimeLimitExceeded",
    "Transient",
    "classify",
    "retry",
]

# These need asyncio and a store's machinery: a program of plain guarded calls does not pay for them.
_LATER = {
    "App": "holdfast.app",
    "Job": "holdfast.app",
    "JobContext": "holdfast.runtime.context",
    "Task": "holdfast.app",
}


def __getattr__(name: str) -> Any:
    """Load what jobs need when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    globals()[name] = value = getattr(import_module(_LATER[name]), name)
    return value
