"""Checkpoints: how far each consumer of a ring is, kept in a file or in the store, so that a restart goes on there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.ring.checkpoint_file import FileCheckpoints, file_checkpoints, read_file, reset_file
from holdfast.ring.checkpoint_record import Checkpoint, SavedCheckpoint, checked_ring_name
from holdfast.ring.checkpoint_store import StoreCheckpoints, list_stored, reset_stored, store_checkpoints

__all__ = [
    "Checkpoint",
    "Checkpoints",
    "SavedCheckpoint",
    "checked_ring_name",
    "file_checkpoints",
    "list_stored",
    "read_file",
    "reset_file",
    "reset_stored",
    "store_checkpoints",
]


class Checkpoints(Protocol):
    """One consumer's checkpoint. Its methods block, and are called by one thread at a time."""

    def load(self) -> Checkpoint | None:
        """What was saved last; None: nothing yet. From now on it is ours, and nobody else's.

        CheckpointError when it is torn, of another ring or consumer, of a newer format, not readable or in use;
        StoreAway when the same call may work later.
        """

    def save(self, checkpoint: Checkpoint) -> None:
        """Durable on return; `saved_at` is set here. May be repeated after any error but a fence.

        CheckpointError when it cannot be written, and with `is_fenced` when somebody else has moved it: whoever is told
        so must stop. StoreAway when the same call may work later.
        """

    def reset(self) -> None:
        """Remove it, torn and foreign ones too."""

    def close(self) -> None:
        """Give up what keeps others out."""


if TYPE_CHECKING:
    _file_contract: type[Checkpoints] = FileCheckpoints
    _store_contract: type[Checkpoints] = StoreCheckpoints
