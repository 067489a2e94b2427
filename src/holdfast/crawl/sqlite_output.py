"""Items in a SQLite database, in the transaction that says which pages they are of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import apsw

from holdfast.crawl.ledger import refuse_other_crawl
from holdfast.crawl.output_buffer import Entry, Sink
from holdfast.crawl.urls import item_id
from holdfast.errors import ConfigError, StoreError
from holdfast.stores.sqlite.faults import is_broken, translated

_PATIENCE_MS: Final = 5_000
"""For so long others may read or write the database before a sync fails, to be tried again."""
_COLUMNS: Final = ("id", "page", "n", "item")
_TABLES: Final = """
CREATE TABLE items (id TEXT PRIMARY KEY, page TEXT NOT NULL, n INTEGER NOT NULL, item TEXT NOT NULL);
CREATE TABLE holdfast_pages (id BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE holdfast_output (crawl TEXT NOT NULL, crawl_id TEXT NOT NULL, pages INTEGER NOT NULL);
"""


class SqliteItems:
    """The table `items` (id, page, n, item): the n-th item of the page with this URL, as JSON. Other tables stay.

    The id is the one that a user's own sink is given with the item.

    Several processes may write one database: the transaction decides who was first with a page.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0
        self._of = ("", "")
        self._db: apsw.Connection | None = None

    def open(self, crawl: str, crawl_id: str) -> None:
        """Take it for this crawl."""
        self._of = (crawl, crawl_id)
        try:
            self._opened()
        except apsw.NotADBError as error:
            raise ConfigError(f"out={self.path!r}: is not a SQLite database; give another path") from error
        except apsw.Error as error:
            raise translated(error, self.path) from error

    def known(self, keys: Collection[bytes]) -> set[bytes]:
        """Those of these pages that are written durably."""
        try:
            with self._opened() as db:  # one look, and one lock, for all of them
                known = {key for key in keys if db.execute("SELECT 1 FROM holdfast_pages WHERE id = ?", (key,)).get}
        except apsw.Error as error:
            raise self._failed(error) from error
        return known

    def write(self, entries: Sequence[Entry]) -> None:
        """Write these, except for those that are known, durably and all or none."""
        try:
            db = self._opened()
            db.execute("BEGIN IMMEDIATE")
            new = [entry for entry in entries if self._is_new(db, entry)]
            db.executemany("INSERT INTO items (id, page, n, item) VALUES (?, ?, ?, ?)", _rows(new))
            pages = db.execute("UPDATE holdfast_output SET pages = pages + ? RETURNING pages", (len(new),)).get
            db.execute("COMMIT")
        except apsw.Error as error:
            raise self._failed(error) from error
        except BaseException as error:
            self._drop(error)
            raise
        self.count = pages

    def close(self) -> None:
        """Give it back."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(apsw.Error):  # what was promised is durable already
                db.close()

    def _opened(self) -> apsw.Connection:
        """The database with its tables, anew after an error that leaves nothing else, or where it was moved away."""
        if self._db is None:
            db = apsw.Connection(self.path)
            try:
                db.set_busy_timeout(_PATIENCE_MS)
                db.pragma("synchronous", "FULL")
                self._prepare(db)
            except BaseException:
                db.close(True)
                raise
            self._db = db
        return self._db

    def _prepare(self, db: apsw.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        found = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")}
        if "holdfast_jobs" in found:
            raise ConfigError(f"out={self.path!r}: is a store of Holdfast's, where others write too; give another path")
        if "holdfast_output" not in found:
            if "items" in found:
                raise ConfigError(f"out={self.path!r}: has a table `items` that no crawl has made; give another path")
            db.execute(_TABLES)
            db.execute("INSERT INTO holdfast_output VALUES (?, ?, 0)", self._of)
        elif tuple(row[1] for row in db.execute("PRAGMA table_info(items)")) != _COLUMNS:
            raise ConfigError(
                f"out={self.path!r}: its table `items` must have the columns {', '.join(_COLUMNS)}; give another path"
            )
        crawl, crawl_id, pages = db.execute("SELECT crawl, crawl_id, pages FROM holdfast_output").get
        refuse_other_crawl(self.path, (crawl, crawl_id), *self._of)
        db.execute("COMMIT")
        self.count = pages

    @staticmethod
    def _is_new(db: apsw.Connection, entry: Entry) -> bool:
        db.execute("INSERT OR IGNORE INTO holdfast_pages (id) VALUES (?)", (entry.key,))
        return db.changes() == 1

    def _failed(self, error: apsw.Error) -> StoreError:
        self._drop(error)
        return translated(error, self.path)

    def _drop(self, error: BaseException) -> None:
        """Nothing of the transaction stays, and nothing of a connection that cannot be trusted any more."""
        if self._db is not None:
            with suppress(apsw.Error):
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            if is_broken(error) or isinstance(error, apsw.ReadOnlyError):  # the latter: it is not where it was
                self._db.close(True)
                self._db = None


def _rows(entries: Sequence[Entry]) -> list[tuple[str, str, int, str]]:
    return [
        (item_id(entry.id, n), entry.url, n, item.decode()) for entry in entries for n, item in enumerate(entry.items)
    ]


if TYPE_CHECKING:
    _contract: type[Sink] = SqliteItems
