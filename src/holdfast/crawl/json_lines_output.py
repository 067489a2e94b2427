"""Items as JSON lines: in a file, each once whatever dies; and on standard output."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdfast.crawl.ledger import Ledger, Mark
from holdfast.crawl.output_buffer import Entry, Sink
from holdfast.errors import ConfigError, StoreError
from holdfast.stores.sqlite.faults import disk_full

_ENDING: Final = ".ledger"
_TAIL: Final = 4096
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_FLAGS: Final = os.O_RDWR | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER: Final[int | None] = getattr(os, "O_DIRECTORY", None)
_UNSYNCABLE: Final = frozenset({errno.EINVAL, errno.ENOTSUP})
"""What file systems answer that cannot flush a folder, and need not be asked to."""


class JsonLinesFile:
    """A file of JSON lines with its ledger beside it.

    Lines are appended and flushed to the disk first, then their pages and the new size go into the ledger together.
    Whatever lies beyond the size of the ledger was not finished: it is cut off, and written again.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._ledger = Ledger(path + _ENDING, path)
        self._of = ("", "")
        self._file: int | None = None
        self._is_doubtful = False

    @property
    def count(self) -> int:
        """Pages that are written durably."""
        return self._ledger.count

    def open(self, crawl: str, crawl_id: str) -> None:
        """Take it for this crawl, and cut it back to what is durable."""
        self._of = (crawl, crawl_id)
        if not os.path.exists(self._ledger.path):
            self._refuse_foreign_lines()  # before an empty ledger is left beside them
        try:
            if not self._ledger.open():
                self._refuse_foreign_lines()
            self._ledger.take(crawl, crawl_id, anew=not os.path.exists(self.path))
            self._take_file()
        except OSError as error:
            self.close()
            raise unwritable(self.path, error) from error
        except BaseException:
            self.close()
            raise

    def known(self, keys: Collection[bytes]) -> set[bytes]:
        """Those of these pages that are written durably."""
        self._see_to_ledger()
        return self._ledger.known(keys)

    def write(self, entries: Sequence[Entry]) -> None:
        """Write these durably, all or none."""
        self._see_to_ledger()
        if self._is_doubtful:
            self._ledger.refresh()
            known = self._ledger.known([entry.key for entry in entries])
            entries = [entry for entry in entries if entry.key not in known]
        self._is_doubtful = True
        try:
            file = self._take_file()
            data = b"".join(line + b"\n" for entry in entries for line in entry.items)
            if data:
                os.lseek(file, self._ledger.mark.size, os.SEEK_SET)
                write_all(file, data)
                os.fsync(file)
        except OSError as error:
            raise unwritable(self.path, error) from error
        mark = self._ledger.mark
        mark = Mark(mark.size + len(data), (mark.tail + data[-_TAIL:])[-_TAIL:])
        self._ledger.add([entry.key for entry in entries], mark)
        self._is_doubtful = False

    def close(self) -> None:
        """Give it back."""
        self._close_file()
        self._ledger.close()

    def _see_to_ledger(self) -> None:
        """Begin again with what is there, where the ledger that was opened is gone or broken."""
        if not self._ledger.is_in_place:
            self.close()
            self.open(*self._of)

    def _take_file(self) -> int:
        """The file of this name, as long as the ledger says. It may have been moved away or changed at any time."""
        if self._file is not None and not self._is_in_place(self._file):
            self._close_file()
        if self._file is None:
            self._file = self._open_file()
        self._cut_back(self._file)
        return self._file

    def _open_file(self) -> int:
        with suppress(FileNotFoundError):
            return os.open(self.path, _FLAGS)
        # The ledger first: an empty file beside a ledger that is not would look as if somebody had emptied it. What is
        # missing then comes from the store, as after any error.
        if self._ledger.count:
            self._ledger.clear()
        file = os.open(self.path, _FLAGS | os.O_CREAT, 0o666)
        try:
            os.fsync(file)
            sync_folder(os.path.dirname(self.path))
        except BaseException:
            os.close(file)
            raise
        return file

    def _is_in_place(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _cut_back(self, file: int) -> None:
        mark, size = self._ledger.mark, os.fstat(file).st_size
        if size < mark.size:
            raise ConfigError(
                f"out={self.path!r}: somebody has shortened it, to {size} of {mark.size} bytes; put it back, or remove "
                "it to have it written anew"
            )
        os.lseek(file, mark.size - len(mark.tail), os.SEEK_SET)
        if read_all(file, len(mark.tail)) != mark.tail:
            raise ConfigError(
                f"out={self.path!r}: somebody has changed it; put it back, or remove it to have it written anew"
            )
        if size > mark.size:
            os.ftruncate(file, mark.size)
            os.fsync(file)

    def _refuse_foreign_lines(self) -> None:
        if os.path.exists(self.path) and os.path.getsize(self.path):
            raise ConfigError(
                f"out={self.path!r}: exists, without the ledger that says which pages are in it ({self._ledger.path}); "
                "give another path, or move it away"
            )

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


class StandardOutput:
    """Items as JSON lines for a pipe, each once in the life of the process; what was read of them nobody knows."""

    path: Final = "-"

    def __init__(self) -> None:
        self._ledger = Ledger("", "-")

    @property
    def count(self) -> int:
        """Pages that are written."""
        return self._ledger.count

    def open(self, crawl: str, crawl_id: str) -> None:
        """Begin with nothing."""
        self._ledger.open()
        self._ledger.take(crawl, crawl_id, anew=True)

    def known(self, keys: Collection[bytes]) -> set[bytes]:
        """Those of these pages that are written."""
        return self._ledger.known(keys)

    def write(self, entries: Sequence[Entry]) -> None:
        """Write these; after an error some of their lines may be out, and come again."""
        try:
            sys.stdout.buffer.write(b"".join(line + b"\n" for entry in entries for line in entry.items))
            sys.stdout.buffer.flush()
        except OSError as error:
            raise unwritable("standard output", error) from error
        self._ledger.add([entry.key for entry in entries], Mark())

    def close(self) -> None:
        """Forget what was written."""
        self._ledger.close()


def unwritable(path: str, error: OSError) -> StoreError:
    """The error to raise instead, `from` the original."""
    if error.errno in _FULL:
        return disk_full(path)
    return StoreError(f"{path}: cannot be written: {error.strerror or error}; check the path and its permissions")


def write_all(file: int, data: bytes) -> None:
    """Write all of it where the file stands."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def read_all(file: int, most: int) -> bytes:
    """So many bytes from where the file stands; fewer where it ends."""
    data = b""
    while len(data) < most and (more := os.read(file, most - len(data))):
        data += more
    return data


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable; nothing to do where folders cannot be opened (Windows)."""
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


if TYPE_CHECKING:
    _contracts: tuple[type[Sink], ...] = (JsonLinesFile, StandardOutput)
