"""Looks whether a database and its log are whole before anybody relies on them.

SQLite keeps checksums of the log alone, and reads a log up to the first frame whose checksum is wrong: it takes that
for a write which was cut short. Where commits follow, it was not, and what they wrote would be gone without a word.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

import apsw
from msgspec import Struct

from holdfast.errors import StoreError
from holdfast.stores.sqlite.queries import migrations
from holdfast.stores.sqlite.rows import read_rows, read_value

MOST_BYTES: Final = 4 * 1024 * 1024
"""A larger database is not read as a whole when it is opened: this much takes some 20 ms."""

_PATIENCE_MS: Final = 10_000
_HEADER: Final = 32
_FRAME: Final = 24
_MAGIC: Final = 0x377F_0682
"""Of a log whose checksums are of little-endian words; with the last bit set, of big-endian ones."""
_TABLES: Final = "SELECT name FROM sqlite_schema WHERE type = 'table'"
_MADE: Final = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)


class _Frame(Struct, frozen=True):
    """The head of one page in the log."""

    number: int
    """From 1 on."""
    start: bytes
    """What its checksum begins with."""
    is_commit: bool
    salts: bytes
    """The same for all that was written since the log began anew."""
    checksum: tuple[int, int]
    """Of everything in the log up to here."""


def check_tables(db: apsw.Connection, path: str) -> None:
    """Raise StoreError where SQLite finds Holdfast's own tables damaged, in a database that is small enough to look.

    Other tables are not ours to judge. What is wrong inside of a value nobody can see.
    """
    size = read_value(db, "PRAGMA page_count") * read_value(db, "PRAGMA page_size")
    if size > MOST_BYTES:
        return
    there = {name for (name,) in read_rows(db, _TABLES)}
    for table in _MADE.findall("\n".join(migrations())):
        if table not in there:
            continue
        found: str = read_rows(db, f'PRAGMA integrity_check("{table}")')[0][0]
        if found != "ok":
            detail = " ".join(found.split())[:200]
            raise StoreError(f"{path}: the database is damaged ({detail}); restore a copy, or try sqlite3's .recover")


def check_log(db: apsw.Connection, path: str) -> None:
    """Raise StoreError where the log has commits behind what SQLite can read of it.

    With a sync for each commit, as FULL has it, the last commit alone can be cut short by a crash. A connection that
    is refused must not move the log into the database when it is closed.
    """
    if not _has_unread_commits(db, path):
        return
    with _nobody_writes(path):  # others may have been writing, and the log may have begun anew under our eyes
        is_damaged = _has_unread_commits(db, path)
        read = _frames_read(db)
    if is_damaged:
        raise StoreError(
            f"{path}: its log {os.path.basename(path)}-wal is damaged behind frame {read}, and commits after it cannot "
            "be read; keep all three files, and restore a copy, or accept that they are lost: open and close it once "
            "with synchronous=normal"
        )


@contextmanager
def _nobody_writes(path: str) -> Iterator[None]:
    """The write lock, on a connection of its own: one that holds it is not told of its log."""
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.set_busy_timeout(_PATIENCE_MS)
        db.execute("BEGIN IMMEDIATE")
        yield
    finally:
        db.close(True)


def _frames_read(db: apsw.Connection) -> int:
    """How many frames of the log SQLite takes for good."""
    return max(0, db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0])


def _has_unread_commits(db: apsw.Connection, path: str) -> bool:
    """Whether one commit follows another behind what SQLite reads: the first of them was synced, so it was whole."""
    try:
        with open(f"{path}-wal", "rb") as log:
            header = log.read(_HEADER)
            if len(header) < _HEADER:
                return False
            read, page_size = _frames_read(db), read_value(db, "PRAGMA page_size")
            pairs = list(_followed_commits(log, header, read, page_size))
            if not pairs or pairs[-1] <= _frames_read(db):
                return False
            return read > 0 or not _is_first_commit_whole(log, header, page_size)
    except FileNotFoundError:
        return False


def _is_first_commit_whole(log: BinaryIO, header: bytes, page_size: int) -> bool:
    """Whether SQLite would read something of this log if it had to begin with the file alone.

    If it reads nothing nevertheless, that is not for any damage: all of the log was moved into the database, and a
    writer that was to begin it anew told the others so, but did not come to write the new header. The index has
    new salts then, but no process may open that file beside SQLite: closing it would drop SQLite's own locks.
    """
    if not _is_header_valid(header):
        return False
    words = struct.unpack(">8I", header)
    checksum = words[6:]
    for frame in _frames(log, 0, page_size):
        text = _text_of(log, frame, page_size)
        if frame.salts != header[16:24] or _sum(text, checksum, _order(words[0])) != frame.checksum:
            return False
        if frame.is_commit:
            return True
        checksum = frame.checksum
    return False


def _followed_commits(log: BinaryIO, header: bytes, read: int, page_size: int) -> Iterator[int]:
    """The numbers of commits behind so many frames after which the log went on."""
    is_valid = _is_header_valid(header)
    orders = (_order(int.from_bytes(header[:4])),) if is_valid else ("<", ">")
    last: _Frame | None = None
    for frame in _frames(log, read, page_size):
        if is_valid and frame.salts != header[16:24]:
            last = None  # of an earlier round, which was moved into the database
            continue
        if last is not None and last.is_commit and last.salts == frame.salts:
            text = _text_of(log, frame, page_size)
            if any(_sum(text, last.checksum, order) == frame.checksum for order in orders):
                yield last.number
        last = frame


def _is_header_valid(header: bytes) -> bool:
    words = struct.unpack(">8I", header)
    return words[0] in {_MAGIC, _MAGIC + 1} and _sum(header[:24], (0, 0), _order(words[0])) == words[6:]


def _text_of(log: BinaryIO, frame: _Frame, page_size: int) -> bytes:
    """What its checksum is of, besides all before it."""
    log.seek(_HEADER + (frame.number - 1) * (_FRAME + page_size) + _FRAME)
    return frame.start + log.read(page_size)


def _frames(log: BinaryIO, read: int, page_size: int) -> Iterator[_Frame]:
    number = read
    while True:
        log.seek(_HEADER + number * (_FRAME + page_size))
        head = log.read(_FRAME)
        if len(head) < _FRAME:
            return
        number += 1
        _, pages, _, _, first, second = struct.unpack(">6I", head)
        yield _Frame(number, head[:8], pages != 0, head[8:16], (first, second))


def _order(magic: int) -> str:
    return ">" if magic & 1 else "<"


def _sum(text: bytes, seed: tuple[int, int], order: str) -> tuple[int, int]:
    """SQLite's checksum of a log."""
    first, second = seed
    if len(text) % 8:
        return -1, -1  # the file ends here
    for one, other in struct.iter_unpack(f"{order}2I", text):
        first = (first + one + second) & 0xFFFF_FFFF
        second = (second + other + first) & 0xFFFF_FFFF
    return first, second
