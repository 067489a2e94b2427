"""A thread with a connection of its own, for one purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast.errors import SourceError
from holdfast.streams.redis_streams.connection import Connection

Answer = TypeVar("Answer")


class Desk:
    """Runs what it is asked for, one after the other; thread and connection are made when they are first needed."""

    def __init__(self, name: str, location: str, connection: Connection) -> None:
        self._location = location
        self.connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"holdfast-stream-{name}")

    def ask(self, run: Callable[[Connection], Answer]) -> asyncio.Future[Answer]:
        """Run this there."""
        try:
            return asyncio.get_running_loop().run_in_executor(self._thread, run, self.connection)
        except RuntimeError as error:  # of the thread, which takes nothing more
            raise SourceError(f"{self._location}: the source is closed") from error

    def close(self) -> None:
        """Wait for what is under way, and close the connection."""
        self._thread.shutdown()
        self.connection.close()
