"""Which records of a store are elements of a ring, and where in it they were given up."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct

from holdfast.runtime.stored_origin import stored_origin
from holdfast.types import JobRecord

QUEUE: Final = "ring:"
"""The queue of a ring's letters is this and its name."""


class RingOrigin(Struct, frozen=True):
    """Where the elements of a letter were given up."""

    kind: Literal["ring"]
    ring: str
    consumer: str
    batch: int
    """The number of the batch that they were in."""
    offset: int | None = None
    """That of the first of them; None in a ring without offsets."""
    count: int = 0
    """How many elements there are."""


class _Letter(Struct, frozen=True):
    origin: RingOrigin


_decode = msgspec.json.Decoder(_Letter).decode


def ring_origin(record: JobRecord) -> RingOrigin | None:
    """Where the elements of this record were given up; None where it is no ring's."""
    letter = stored_origin(record, QUEUE, _decode)
    return None if letter is None else letter.origin
