"""SIGTERM inside of `with ring:` ends the block as Ctrl-C does, so that the ring is closed."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import Final, NoReturn

CODE: Final = 128 + signal.SIGTERM
"""What a shell shows for a process that SIGTERM has ended."""


class Signals:
    """Takes SIGTERM for as long as a block lasts, on the main thread, where nobody else has taken it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_taken = False
        self.has_come = False
        """Whether SIGTERM has ended an async block."""

    def enter(self) -> None:
        """From here on SIGTERM raises SystemExit."""
        if _is_free():
            signal.signal(signal.SIGTERM, _end)
            self._has_taken = True

    def aenter(self) -> None:
        """From here on SIGTERM cancels the task that is in the block."""
        task = asyncio.current_task()
        if task is None or not _is_free():
            return

        def end() -> None:
            self.has_come = True
            task.cancel()

        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGTERM, end)
        except (NotImplementedError, RuntimeError):  # Windows, or a loop that is not the main thread's
            return
        self._loop = loop

    def leave(self) -> None:
        """As it was before."""
        if self._has_taken:
            self._has_taken = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._loop is not None:
            self._loop.remove_signal_handler(signal.SIGTERM)
            self._loop = None


def _is_free() -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(CODE)
