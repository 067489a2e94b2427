"""Everything for `app.alert(…)`: the rules, what is told, webhooks, and what their receivers need."""

from __future__ import annotations

from holdfast.ops.signing import Seen, verify
from holdfast.ops.webhook import Webhook
from holdfast.policy.notices import Notice
from holdfast.policy.rules import (
    BreakerOpen,
    DeadLetterGrowth,
    DeadLetters,
    ErrorRate,
    HealthScore,
    Lag,
    LagGrowth,
    NoWorker,
    StreamLag,
    StreamStuck,
)

__all__ = [
    "BreakerOpen",
    "DeadLetterGrowth",
    "DeadLetters",
    "ErrorRate",
    "HealthScore",
    "Lag",
    "LagGrowth",
    "NoWorker",
    "Notice",
    "Seen",
    "StreamLag",
    "StreamStuck",
    "Webhook",
    "verify",
]
