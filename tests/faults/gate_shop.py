"""The shop, and a task whose first run lasts until a file is there: for what must end at an instant, not in a time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from holdfast import App, JobContext, RetryPolicy
from holdfast.clock import SystemClock
from tests.faults.ledger import EffectLedger
from tests.faults.shop import EFFECTS, noted, open_shop, token_of

TARGET: Final = "tests.faults.gate_shop:app"


def add_held(app: App, effects: Path) -> None:
    """Add the task, with its lines in this ledger."""
    ledger = EffectLedger(effects)
    clock = SystemClock()

    @app.task(name="held", breaker=None, retry=RetryPolicy(max_retries=0))
    async def held(job: JobContext, gate: str) -> str:
        """Ends at once when it is run again."""
        is_first = all(one.job != job.id for one in ledger.read())
        with noted(ledger, job):
            while is_first and not os.path.exists(gate):  # noqa: ASYNC240 - a look that takes microseconds
                await clock.asleep(0.02)
        return token_of(job)


_effects: Final = Path(os.environ.get(EFFECTS, os.devnull))
app = open_shop(os.environ.get("HOLDFAST_URL", "memory://"), _effects)
add_held(app, _effects)
