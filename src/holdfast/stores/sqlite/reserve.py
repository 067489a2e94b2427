"""A little disk space kept aside, so that work under way can come to its end when the disk is full."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from holdfast.ports import Clock

_SIZE: Final = 256 * 1024
_REMADE_AFTER_S: Final = 30.0


class Reserve:
    """A file of zeros beside the database; best effort, as everything about a full disk is."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._file = f"{path}.reserve"
        self._clock = clock
        self._freed_at: float | None = None

    def make(self) -> None:
        """Write the file, unless it is there."""
        self._freed_at = None
        with suppress(OSError):
            if os.path.getsize(self._file) >= _SIZE:
                return
        try:
            with open(self._file, "wb") as file:
                file.write(bytes(_SIZE))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            self.free()

    def free(self) -> None:
        """Give the space back to the disk."""
        self._freed_at = self._clock.monotonic()
        with suppress(OSError):
            os.unlink(self._file)

    def keep(self) -> None:
        """After a commit: make it again, once it has been gone for a while."""
        if self._freed_at is not None and self._clock.monotonic() - self._freed_at > _REMADE_AFTER_S:
            self.make()
