"""Log lines of those who must not stand still while the log does."""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from contextlib import suppress
from typing import Any, Final

_MOST: Final = 100
"""So many lines wait at most; what comes then is not written."""


class LogThread:
    """Writes to a log on a thread of its own, in order, which is there while there is something to write.

    A log takes nothing while nobody reads its pipe, or its disk stands still. Whoever keeps a lease, or has to end a
    process in time, does not wait for that.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._mutex = threading.Lock()
        self._lines: deque[tuple[int, str, tuple[Any, ...]]] = deque()
        self._thread: threading.Thread | None = None

    def log(self, level: int, text: str, *args: Any) -> None:
        """As a logger's, but returns at once."""
        with self._mutex:
            if len(self._lines) < _MOST:
                self._lines.append((level, text, args))
            if self._thread is None:
                thread = threading.Thread(target=self._write, name="holdfast-log", daemon=True)
                with suppress(RuntimeError):  # the machine has none to give: it is written with the next line
                    thread.start()
                    self._thread = thread

    def wait(self, within_s: float) -> None:
        """Until all is written, but no longer than this."""
        thread = self._thread
        if thread is not None:
            thread.join(within_s)

    def _write(self) -> None:
        while True:
            with self._mutex:
                if not self._lines:
                    self._thread = None
                    return
                level, text, args = self._lines.popleft()
            try:
                self._logger.log(level, text, *args)
            except Exception:  # of a user's filter: said where Python says it of handlers, and the next line is written
                if logging.raiseExceptions:
                    traceback.print_exc()
