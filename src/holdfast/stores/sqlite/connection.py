"""Opens a database file, or says in one line why it cannot be opened."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import apsw

from holdfast.errors import StoreError
from holdfast.ports import Clock
from holdfast.stores.sqlite.damage import check_log, check_tables
from holdfast.stores.sqlite.faults import translated
from holdfast.stores.sqlite.mounts import network_disk
from holdfast.stores.sqlite.queries import migrations
from holdfast.stores.sqlite.rows import read_rows, read_value

APPLICATION_ID: Final = 0x486F_6C64
"""`Hold`: how the file says whose it is."""

LOG_BYTES: Final = 16 * 1024 * 1024
"""What the log is cut down to when it begins anew, after somebody has read for long and let it grow."""

_PATIENCE_S: Final = 10.0
_PATIENCE_MS: Final = 10_000


def open_database(path: str, synchronous: str, clock: Clock) -> None:
    """Make the file if there is none, and bring its tables to this version; whoever comes first does it."""
    _check_path(path)
    db = connect(path, synchronous, clock, may_create=True)
    try:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # what is found damaged is left as it is
        db.set_busy_timeout(_PATIENCE_MS)  # to read, too: others may be switching a new file to WAL
        if synchronous != "NORMAL":
            check_log(db, path)
        check_tables(db, path)
        _migrate(db, path)
    except apsw.Error as error:
        raise translated(error, path) from error
    finally:
        db.close()


def is_store(path: str) -> bool:
    """Whether the file is there and has Holdfast's tables; looks without changing anything."""
    if not os.path.isfile(path):
        return False
    try:
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return bool(db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_meta'").fetchall())
        finally:
            db.close()
    except apsw.Error as error:
        raise translated(error, path) from error


def connect(
    path: str, synchronous: str, clock: Clock, *, is_writer: bool = True, may_create: bool = False
) -> apsw.Connection:
    """A connection in WAL mode.

    Writers take the write lock by `Turn`, not by SQLite's busy time-out, which starves; readers never need that lock,
    and wait only for a process that repairs the log of one that died.
    """
    try:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if may_create else 0)
        db = apsw.Connection(path, flags=flags)
        db.set_busy_timeout(_PATIENCE_MS)
        _use_wal(db, path, clock)
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute("PRAGMA fullfsync = 1")  # macOS: a plain fsync there does not reach the disk
        db.execute("PRAGMA cell_size_check = 1")  # costs nothing, and tells a damaged page before it is followed
        db.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        if is_writer:
            db.set_busy_timeout(0)
        else:
            db.execute("PRAGMA query_only = 1")
    except apsw.Error as error:
        raise translated(error, path) from error
    return db


def _use_wal(db: apsw.Connection, path: str, clock: Clock) -> None:
    """Two processes that switch a new file to WAL at once may find it busy in spite of a time-out."""
    end = clock.monotonic() + _PATIENCE_S
    while True:
        try:
            mode = read_value(db, "PRAGMA journal_mode = WAL")
            break
        except apsw.BusyError:
            if clock.monotonic() > end:
                raise
            clock.sleep(0.005)
    if mode != "wal":
        raise StoreError(f"{path}: SQLite cannot use its write-ahead log here; put the file on a local disk")


def _check_path(path: str) -> None:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StoreError(f"{path}: the folder {folder} does not exist; create it, or give another path")
    if os.path.isdir(path):
        raise StoreError(f"{path}: this is a folder; give the path of a file, such as {os.path.join(path, 'jobs.db')}")
    if kind := network_disk(folder):
        raise StoreError(
            f"{path}: it is on a network file system ({kind}), where SQLite's log is not safe; put the file on a local "
            "disk, or use postgresql:// or redis://, which several machines can share"
        )
    if not os.path.exists(path) and not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(f"{path}: the folder {folder} cannot be written; change its permissions, or give another path")
    if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
        raise StoreError(f"{path}: the file cannot be read and written; change its permissions, or give another path")
    if os.path.exists(path) and not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(f"{path}: SQLite keeps its log beside the file, and the folder {folder} cannot be written")


def _migrate(db: apsw.Connection, path: str) -> None:
    scripts = migrations()
    if _version_of(db, path) == len(scripts):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        version = _version_of(db, path)  # somebody else may have been first
        for number, script in enumerate(scripts[version:], start=version + 1):
            db.execute(script)
            db.execute("INSERT OR REPLACE INTO holdfast_meta VALUES ('schema_version', ?)", (number,))
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("COMMIT")
    except BaseException:
        with suppress(apsw.SQLError):  # some errors have rolled it back already
            db.execute("ROLLBACK")
        raise


def _version_of(db: apsw.Connection, path: str) -> int:
    """The schema version of the file, 0 for one without our tables; refuses what is not ours or is newer."""
    owner = read_value(db, "PRAGMA application_id")
    if owner not in {0, APPLICATION_ID}:
        raise StoreError(f"{path}: the file belongs to another program (application id {owner}); give another path")
    tables = {
        name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'holdfast\\_%' ESCAPE '\\'")
    }
    if not tables:
        return 0
    found = []
    if "holdfast_meta" in tables:
        with suppress(apsw.SQLError):  # a table of that name with other columns
            found = read_rows(db, "SELECT value FROM holdfast_meta WHERE key = 'schema_version'")
    if not found or not isinstance(found[0][0], int):
        raise StoreError(f"{path}: it has a table {min(tables)} that Holdfast did not make; give another path")
    version, newest = found[0][0], len(migrations())
    if version > newest:
        raise StoreError(f"{path}: made by a newer Holdfast (schema {version}, not {newest}); upgrade Holdfast")
    return version
