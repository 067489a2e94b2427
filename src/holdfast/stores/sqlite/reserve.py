"""Some disk space kept aside, so that work under way can come to its end when the disk is full."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import apsw

from holdfast.ports import Clock

_SIZE: Final = 2 * 1024 * 1024
_PART_OF_FREE: Final = 10
_LOOK_EVERY_S: Final = 5.0
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Reserve:
    """A file of zeros beside the database: 2 MiB, or a tenth of the free space where that is less.

    Settlements, notes and heartbeats may spend it; new jobs may not, and are refused for as long as it is gone. It is
    made again only where there is more room than it gave back itself. Best effort, as everything about a full disk is.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self._file = f"{path}.reserve"
        self._folder = os.path.dirname(path)
        self._clock = clock
        self._looked_at = float("-inf")
        self._is_possible = True

    def make(self) -> bool:
        """Write the file, unless it is there; say whether it is, or can never be."""
        if not self._is_possible:
            return True
        disk = shutil.disk_usage(self._folder)
        size = min(_SIZE, disk.free // _PART_OF_FREE)
        with suppress(OSError):
            if os.path.getsize(self._file) >= size:
                return True
        # What it gives back is at most this, so it is never made of its own space.
        if disk.free <= min(2 * _SIZE, disk.total // _PART_OF_FREE):
            return os.path.exists(self._file)
        return self._write(size)

    def is_kept(self) -> bool:
        """Whether the space is there, or could be made again just now: else the disk is too full for new jobs."""
        return os.path.exists(self._file) or self.make()

    def make_room(self, db: apsw.Connection | None) -> Iterator[None]:
        """Find room for work under way, a little more with each step: first what is in the log already, then this."""
        _move_log(db)
        yield
        with suppress(OSError):
            os.unlink(self._file)
        _move_log(db)
        yield

    def keep(self, db: apsw.Connection) -> None:
        """After a commit: if it was spent, by any process, see that the log stays small, and make it again in time."""
        if os.path.exists(self._file) or not self._is_possible:
            return
        _move_log(db)  # else it would take all the space, and the database could not grow by what is in it
        if self._clock.monotonic() - self._looked_at > _LOOK_EVERY_S:
            self._looked_at = self._clock.monotonic()
            self.make()

    def _write(self, size: int) -> bool:
        try:
            with open(self._file, "wb") as file:
                file.write(bytes(size))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.unlink(self._file)
            self._is_possible = error.errno in _FULL
            return not self._is_possible
        return True


def _move_log(db: apsw.Connection | None) -> None:
    """Move the log into the database's free pages, so that it is written from its start again."""
    if db is not None:
        with suppress(apsw.Error):
            db.wal_checkpoint()
