"""One worker process: `python -m holdfast.runtime.process TARGET SETTINGS`, as the supervisor starts it.

With `--reports-to=FD` it writes down there how it is doing, every second that its event loop turns. With
`--child-of=PID` it ends with that process, also when that one was gone before this one could ask for it.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Protocol

import msgspec

from holdfast.clock import SystemClock
from holdfast.errors import StoreAway
from holdfast.runtime.isolated import load
from holdfast.runtime.logs import FORMATS, LOG_FORMAT, set_up_logs
from holdfast.runtime.place import place_of
from holdfast.runtime.reports import reports_to, tell
from holdfast.runtime.worker import Exit, Worker, WorkerSettings

_logger = logging.getLogger("holdfast.process")

CANNOT_START = 2
"""The exit code of one that could not load the app, open its store or make its streams: again would not help."""

CHILD_OF = "--child-of="
"""How a process is told who has started it."""

_FAILED = 1
"""The exit code of a program that an exception has ended."""

_STRAYS_S = 2.0
"""Enough to clean up; no part of the grace time, as no run of a job is waited for any more."""

_PR_SET_PDEATHSIG = 1


class Companion(Protocol):
    """What runs in the same process beside the worker, for as long as it does."""

    async def run(self) -> None:
        """Until it is stopped."""

    def stop(self) -> None:
        """End soon."""


def main(beside: Callable[[Any, Worker], Companion | None] | None = None) -> None:
    """Load the app, work until told to stop, and exit with how it ended. beside: makes a companion for both."""
    faulthandler.enable()  # what crashes in native code says where
    target, settings = sys.argv[1], msgspec.json.decode(sys.argv[2], type=WorkerSettings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _leave(Exit.DRAINED))  # nothing has begun yet
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if _is_orphan(sys.argv[3:]):  # asked for only now, as it may have died while this one was still starting
        _leave(Exit.DRAINED, "the supervisor is gone")
    try:
        set_up_logs()
        os.environ.setdefault(LOG_FORMAT, FORMATS[0])  # so that isolated processes log as this one does
        app: Any = load(target)
        worker: Worker = app.worker(settings, is_replaceable=True, target=target)
        app.streams.check_sources(settings.streams)
        companion = None if beside is None else beside(app, worker)
        with suppress(StoreAway):  # the worker waits for it, and says so
            app.store.capabilities  # noqa: B018 - asking opens it
    except Exception as error:  # loading runs the user's own code
        _leave(CANNOT_START, f"{type(error).__name__}: {error}{place_of(error)}")
    _logger.info("worker process %d is running %s", os.getpid(), target)
    with asyncio.Runner() as runner:
        try:
            code = runner.run(_work(worker, companion))
        except Exception:  # a startup hook has failed, say
            _logger.critical("the worker has failed", exc_info=True)
            code = _FAILED
        if code != Exit.DRAINED:
            _leave(code)  # what does not end, such as a job's own thread, is not to be waited for beyond its lease
        has_ended = threading.Event()
        threading.Thread(target=_leave_in_time, args=(code, has_ended), name="holdfast-end", daemon=True).start()
    has_ended.set()
    app.close()  # the last one out moves SQLite's log into the file; a hanging thread would still need the store
    _leave(code)


def _is_orphan(arguments: Sequence[str]) -> bool:
    """Whether who started this process is gone. It may well be process 1, as in a container."""
    parents = [int(one.removeprefix(CHILD_OF)) for one in arguments if one.startswith(CHILD_OF)]
    return bool(parents) and os.getppid() not in parents


async def _work(worker: Worker, companion: Companion | None) -> int:
    loop = asyncio.get_running_loop()
    heard: list[int] = []

    def on_signal(number: int) -> None:
        if heard:
            _leave(128 + number, "a second signal: leaving at once; what was running is run again elsewhere")
        heard.append(number)
        worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_hear_for_itself)
    beside = None if companion is None else loop.create_task(companion.run())
    fd = reports_to(sys.argv[3:])
    telling = None if fd is None else loop.create_task(tell(worker, fd, SystemClock()))
    code = int(await worker.run())
    if telling is not None:
        telling.cancel()
    if companion is not None and beside is not None:
        companion.stop()
        (ended,) = await asyncio.gather(beside, return_exceptions=True)
        if isinstance(ended, Exception):
            _logger.error("what ran beside the worker has failed", exc_info=ended)
    return code


def _hear_for_itself() -> None:
    """In a child that a job has forked: a signal to it ends it, and is not heard by the worker's event loop."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave_in_time(code: int, has_ended: threading.Event) -> None:
    """Leave if asyncio does not end soon: it cancels what is left of tasks, and waits for them and for threads."""
    if not SystemClock().wait(has_ended, _STRAYS_S):
        _leave(code, "what jobs or hooks have left behind, in a task or thread of their own, does not end: leaving it")


def _leave(code: int, why: str = "") -> NoReturn:
    """Exit without waiting for threads: one that hangs in a job must not keep the process."""
    try:
        if why:
            print(f"holdfast worker: {why}", file=sys.stderr)  # noqa: T201
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # also when nobody reads what it says any more


if __name__ == "__main__":
    main()
