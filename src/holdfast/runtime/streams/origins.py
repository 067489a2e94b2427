"""Which records of a store are messages, and where those came from."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct

from holdfast.types import JobRecord

QUEUE: Final = "stream:"
"""The queue of a stream's letters is this and its name."""


class Origin(Struct, frozen=True):
    """Where a message came from."""

    kind: Literal["message"]
    group: str
    topic: str
    partition: int
    offset: int | str


class _Letter(Struct, frozen=True):
    origin: Origin


_decode = msgspec.json.Decoder(_Letter).decode


def message_origin(record: JobRecord) -> Origin | None:
    """Where the message of this record came from; None where it is a job."""
    if not record.queue.startswith(QUEUE):
        return None
    for payload in (record.original_payload, record.payload):  # an edit may say something else, or have spoiled it
        if payload is not None:
            try:
                return _decode(payload).origin
            except (ValueError, RecursionError):
                continue
    return None
