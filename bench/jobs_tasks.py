"""The tasks of bench-jobs; the store is the one that HOLDFAST_URL names."""

from __future__ import annotations

import time

from holdfast import App

app = App()


@app.task(name="noop")
def noop() -> None:
    pass


@app.task(name="anoop")
async def anoop() -> None:
    pass


@app.task(name="stamp")
def stamp(sent_at: float) -> float:
    """Seconds since it was sent; the monotonic clock is the same one in every process."""
    return time.monotonic() - sent_at
