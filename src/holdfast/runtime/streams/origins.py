"""Which records of a store are messages, and where those came from."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct

from holdfast.runtime.stored_origin import stored_origin
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
    letter = stored_origin(record, QUEUE, _decode)
    return None if letter is None else letter.origin
