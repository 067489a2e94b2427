"""Files that are replaced as a whole and are on the disk when that has returned, whatever dies in between."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Final

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_OLD: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_FOLDER: Final[int | None] = getattr(os, "O_DIRECTORY", None)
_SUFFIX: Final = ".saving"
_UNSYNCABLE: Final = frozenset({errno.EINVAL, errno.ENOTSUP})
"""What file systems answer that cannot flush a folder, and need not be asked to."""


def write_whole(path: str, data: bytes) -> None:
    """Replace the file: others find the old one or the new one. Two at the same time need a lock around this.

    The permissions of an existing file stay, and its owner where we may set it.
    """
    temporary = path + _SUFFIX
    discard_unfinished(path)
    try:
        _write_new(temporary, data, _status_of(path))
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):  # the first error is the one to tell
            discard_unfinished(path)
        raise
    sync_folder(os.path.dirname(path))


def discard_unfinished(path: str) -> None:
    """Remove what a process that was killed in `write_whole` has left beside the file."""
    with suppress(FileNotFoundError):
        os.unlink(path + _SUFFIX)


def read_whole(path: str, most: int) -> bytes:
    """All that is in a regular file, or an OSError; of a longer one than `most` bytes only one more than these."""
    file = os.open(path, _OLD)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        data = b""
        while len(data) <= most and (more := os.read(file, most + 1 - len(data))):
            data += more
        return data
    finally:
        os.close(file)


def make_folder(folder: str) -> None:
    """Make it, and those above it that are missing, so that they survive a power cut."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    if above != folder:
        make_folder(above)
    with suppress(FileExistsError):  # another process was quicker, or it is a file, which the next step tells
        os.mkdir(folder)
    sync_folder(above)


def sync_folder(folder: str) -> None:
    """Put the folder's entries on the disk; nothing to do where folders cannot be opened (Windows)."""
    if _FOLDER is None:
        return
    opened = os.open(folder, os.O_RDONLY | _FOLDER)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _UNSYNCABLE:
            raise
    finally:
        os.close(opened)


def _write_new(path: str, data: bytes, like: os.stat_result | None) -> None:
    file = os.open(path, _NEW, 0o666)
    try:
        if like is not None and hasattr(os, "fchmod"):
            ours = os.fstat(file)
            if (ours.st_uid, ours.st_gid) != (like.st_uid, like.st_gid):
                with suppress(OSError):  # only some may: for the others, a file of somebody else's becomes theirs
                    os.fchown(file, like.st_uid, like.st_gid)
            os.fchmod(file, stat.S_IMODE(like.st_mode))
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)


def _status_of(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
