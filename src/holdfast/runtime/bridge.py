"""From sync code to async code: one background event loop a process, made when first needed."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.errors import HoldfastError

R = TypeVar("R")


class Bridge:
    """Runs coroutines for threads that have no event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run it to its end on the background loop, and block until then."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._running())
            try:
                return future.result()
            except BaseException:
                future.cancel()  # an interrupt of the caller ends it; one that has ended is not changed
                raise
        coroutine.close()
        raise HoldfastError("this method blocks; in async code await its a… twin instead")

    def close(self) -> None:
        """End the background loop."""
        with self._lock:
            if self._loop is not None and self._pid == os.getpid():
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():  # a fork takes no threads along
                loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(loop,), name="holdfast-bridge", daemon=True).start()
                self._loop, self._pid = loop, os.getpid()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
