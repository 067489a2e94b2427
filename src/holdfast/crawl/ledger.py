"""Which pages of a crawl are in a file of items, and how far that file is good; a small SQLite database beside it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import apsw
from msgspec import Struct

from holdfast.errors import ConfigError, HoldfastError, StoreError
from holdfast.stores.sqlite.faults import is_broken, translated

_APPLICATION: Final = 0x48464C47
"""Says of a SQLite file that it is a ledger."""
_VERSION: Final = 1
_TABLES: Final = f"""
CREATE TABLE ledger (crawl TEXT NOT NULL, crawl_id TEXT NOT NULL, size INTEGER NOT NULL, tail BLOB NOT NULL);
CREATE TABLE pages (id BLOB PRIMARY KEY) WITHOUT ROWID;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""


class Mark(Struct, frozen=True):
    """How far a file is good."""

    size: int = 0
    """So many bytes are durable, and of the pages in the ledger."""
    tail: bytes = b""
    """The last of these bytes, by which the file is known again, wherever it was moved or copied to."""


class Ledger:
    """The pages and the mark change together. Whoever has it open keeps all others out, until it is closed or dead.

    A commit that a power cut takes back does no harm: the file is then longer than the mark, and is cut back to it.
    """

    def __init__(self, path: str, of: str) -> None:
        """`path`: "" is one that is gone when it is closed. `of`: the output it is about, for messages."""
        self.path = path
        self._of = of
        self._db: apsw.Connection | None = None
        self._inode: os.stat_result | None = None
        self.mark = Mark()
        self.count = 0

    @property
    def is_in_place(self) -> bool:
        """Whether it is open, and still what its path leads to: what is written into one that was removed is lost."""
        if self._db is None:
            return False
        try:
            return self._inode is None or os.path.samestat(self._inode, os.stat(self.path))
        except OSError:
            return False

    def open(self) -> bool:
        """Lock it, or raise ConfigError; whether there is anything in it. Nothing is written yet."""
        try:
            self._db = self._connect()
            return bool(self._db.execute("SELECT count(*) FROM sqlite_schema").get)
        except apsw.Error as error:
            raise self._refusal(error) from error

    def take(self, crawl: str, crawl_id: str, *, anew: bool) -> None:
        """Go on with what is in it, which must be this crawl's, or begin anew with nothing written."""
        db = self._opened()
        with self._change(db):
            is_empty = db.execute("SELECT count(*) FROM sqlite_schema").get == 0
            if is_empty:
                db.execute(_TABLES)
            elif (db.pragma("application_id"), db.pragma("user_version")) != (_APPLICATION, _VERSION):
                raise ConfigError(f"out={self._of!r}: {self.path} is no ledger of this version; move it away")
            if is_empty or anew:
                db.execute("DELETE FROM pages; DELETE FROM ledger")
                db.execute("INSERT INTO ledger VALUES (?, ?, 0, x'')", (crawl, crawl_id))
            refuse_other_crawl(self._of, db.execute("SELECT crawl, crawl_id FROM ledger").get, crawl, crawl_id)
        self.refresh()

    def known(self, keys: Collection[bytes]) -> set[bytes]:
        """Those of these that are in it."""
        db = self._opened()
        try:
            return {key for key in keys if db.execute("SELECT 1 FROM pages WHERE id = ?", (key,)).get}
        except apsw.Error as error:
            raise self._failed(error) from error

    def add(self, keys: Sequence[bytes], mark: Mark) -> None:
        """Pages that are written, and how far the file is good with them; durable on return."""
        db = self._opened()
        with self._change(db):
            db.executemany("INSERT INTO pages (id) VALUES (?)", ((key,) for key in keys))
            db.execute("UPDATE ledger SET size = ?, tail = ?", (mark.size, mark.tail))
        self.mark = mark
        self.count += len(keys)

    def clear(self) -> None:
        """Nothing is written."""
        db = self._opened()
        with self._change(db):
            db.execute("DELETE FROM pages; UPDATE ledger SET size = 0, tail = x''")
        self.mark, self.count = Mark(), 0

    def refresh(self) -> None:
        """Read what is in it: after an error nobody knows whether the change took effect."""
        try:
            db = self._opened()
            self.mark = Mark(*db.execute("SELECT size, tail FROM ledger").get)
            self.count = db.execute("SELECT count(*) FROM pages").get
        except apsw.Error as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Give it back."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(apsw.Error):  # what was promised is durable already
                db.close()

    def _connect(self) -> apsw.Connection:
        db = apsw.Connection(self.path)
        try:
            # The lock is taken with the first transaction and kept. The journal stays in place meanwhile, which saves
            # a change of the folder with each commit, and is gone when it is closed.
            db.pragma("locking_mode", "EXCLUSIVE")
            db.pragma("journal_mode", "DELETE")
            db.pragma("synchronous", "FULL")
            db.execute("BEGIN EXCLUSIVE; COMMIT")
            self._inode = os.stat(self.path) if self.path else None
        except BaseException:
            db.close(True)
            raise
        return db

    @contextmanager
    def _change(self, db: apsw.Connection) -> Iterator[None]:
        try:
            db.execute("BEGIN EXCLUSIVE")
            yield
            db.execute("COMMIT")
        except BaseException as error:
            with suppress(apsw.Error):
                if db.in_transaction:
                    db.execute("ROLLBACK")
            if isinstance(error, apsw.Error):
                raise self._failed(error) from error
            raise

    def _opened(self) -> apsw.Connection:
        if self._db is None:
            try:
                self._db = self._connect()
            except apsw.Error as error:
                raise translated(error, self.path) from error
        return self._db

    def _failed(self, error: apsw.Error) -> StoreError:
        if is_broken(error) and self._db is not None:
            with suppress(apsw.Error):
                self._db.close(True)
            self._db = None
        return translated(error, self.path)

    def _refusal(self, error: apsw.Error) -> HoldfastError:
        match error:
            case apsw.BusyError():
                return ConfigError(f"out={self._of!r}: another process writes it; stop that one, or give another path")
            case apsw.NotADBError():
                return ConfigError(f"out={self._of!r}: {self.path} is no ledger; move it away")
            case _:
                return translated(error, self.path)


def refuse_other_crawl(path: str, found: tuple[str, str], crawl: str, crawl_id: str) -> None:
    """ConfigError where the output that was found is not this crawl's."""
    its_name, its_id = found
    if its_name != crawl:
        raise ConfigError(f"out={path!r}: has the items of crawl {its_name!r}; give another path for {crawl!r}")
    if crawl_id and its_id and its_id != crawl_id:
        raise ConfigError(
            f"out={path!r}: has the items of an earlier crawl {crawl!r}, which was removed; move the file away"
        )
