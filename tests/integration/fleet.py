"""An app for several worker processes on one store, whose tasks say what happens to them in a file."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Final

from holdfast import App, CircuitBreaker, JobContext, Permanent, RetryPolicy, Transient
from holdfast.clock import SystemClock

EFFECTS: Final = "FLEET_EFFECTS"
PER_SECOND: Final = 10
PER_USER: Final = 4
THRESHOLD: Final = 4
TRIALS: Final = 2
_CLOCK: Final = SystemClock()


def note(*words: object) -> None:
    """One line in the file of effects, in one write, with the pid and the machine's time."""
    line = " ".join(map(str, (os.getpid(), _CLOCK.monotonic(), *words)))
    file = os.open(os.environ[EFFECTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def open_app(url: str) -> App:
    """The app on this store."""
    app = App(url)
    shaky = CircuitBreaker("shaky", failure_threshold=THRESHOLD, recovery_timeout=0.5, half_open_max_calls=TRIALS)

    @app.task(name="limited", breaker=None, rate=f"{PER_SECOND}/second")
    async def limited(number: int) -> None:
        note("limited", number)

    @app.task(name="fair", breaker=None, rate={"user": f"{PER_USER}/second"})
    async def fair(number: int) -> None:
        note("fair", number)

    @app.task(name="call", breaker=shaky, retry=RetryPolicy(max_retries=50, initial_delay=0.1, max_delay=0.2))
    def call(switch: str) -> None:
        note("call", "begin")
        _CLOCK.sleep(0.02)
        is_down = not os.path.exists(switch)
        note("call", "failed" if is_down else "done")
        if is_down:
            raise Transient("the other side is down")

    @app.task(name="doomed", breaker=None)
    def doomed(switch: str) -> None:
        note("doomed", "begin")
        if not os.path.exists(switch):
            raise Permanent("not yet")

    @app.task(name="tick", breaker=None)
    def tick(job: JobContext) -> None:
        note("tick", job.id)

    app.schedule(app.tasks["tick"].bind(), every=timedelta(seconds=1), name="tick")
    return app


app = open_app(os.environ.get("HOLDFAST_URL", "memory://"))
