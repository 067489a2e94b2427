"""The shop, with schedules and a task that is limited: what goes by a clock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from holdfast import App, JobContext, RetryPolicy
from tests.faults.ledger import EffectLedger
from tests.faults.shop import EFFECTS, noted, open_shop, token_of

TARGET: Final = "tests.faults.tick_shop:app"
MAX_CALLS: Final = 20
WINDOW_S: Final = 60.0
BERLIN: Final = "Europe/Berlin"
_RETRY: Final = RetryPolicy(max_retries=5, initial_delay=0.05, max_delay=0.2, min_delay=0.0)


def add_limited(app: App, effects: Path) -> None:
    """Add the limited task, with its lines in this ledger."""
    ledger = EffectLedger(effects)

    @app.task(name="limited", breaker=None, retry=_RETRY, rate=f"{MAX_CALLS}/minute")
    async def limited(job: JobContext, number: int) -> str:
        with noted(ledger, job):
            return token_of(job)


def add_ticks(app: App, effects: Path) -> None:
    """Add the schedules: each tick writes its lines in this ledger, under its schedule's name."""
    ledger = EffectLedger(effects)

    def schedule(name: str, *, cron: str | None = None, every: float | None = None) -> None:
        @app.task(name=name, breaker=None, retry=_RETRY)
        async def tick(job: JobContext) -> str:
            with noted(ledger, job):
                return token_of(job)

        app.schedule(tick.bind(), cron=cron, every=every, tz=BERLIN)

    schedule("second", every=1)
    schedule("night", cron="30 2 * * *")
    schedule("hour", cron="0 * * * *")


_effects: Final = Path(os.environ.get(EFFECTS, os.devnull))
app = open_shop(os.environ.get("HOLDFAST_URL", "memory://"), _effects)
add_limited(app, _effects)
add_ticks(app, _effects)
