"""A shop in two versions, as in the middle of a deploy; worker processes load `old` or `new`.

The new one has an argument more, with a default, and another name for a task.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from holdfast import App, JobContext, RetryPolicy
from tests.faults.ledger import EffectLedger
from tests.faults.shop import EFFECTS, noted, token_of

OLD: Final = "tests.faults.deploy_shop:old"
NEW: Final = "tests.faults.deploy_shop:new"

_RETRY: Final = RetryPolicy(max_retries=2, initial_delay=0.05, max_delay=0.1, min_delay=0.0)


def open_old(url: str, effects: Path) -> App:
    """As it was."""
    app = App(url)
    ledger = EffectLedger(effects)

    @app.task(name="bill", breaker=None, retry=_RETRY)
    async def bill(job: JobContext, number: int) -> str:
        with noted(ledger, job):
            return token_of(job)

    @app.task(name="remind", breaker=None, retry=_RETRY)
    async def remind(job: JobContext, number: int) -> str:
        with noted(ledger, job):
            return token_of(job)

    return app


def open_new(url: str, effects: Path) -> App:
    """As it will be."""
    app = App(url)
    ledger = EffectLedger(effects)

    @app.task(name="bill", breaker=None, retry=_RETRY)
    async def bill(job: JobContext, number: int, currency: str = "EUR") -> str:
        with noted(ledger, job):
            return token_of(job)

    @app.task(name="notify", breaker=None, retry=_RETRY)
    async def notify(job: JobContext, number: int) -> str:
        with noted(ledger, job):
            return token_of(job)

    return app


_place: Final = (os.environ.get("HOLDFAST_URL", "memory://"), Path(os.environ.get(EFFECTS, os.devnull)))
old = open_old(*_place)
new = open_new(*_place)
