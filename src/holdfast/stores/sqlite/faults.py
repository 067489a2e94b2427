"""SQLite's errors in one line each, with what would help; the original stays as the cause."""

from __future__ import annotations

import apsw

from holdfast.errors import StoreAway, StoreError

_BROKEN = (
    apsw.IOError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,  # it was opened while nothing could be written, and would stay so
    apsw.NoMemError,
    apsw.MisuseError,
)


class StillBusy(StoreAway):
    """Others held the write lock for as long as we were ready to wait."""


class DiskFull(StoreAway):
    """There is no room for what was to be written; nothing of it was."""


def disk_full(path: str) -> DiskFull:
    """The refusal while there is no room."""
    return DiskFull(f"{path}: disk is full, nothing was written; free some space and it goes on by itself")


class Replaced(StoreError):
    """Under the name of the database there is another file now, or none, or its log is gone."""


def replaced(path: str) -> Replaced:
    """The refusal of a process that has the former file open."""
    return Replaced(
        f"{path}: the file or its log was replaced, moved or deleted while in use, nothing was written; restart "
        "every process that has it open"
    )


def is_broken(error: BaseException) -> bool:
    """Whether the connection must not be used again: after a failed write to disk nobody knows what it holds."""
    return isinstance(error, _BROKEN)


def translated(error: apsw.Error, path: str) -> StoreError:
    """The error to raise instead, `from` the original."""
    detail = " ".join(str(error).split())
    match error:
        case apsw.FullError():
            return disk_full(path)
        case apsw.BusyError() | apsw.LockedError():
            return StillBusy(f"{path}: another process holds the database locked; {detail}")
        case apsw.NotADBError():
            return StoreError(f"{path}: this file is not a SQLite database; give another path, or move it away")
        case apsw.CorruptError():
            return StoreError(f"{path}: the database is damaged ({detail}); restore a copy, or try sqlite3's .recover")
        case apsw.ReadOnlyError():
            return StoreError(f"{path}: cannot be written; check the permissions of the file and of its folder")
        case apsw.CantOpenError():
            return StoreError(f"{path}: cannot be opened ({detail}); check the path and its permissions")
        case apsw.IOError():
            return StoreError(f"{path}: reading or writing the disk failed ({detail}); check the disk")
        case _:
            return StoreError(f"{path}: {type(error).__name__}: {detail}")
