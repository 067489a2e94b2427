"""Sync code that may hang, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

R = TypeVar("R")


def aside(fn: Callable[[], R], name: str) -> Future[R]:
    """Run it on a new thread, which ends with it and does not hold the process; RuntimeError where there is none.

    Unlike an executor's its thread is no one else's, so code that never returns takes nothing from others.
    """
    future: Future[R] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            value = fn()
        except BaseException as error:  # sys.exit() on this thread is a failure of fn too
            future.set_exception(error)
        else:
            future.set_result(value)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
