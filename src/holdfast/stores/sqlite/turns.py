"""Takes the write lock, in fair turns with other processes and with this one's other connections."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import apsw

from holdfast.clock import chance
from holdfast.ports import Clock
from holdfast.stores.sqlite.faults import StillBusy, replaced
from holdfast.stores.sqlite.files import Files, files_of

try:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock

    _has_locks = True
except ImportError:  # Windows: no queue, and so no promise of fairness
    _has_locks = False

_PATIENCE_S: Final = 10.0
_RECENT_S: Final = 0.005
_NORMAL_S: Final = (0.0002, 0.003)
_URGENT_S: Final = (0.0001, 0.0003)
_PAUSE_S: Final = (0.001, 0.003)


class Turn:
    """One connection's way to the write lock.

    Whoever waits holds a shared OS lock on a file beside the database, and whoever has just committed looks whether
    somebody does: then it pauses before it begins again. The kernel drops a dead waiter's lock.

    `files` are those that the process has open.
    """

    def __init__(self, path: str, files: Files, clock: Clock, *, is_urgent: bool = False) -> None:
        self._path = path
        self._files = files
        self._clock = clock
        self._shortest_s, self._longest_s = _URGENT_S if is_urgent else _NORMAL_S
        self._is_urgent = is_urgent
        self._ended_at = float("-inf")
        self._queue: int | None = None
        if _has_locks:
            with suppress(OSError):
                self._queue = os.open(f"{path}.queue", os.O_RDWR | os.O_CREAT, 0o666)

    def begin(self, db: apsw.Connection) -> None:
        """`BEGIN IMMEDIATE`; raises StillBusy when others hold the lock for ten seconds.

        And Replaced when others are in the place of the files, or none: what is written would be lost, or would get
        into a file that is not the process's own.
        """
        self._take_lock(db)
        if files_of(self._path) != self._files:
            db.execute("ROLLBACK")
            raise replaced(self._path)

    def _take_lock(self, db: apsw.Connection) -> None:
        monotonic = self._clock.monotonic
        if not self._is_urgent and monotonic() - self._ended_at < _RECENT_S and self._do_others_wait():
            self._clock.sleep(_between(*_PAUSE_S))
        try:
            db.execute("BEGIN IMMEDIATE")
            return
        except apsw.BusyError:
            end = monotonic() + _PATIENCE_S
        try:
            while True:
                self._lock_queue()
                self._clock.sleep(_between(self._shortest_s, self._longest_s))
                with suppress(apsw.BusyError):
                    db.execute("BEGIN IMMEDIATE")
                    return
                if monotonic() > end:
                    who = "another connection has been writing"
                    raise StillBusy(f"{self._path}: {who} for {_PATIENCE_S:g} s; look for a long transaction")
        finally:
            self._leave_queue()

    def end(self, db: apsw.Connection) -> None:
        """`COMMIT`."""
        db.execute("COMMIT")
        self._ended_at = self._clock.monotonic()

    def close(self) -> None:
        """Give the file back."""
        if self._queue is not None:
            os.close(self._queue)
            self._queue = None

    def _do_others_wait(self) -> bool:
        if self._queue is None:
            return False
        try:
            flock(self._queue, LOCK_EX | LOCK_NB)
        except OSError:
            return True
        flock(self._queue, LOCK_UN)
        return False

    def _lock_queue(self) -> None:
        if self._queue is not None:
            with suppress(OSError):  # somebody looks at it right now
                flock(self._queue, LOCK_SH | LOCK_NB)

    def _leave_queue(self) -> None:
        if self._queue is not None:
            flock(self._queue, LOCK_UN)


def _between(shortest: float, longest: float) -> float:
    return shortest + (longest - shortest) * chance()
