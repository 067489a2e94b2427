"""Jobs that are sent one by one to an idle worker, which notes in a file how long each took to start."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from jobs_timing import Failed, pauses

UP_WITHIN_S = 30.0
"""A worker that has not run its first job by then is not coming."""


def _path() -> Path:
    return Path(os.environ["HOLDFAST_BENCH_FOLDER"]) / "starts"


def note(sent_at: float) -> None:
    """Be the handler; the monotonic clock is the same one in every process."""
    line = f"{time.monotonic() - sent_at}\n"
    with _path().open("a") as file:
        file.write(line)


def send_each(send: Callable[[float], object], count: int) -> None:
    """Wait with a first job until the worker is up, then send so many with pauses between them."""
    send(time.monotonic())
    _wait_for(1)
    for sent_at in pauses(count):
        send(sent_at)
    _wait_for(count + 1)


async def async_send_each(send: Callable[[float], Awaitable[object]], count: int) -> None:
    """The same; nothing else wants the event loop during the pauses."""
    await send(time.monotonic())
    _wait_for(1)
    for sent_at in pauses(count):
        await send(sent_at)
    _wait_for(count + 1)


def _wait_for(least: int) -> None:
    path, began = _path(), time.monotonic()
    while not path.exists() or len(path.read_text().splitlines()) < least:
        if time.monotonic() - began > UP_WITHIN_S:
            raise Failed(f"job {least} did not start within {UP_WITHIN_S:.0f} s")
        time.sleep(0.02)
