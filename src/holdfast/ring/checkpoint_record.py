"""How far a consumer of a ring is, as a value, and what a ring and its consumers may be called."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from holdfast.app.task import checked_name
from holdfast.errors import ConfigError

MOST_OFFSET: Final = 2**63 - 1
"""The largest offset that can be kept: what fits into 64 bits with a sign."""
Natural = Annotated[int, Meta(ge=0, le=MOST_OFFSET)]
"""A whole number from 0 on that can be kept."""


class Checkpoint(Struct, frozen=True, kw_only=True):
    """How far one consumer is: everything before `offset` is finished."""

    offset: Natural
    """The next one to do."""
    batch: Natural
    """The number of the last finished batch."""
    processed: Natural
    """Elements that it has finished since it first began, over all restarts."""
    saved_at: float = 0.0
    """Wall time; set when it is saved."""

    def __post_init__(self) -> None:
        """What could be saved and not be loaded again is refused."""
        if not (0 <= self.offset <= MOST_OFFSET and self.batch >= 0 and self.processed >= 0):
            raise ConfigError(f"offset={self.offset!r}: must be a whole number from 0 to {MOST_OFFSET}")


class SavedCheckpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint as it was found, for people."""

    ring: str
    consumer: str
    checkpoint: Checkpoint | None
    """None: it cannot be read."""
    problem: str = ""
    """Why it cannot be read, in one line."""


def checked_ring_name(field: str, value: object) -> str:
    """Printable text of 1 to 200 characters without a slash, which stands between a ring and its consumer."""
    name = checked_name(field, value)
    if "/" in name:
        raise ConfigError(f"{field}={value!r}: must not contain a slash")
    return name
