"""A job's own writes, which commit together with its completion or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

import apsw

from holdfast.errors import LeaseLost, StoreError
from holdfast.ports import Clock, Count, Settlement
from holdfast.stores.sqlite.batch import Batch, Books
from holdfast.stores.sqlite.faults import is_broken, translated
from holdfast.stores.sqlite.settle import settle
from holdfast.stores.sqlite.turns import Turn
from holdfast.stores.sqlite.values import add_counts

_OURS: Final = "holdfast_"
_STEERING: Final = {
    apsw.SQLITE_TRANSACTION: "BEGIN, COMMIT and ROLLBACK are the block's own business",
    apsw.SQLITE_SAVEPOINT: "savepoints are not for a job's transaction",
    apsw.SQLITE_ATTACH: "no other database can be attached",
    apsw.SQLITE_DETACH: "no database can be detached",
    apsw.SQLITE_PRAGMA: "pragmas are not for a job's transaction",
}
_INTERRUPT_EVERY_S: Final = 0.05
_READING: Final = frozenset(
    {apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE, apsw.SQLITE_ANALYZE}
)


class JobTransaction:
    """Reads see what is committed, until the first write takes the write lock; then all is one transaction."""

    def __init__(
        self,
        settlement: Settlement,
        limit_s: float,
        counts: Sequence[Count],
        *,
        path: str,
        clock: Clock,
        borrow: Callable[[], tuple[Books, Turn]],
        give_back: Callable[[Books, Turn, bool], None],
        tell: Callable[[], None],
    ) -> None:
        self._settlement = settlement
        self._limit_s = limit_s
        self._counts = counts
        self._path = path
        self._clock = clock
        self._borrow = borrow
        self._give_back = give_back
        self._tell = tell
        self._mutex = threading.Lock()
        self._ending = threading.Lock()
        """Held for moments, never while a statement runs: under it the block and the watchdog settle who ends it."""
        self._left = threading.Event()
        self._has_begun = False
        self._is_over = False
        self._is_committing = False
        self._is_left = False
        self._is_own = False
        self._is_broken = False
        self._refusal = ""

    # ---------------------------------------------------------------- what the job calls

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Sequence[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self._mutex:
            rows: Sequence[tuple[Any, ...]] = self._run(
                lambda: self._db.execute(sql, parameters, can_cache=False).fetchall()
            )
            return rows

    def executemany(self, sql: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        """Run one statement for each row."""
        rows = list(rows)  # whoever makes them may be slow, and must not keep the watchdog out meanwhile
        with self._mutex:
            self._run(lambda: self._db.executemany(sql, rows, can_cache=False).fetchall())

    def __enter__(self) -> JobTransaction:
        self._books, self._turn = self._borrow()
        self._db = self._books.db
        self._db.set_authorizer(self._authorize)
        self._db.set_exec_trace(self._before_each)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._mutex:
            try:
                if error is None:
                    self._run(self._complete)
            finally:
                with self._ending:
                    self._is_left = True
                self._left.set()
                self._is_own = True
                with suppress(apsw.Error):
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    self._db.set_authorizer(None)
                    self._db.set_exec_trace(None)
                self._give_back(self._books, self._turn, self._is_broken)
        if error is None:
            self._tell()

    # ---------------------------------------------------------------- with the mutex held

    def _run(self, run: Callable[[], Any]) -> Any:
        self._check()
        self._check_whole()
        self._refusal = ""
        try:
            answer = run()
        except apsw.Error as error:
            self._is_broken = self._is_broken or is_broken(error)
            self._check()
            if self._refusal:
                raise StoreError(f"job.transaction(): {self._refusal}") from error
            if isinstance(error, apsw.SQLError | apsw.ConstraintError | apsw.BindingsError):
                raise StoreError(f"job.transaction(): {error}") from error
            raise translated(error, self._path) from error
        if not self._is_committing:  # else it is committed, however long that took
            self._check()
        return answer

    def _check(self) -> None:
        if self._is_over:
            raise StoreError(
                f"job.transaction(): held the write lock for longer than {self._limit_s:g} s, so it was rolled back; "
                "write at the end of the job, and less at a time"
            )
        if self._is_left:
            raise StoreError("job.transaction(): the block has been left; use it inside of its with statement")

    def _check_whole(self) -> None:
        """SQLite ends a transaction by itself after some errors: what came then would be committed at once, alone."""
        if self._is_broken or (self._has_begun and not self._db.in_transaction):
            raise StoreError("job.transaction(): a statement has failed and ended it, so nothing was written")

    def _begin(self) -> None:
        """Take the write lock, and see that it is given back in time."""
        was_own, self._is_own = self._is_own, True
        try:
            self._turn.begin(self._db)
        finally:
            self._is_own = was_own
        self._has_begun = True
        threading.Thread(target=self._watch, name="holdfast-transaction", daemon=True).start()

    def _complete(self) -> None:
        if not self._has_begun:
            self._begin()
        self._is_own = True
        batch = Batch(self._books)
        is_settled = settle(batch, [self._settlement], {})[0]
        # Settled before is not enough: then these writes were committed before, and must not be so again.
        if not is_settled or not batch.is_claimed(self._settlement.token):
            raise LeaseLost(f"job {self._settlement.id} belongs to somebody else by now; its writes were rolled back")
        if self._counts:
            add_counts(batch, self._counts)
        batch.flush()
        with self._ending:
            self._check()
            self._is_committing = True
        self._turn.end(self._db)

    def _before_each(self, _cursor: apsw.Cursor, _sql: str, _bindings: object) -> bool:
        """Called with each statement before it runs: a first write begins the transaction."""
        if not self._is_own and not self._has_begun and not _cursor.is_readonly:
            self._begin()
        return True

    def _authorize(self, action: int, one: str | None, two: str | None, where: str | None, _by: str | None) -> int:
        if self._is_own or action in _READING:
            return apsw.SQLITE_OK
        if where == "temp":  # it would outlive the job, and take the next one's writes
            self._refusal = "temporary tables, views and triggers are not for a job's transaction"
            return apsw.SQLITE_DENY
        if action in _STEERING:
            self._refusal = _STEERING[action]
            return apsw.SQLITE_DENY
        ours = next((name for name in (one, two) if name is not None and name.lower().startswith(_OURS)), None)
        if ours is not None:
            self._refusal = f"{ours} is Holdfast's own table and cannot be written"
            return apsw.SQLITE_DENY
        return apsw.SQLITE_OK

    # ---------------------------------------------------------------- the watchdog's thread

    def _watch(self) -> None:
        if self._clock.wait(self._left, self._limit_s):
            return
        while True:
            with self._ending:
                if self._is_committing or self._is_left:  # the connection may be another's by now
                    return
                self._is_over = True
                self._db.interrupt()
            if self._mutex.acquire(timeout=_INTERRUPT_EVERY_S):  # else a statement began just after the interrupt
                break
        try:
            if not self._is_left:
                self._is_own = True
                with suppress(apsw.Error):
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                self._is_own = False
        finally:
            self._mutex.release()
