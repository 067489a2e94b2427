"""Which job the code that asks is part of: on the loop, on a thread, or in a process of its own."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from holdfast.ports import Delivery

RUNNING: Final[ContextVar[tuple[Delivery, str] | None]] = ContextVar("holdfast-running", default=None)
"""The delivery and the worker's id; None outside of a job. It goes wherever contextvars go: `asyncio.to_thread` too."""
