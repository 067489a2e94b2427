"""What users want done when a worker starts and when it stops."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

_logger = logging.getLogger("holdfast.worker")


class Hooks:
    """Startup hooks run in order, shutdown hooks in reverse; each may be sync or async."""

    def __init__(self) -> None:
        self.on_startup: list[Callable[[], Any]] = []
        self.on_shutdown: list[Callable[[], Any]] = []

    async def start(self) -> None:
        """Run the startup hooks; one that raises keeps the worker from starting."""
        for hook in self.on_startup:
            await _call(hook)

    async def stop(self) -> None:
        """Run the shutdown hooks; one that raises is logged, and the others run all the same."""
        for hook in reversed(self.on_shutdown):
            try:
                await _call(hook)
            except Exception:
                _logger.exception("the shutdown hook %r raised", hook)


async def _call(hook: Callable[[], Any]) -> None:
    value = hook()
    if inspect.isawaitable(value):
        await value
