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
from holdfast.stores.sqlite.rows import read_value

_SIZE: Final = 2 * 1024 * 1024
_PART_OF_FREE: Final = 10
_LOOK_EVERY_S: Final = 5.0
_LOOK_EVERY_PAGES: Final = 32
_MOST_PAGES: Final = 1000
_PAGE: Final = 4096
_PASSIVE: Final = apsw.SQLITE_CHECKPOINT_PASSIVE
_TRUNCATE: Final = apsw.SQLITE_CHECKPOINT_TRUNCATE
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Reserve:
    """A file of zeros beside the database: 2 MiB, or a tenth of the free space where that is less.

    Settlements, notes and heartbeats may spend it; new jobs may not, and are refused for as long as it is gone. It is
    made again only where there is more room than it gave back itself. Best effort, as everything about a full disk is.

    It also moves the log into the database, in place of SQLite's own rule, and the sooner the less space is left: what
    is in the log needs its space a second time to get out of it.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._file = f"{path}.reserve"
        self._folder = os.path.dirname(path)
        self._clock = clock
        self._looked_at = float("-inf")
        self._is_possible = True
        self._is_spent = False
        self._is_stuck = False
        """More is in the log than there is room for outside of it."""
        self._pages = 0
        self._looked_pages = 0

    def make(self) -> bool:
        """Write the file, unless it is there; say whether it is, or can never be."""
        if not self._is_possible:
            return True
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError:  # the folder is gone, or its disk is broken: whoever writes is told what is wrong
            return True
        size = min(_SIZE, disk.free // _PART_OF_FREE)
        with suppress(OSError):
            if os.path.getsize(self._file) >= size:
                return True
        # What it gives back is at most this, so it is never made of its own space.
        if disk.free <= min(2 * _SIZE, disk.total // _PART_OF_FREE):
            return os.path.exists(self._file)
        return self._write(size)

    def is_kept(self, db: apsw.Connection | None) -> bool:
        """Whether the space is there, or could be made again just now: else the disk is too full for new jobs."""
        if self._is_stuck:
            self._is_stuck = not self._move_log(db, _PASSIVE)
        return not self._is_stuck and (os.path.exists(self._file) or self.make())

    def make_room(self, db: apsw.Connection | None) -> Iterator[None]:
        """Find room for work under way, a little more with each step: first what the log has taken, then this."""
        self._move_log(db, _TRUNCATE)
        yield
        self._is_spent = True
        with suppress(OSError):
            os.unlink(self._file)
        self._move_log(db, _TRUNCATE)
        yield
        self._move_log(db, _TRUNCATE)  # what was in vain has filled the log: leave that room to a smaller one

    # ---------------------------------------------------------------- the log of the writing connection

    def watch(self, db: apsw.Connection) -> None:
        """From now on, `keep` follows every commit on this connection."""
        db.set_wal_hook(self._on_commit)

    def keep(self, db: apsw.Connection) -> None:
        """After a commit: see that the log does not take the space that is left, and make a spent reserve again."""
        if not self._is_spent and self._pages // _LOOK_EVERY_PAGES == self._looked_pages:
            return
        self._looked_pages = self._pages // _LOOK_EVERY_PAGES
        self._is_spent = self._is_possible and not os.path.exists(self._file)
        if self._is_spent or self._lacks(2 * _PAGE * self._pages) or self._pages >= _MOST_PAGES:
            self._is_stuck = not self._move_log(db, _TRUNCATE if self._is_spent else _PASSIVE)
        if self._is_spent and self._clock.monotonic() - self._looked_at > _LOOK_EVERY_S:
            self._looked_at = self._clock.monotonic()
            self.make()

    def _on_commit(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK

    def _move_log(self, db: apsw.Connection | None, mode: int) -> bool:
        """Move the log into the database, so that it starts anew, or gives its space back; False: there is no room.

        An attempt without room would take what is left of it, and get nowhere.
        """
        if db is None:
            return True
        try:
            size = read_value(db, "PRAGMA page_count") * read_value(db, "PRAGMA page_size")
            if self._lacks(size - os.path.getsize(self._path)):
                return False
            db.wal_checkpoint(mode=mode)
        except apsw.FullError:
            return False
        except (apsw.Error, OSError):  # a reader is in the way, or the next commit will say what is wrong
            return True
        return True

    def _lacks(self, size: int) -> bool:
        """Whether the disk says that it has less room than that."""
        try:
            return size > shutil.disk_usage(self._folder).free
        except OSError:
            return False

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
