"""An OS lock on a file, by which one process knows that another one is at work beside it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final
from weakref import WeakSet

try:
    from fcntl import LOCK_EX, LOCK_NB, flock

    _has_locks = True
except ImportError:  # Windows: nobody is kept out
    _has_locks = False

_FLAGS: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
_PID_BYTES: Final = 20


class LockInUse(Exception):
    """Somebody else has the lock. `pid` is its process, 0 where it is not known."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"in use by process {pid}" if pid else "in use")
        self.pid = pid


class FileLock:
    """A lock that the kernel drops with the process, so that no crash leaves it behind.

    Programs that the process starts do not inherit it, and a forked child of Python's own has none: it must take the
    lock itself, and is refused while the parent has it. Two locks on one file keep each other out within a process
    too. Where the platform has no `fcntl` (Windows) nobody is kept out, and `take` always succeeds.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = None
        _live.add(self)

    @property
    def is_held(self) -> bool:
        """Whether this very object has the lock."""
        return self._file is not None

    def take(self) -> None:
        """Take it, or raise LockInUse at once; an OSError where the file cannot be made or locked."""
        while self._file is None:
            file = os.open(self._path, _FLAGS, 0o666)
            try:
                if _has_locks:
                    self._lock(file)
                    if not self._is_in_place(file):  # its last holder removed it between our two steps
                        os.close(file)
                        continue
                with suppress(OSError):  # a full disk: the pid is for people, the lock does not need it
                    os.ftruncate(file, 0)
                    os.write(file, str(os.getpid()).encode())
            except BaseException:
                os.close(file)
                raise
            self._file = file

    def give_back(self) -> None:
        """Let others take it; the file goes first, while nobody else can have it."""
        file, self._file = self._file, None
        if file is not None:
            try:
                if os.name == "posix":
                    with suppress(OSError):  # one that stays behind is taken over by the next
                        os.unlink(self._path)
            finally:
                os.close(file)

    def __del__(self) -> None:
        """One that nobody has any more keeps nobody out."""
        self.give_back()

    def _lock(self, file: int) -> None:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            digits = os.pread(file, _PID_BYTES, 0)
            raise LockInUse(int(digits) if digits.isdigit() else 0) from None

    def _is_in_place(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self._path, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def _forget(self) -> None:
        """In a forked child: the lock is the parent's."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                os.close(file)


# A forked child shares its parent's open files, and with them the locks: this is the only way to hear of a fork.
_live: WeakSet[FileLock] = WeakSet()


def _after_fork() -> None:
    for lock in _live:
        lock._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
