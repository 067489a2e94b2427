"""The OS locks by which a machine knows that a worker's process is gone, long before its lease is over."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import quote
from weakref import WeakSet

try:
    from fcntl import LOCK_EX, LOCK_NB, flock

    _has_locks = True
except ImportError:  # Windows: leases alone decide
    _has_locks = False


class WorkerLocks:
    """One locked file for each living worker, in a folder beside the database.

    The kernel drops the lock with the process. Programs that it starts do not inherit it; a forked child of Python's
    own gives it up at once, so a worker may fork, and its children must open workers of their own.
    """

    def __init__(self, path: str) -> None:
        self._folder = f"{path}.workers"
        self._held: dict[str, int] = {}
        self._mutex = threading.Lock()
        _live.add(self)

    def take(self, worker: str) -> None:
        """Lock this worker's file; where that cannot be, its lease alone speaks for it."""
        if not _has_locks or worker in self._held:
            return
        with self._mutex, suppress(OSError):
            os.makedirs(self._folder, exist_ok=True)
            file = os.open(self._file_of(worker), os.O_RDWR | os.O_CREAT, 0o666)
            try:
                flock(file, LOCK_EX | LOCK_NB)
            except OSError:
                os.close(file)
                raise
            self._held[worker] = file

    def drop(self, worker: str) -> None:
        """The worker is gone: its file too."""
        with self._mutex:
            file = self._held.pop(worker, None)
            if file is not None:
                with suppress(OSError):
                    os.unlink(self._file_of(worker))
                os.close(file)

    def dead_of(self, workers: Iterable[str]) -> dict[str, int]:
        """Those whose process is gone, each with its file, which is locked now; give them back by `bury`."""
        dead: dict[str, int] = {}
        if not _has_locks:
            return dead
        for worker in workers:
            if worker in self._held:
                continue
            try:
                file = os.open(self._file_of(worker), os.O_RDWR)
            except OSError:  # it never had a lock: its lease decides
                continue
            try:
                flock(file, LOCK_EX | LOCK_NB)
                dead[worker] = file
            except OSError:
                os.close(file)
        return dead

    def bury(self, dead: dict[str, int], gone: Iterable[str]) -> None:
        """Remove the files of those that were given up, and let go of the others."""
        for worker in gone:
            with suppress(OSError):
                os.unlink(self._file_of(worker))
        for file in dead.values():
            os.close(file)

    def close(self) -> None:
        """Let go of all; their workers are taken for dead from now on."""
        with self._mutex:
            while self._held:
                os.close(self._held.popitem()[1])

    def _file_of(self, worker: str) -> str:
        return os.path.join(self._folder, f"{quote(worker, safe='')}.lock")

    def _forget(self) -> None:
        """In a forked child: the locks are the parent's."""
        held, self._held = self._held, {}
        self._mutex = threading.Lock()
        for file in held.values():
            with suppress(OSError):
                os.close(file)


# A forked child shares its parent's open files, and with them the locks: this is the only way to hear of a fork.
_live: WeakSet[WorkerLocks] = WeakSet()


def _after_fork() -> None:
    for locks in _live:
        locks._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
