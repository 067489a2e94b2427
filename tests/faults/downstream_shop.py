"""The shop, and a task that calls a service by HTTP, behind a breaker that all workers share."""

from __future__ import annotations

import os
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from holdfast import App, CircuitBreaker, JobContext, RetryPolicy, Transient
from tests.faults.ledger import EffectLedger
from tests.faults.shop import EFFECTS, noted, open_shop, token_of

TARGET: Final = "tests.faults.downstream_shop:app"
PORT: Final = "FAULTS_DOWNSTREAM"
"""The environment variable that names the service's port."""
THRESHOLD: Final = 5
TRIALS: Final = 2
RECOVERY_S: Final = 0.4
PATIENCE_S: Final = 0.5
"""How long an answer is waited for."""


def add_call(app: App, effects: Path, port: int) -> None:
    """Add the task, with its lines in this ledger."""
    ledger = EffectLedger(effects)
    breaker = CircuitBreaker(
        "downstream", failure_threshold=THRESHOLD, recovery_timeout=RECOVERY_S, half_open_max_calls=TRIALS
    )
    # So many retries that no job is given up, and so short that they are always due.
    retry = RetryPolicy(max_retries=500, initial_delay=0.01, max_delay=0.05, min_delay=0.0)

    @app.task(name="call", breaker=breaker, retry=retry)
    def call(job: JobContext, number: int) -> str:
        with noted(ledger, job):
            connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            try:
                connection.request("POST", f"/{job.id}")
                status = connection.getresponse().status
            finally:
                connection.close()
            if status != 200:
                raise Transient(f"number {number} was answered with {status}")
        return token_of(job)


_effects: Final = Path(os.environ.get(EFFECTS, os.devnull))
app = open_shop(os.environ.get("HOLDFAST_URL", "memory://"), _effects)
add_call(app, _effects, int(os.environ.get(PORT, "0")))
