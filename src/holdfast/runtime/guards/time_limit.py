"""What a time limit means for a function that cannot be interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

from holdfast.errors import TimeLimitExceeded
from holdfast.ports import Clock
from holdfast.runtime.guards.functions import name_of

R = TypeVar("R")


def run_within(
    limit_s: float, clock: Clock, on_end: Callable[[], None], fn: Callable[..., R], args: Any, kwargs: Any
) -> R:
    """Run a sync function for at most so long, on a thread of its own, with the caller's context variables.

    Python cannot stop a thread. At the limit the caller gets TimeLimitExceeded with `still_running`, while the function
    goes on to its own end, its result dropped. `on_end` is called when the function has really ended, however late; it
    may be called twice.
    """
    ended = threading.Event()
    results: list[R] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(fn(*args, **kwargs))
        except BaseException as error:  # handed to the caller, who raises it
            errors.append(error)
        finally:
            on_end()
            ended.set()

    try:
        deadline = clock.monotonic() + limit_s
        context = copy_context()
        # A daemon, so that a function that never returns does not keep the program from ending.
        threading.Thread(target=context.run, args=(run,), daemon=True, name=f"holdfast {name_of(fn)}").start()
    except BaseException:
        on_end()
        raise
    if not clock.wait(ended, deadline - clock.monotonic()):
        raise TimeLimitExceeded(limit_s, still_running=True)
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # or else the error and this frame would keep each other alive
    return results[0]
