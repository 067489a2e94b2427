"""The tasks of bench-jobs; the store is the one that HOLDFAST_URL names."""

from __future__ import annotations

import os
import time
from pathlib import Path

from jobs_peers.starts import note

from holdfast import App

BUSY_S = 0.001
STUCK_S = 600.0

app = App()


@app.task(name="noop")
def noop() -> None:
    pass


@app.task(name="anoop")
async def anoop() -> None:
    pass


@app.task(name="stamp")
def stamp(sent_at: float) -> None:
    note(sent_at)


@app.task(name="busy")
def busy() -> None:
    """Take 1 ms of processor time, however long that takes."""
    until = time.thread_time() + BUSY_S
    while time.thread_time() < until:
        pass


@app.task(name="linger", timeout=STUCK_S)
def linger(path: str) -> None:
    """Say who runs it and since when; the first time, run until killed."""
    file = Path(path)
    is_first = not file.exists()
    with file.open("a") as lines:
        lines.write(f"{os.getpid()} {time.monotonic()}\n")
    if is_first:
        time.sleep(STUCK_S)
