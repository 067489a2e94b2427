"""Ready-made checks for `app.health_check(…)`, and what `app.health()` answers with."""

from __future__ import annotations

from holdfast.app.streams import making_progress
from holdfast.ops.probes import database, redis, site
from holdfast.runtime.checks import CheckResult
from holdfast.runtime.health import Health

__all__ = ["CheckResult", "Health", "database", "making_progress", "redis", "site"]
