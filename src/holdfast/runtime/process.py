"""One worker process: `python -m holdfast.runtime.process TARGET SETTINGS`, as the supervisor starts it."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

from holdfast.errors import StoreAway
from holdfast.runtime.isolated import load
from holdfast.runtime.place import place_of
from holdfast.runtime.worker import Exit, Worker, WorkerSettings

_logger = logging.getLogger("holdfast.process")

CANNOT_START = 2
"""The exit code of a process that could not load the app or open its store: starting it again would not help."""

_PR_SET_PDEATHSIG = 1
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def main() -> None:
    """Load the app, work until told to stop, and exit with how it ended."""
    target, settings = sys.argv[1], msgspec.json.decode(sys.argv[2], type=WorkerSettings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _leave(Exit.DRAINED))  # nothing has begun yet
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    logging.basicConfig(level=os.environ.get("HOLDFAST_LOG", "INFO").upper(), format=_FORMAT)
    try:
        app: Any = load(target)
        worker: Worker = app.worker(settings, is_replaceable=True, target=target)
        with suppress(StoreAway):  # the worker waits for it, and says so
            app.store.capabilities  # noqa: B018 - asking opens it
    except Exception as error:  # loading runs the user's own code
        _leave(CANNOT_START, f"{type(error).__name__}: {error}{place_of(error)}")
    _logger.info("worker process %d is running %s", os.getpid(), target)
    code = asyncio.run(_work(worker))
    if code == Exit.DRAINED:
        app.close()  # the last one out moves SQLite's log into the file; a hanging thread would still need the store
    _leave(code)


async def _work(worker: Worker) -> int:
    loop = asyncio.get_running_loop()
    heard: list[int] = []

    def on_signal(number: int) -> None:
        if heard:
            _leave(128 + number, "a second signal: leaving at once; what was running is run again elsewhere")
        heard.append(number)
        worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    code = int(await worker.run())
    if code != Exit.DRAINED:
        _leave(code)  # asyncio would wait for what does not end, such as a job's own thread, beyond its lease
    return code


def _leave(code: int, why: str = "") -> NoReturn:
    """Exit without waiting for threads: one that hangs in a job must not keep the process."""
    if why:
        print(f"holdfast worker: {why}", file=sys.stderr)  # noqa: T201
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
