"""How the origin of a letter that is no job is read from its record."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.types import JobRecord

T = TypeVar("T")


def stored_origin(record: JobRecord, queue: str, read: Callable[[bytes], T]) -> T | None:
    """What a payload of this record says, if its queue begins so and a payload can be read; None otherwise."""
    if not record.queue.startswith(queue):
        return None
    for payload in (record.original_payload, record.payload):  # an edit may say something else, or have spoiled it
        if payload is not None:
            try:
                return read(payload)
            except (ValueError, RecursionError):
                continue
    return None
