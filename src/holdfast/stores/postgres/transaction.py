"""A job's own writes, which commit together with its completion or not at all."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

import psycopg

from holdfast.errors import LeaseLost, StoreError
from holdfast.ports import Clock, Count, Settlement
from holdfast.stores.postgres.db import Cursor, Db
from holdfast.stores.postgres.faults import in_a_line, is_broken, translated
from holdfast.stores.postgres.pool import Pool
from holdfast.stores.postgres.settle import settle_now
from holdfast.stores.postgres.values import add_counts

_STEERING: Final = {
    **dict.fromkeys(
        ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"),
        "BEGIN, COMMIT and ROLLBACK are the block's own business",
    ),
    **dict.fromkeys(("SAVEPOINT", "RELEASE"), "savepoints are not for a job's transaction"),
    **dict.fromkeys(("PREPARE", "DEALLOCATE"), "prepared transactions and statements are not for a job's transaction"),
    **dict.fromkeys(("SET", "RESET", "DISCARD"), "settings would outlive the job; SET LOCAL is fine"),
    **dict.fromkeys(("LISTEN", "UNLISTEN"), "listening is not for a job's transaction"),
}
_FIRST_WORDS: Final = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*([A-Za-z]+)(?:\s+([A-Za-z]+))?", re.DOTALL)
_OPEN: Final = psycopg.pq.TransactionStatus.INTRANS


class JobTransaction:
    """One transaction from the first statement on, on a connection of its own; values stand as %s or %(name)s."""

    def __init__(
        self,
        settlement: Settlement,
        limit_s: float,
        counts: Sequence[Count],
        *,
        location: str,
        clock: Clock,
        pool: Pool,
        window_s: float,
        tell: Callable[[], None],
    ) -> None:
        self._settlement = settlement
        self._limit_s = limit_s
        self._counts = counts
        self._location = location
        self._clock = clock
        self._pool = pool
        self._window_s = window_s
        self._tell = tell
        self._mutex = threading.Lock()
        self._ending = threading.Lock()
        """Held for moments, never while a statement runs: under it the block and the watchdog settle who ends it."""
        self._left = threading.Event()
        self._has_begun = False
        self._is_over = False
        self._is_committing = False
        self._is_left = False

    # ---------------------------------------------------------------- what the job calls

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Sequence[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        _refuse_steering(sql)
        with self._mutex:
            rows: Sequence[tuple[Any, ...]] = self._run(lambda: self._execute(sql, parameters))
            return rows

    def executemany(self, sql: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        """Run one statement for each row."""
        _refuse_steering(sql)
        rows = list(rows)  # whoever makes them may be slow, and must not keep the watchdog out meanwhile
        with self._mutex:
            self._run(lambda: self._execute_many(sql, rows))

    def __enter__(self) -> JobTransaction:
        self._db: Db = self._pool.lend()
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
                self._roll_back()
                self._pool.give_back(self._db)
        if error is None:
            self._tell()

    # ---------------------------------------------------------------- with the mutex held

    def _run(self, run: Callable[[], Any]) -> Any:
        self._check()
        try:
            if not self._has_begun:
                self._begin()
            answer = run()
        except psycopg.Error as error:
            self._check()
            if is_broken(error) or self._db.line.closed:
                raise translated(error, self._location) from error
            raise StoreError(f"job.transaction(): {in_a_line(error)}") from error
        if not self._is_committing:  # else it is committed, however long that took
            self._check()
        return answer

    def _check(self) -> None:
        if self._is_over:
            raise StoreError(
                f"job.transaction(): was open for longer than {self._limit_s:g} s, so it was rolled back; "
                "write at the end of the job, and less at a time"
            )
        if self._is_left:
            raise StoreError("job.transaction(): the block has been left; use it inside of its with statement")

    def _begin(self) -> None:
        """The server ends it too, in case that this process stops: others may wait for what it has locked."""
        line = self._db.line
        try:
            self._start(line)
        except psycopg.Error as error:  # the connection may have been idle for long, and broken since
            if not is_broken(error):
                raise
            self._pool.forget()
            self._db = self._pool.lend()
            self._start(self._db.line)
        self._has_begun = True
        threading.Thread(target=self._watch, name="holdfast-transaction", daemon=True).start()

    def _start(self, line: psycopg.Connection[Any]) -> None:
        milliseconds = max(1, round(self._limit_s * 1000))
        line.execute(b"BEGIN")
        line.execute(f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds}".encode())
        line.execute(f"SET LOCAL statement_timeout = {milliseconds}".encode())

    def _execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
        cursor = self._db.line.cursor()
        with self._db.line.pipeline():  # which takes one statement at a time, and no more
            cursor.execute(sql.encode(), parameters or None, prepare=False)
        return _rows_of(cursor)

    def _execute_many(self, sql: str, rows: list[Sequence[Any] | Mapping[str, Any]]) -> None:
        with self._db.line.pipeline():  # which sends them together, as far as they fit
            self._db.line.cursor().executemany(sql.encode(), rows)

    def _complete(self) -> None:
        if self._db.line.info.transaction_status != _OPEN:
            raise StoreError("job.transaction(): a statement has failed, so nothing was written")
        # Settled before is not enough: then these writes were committed before, and must not be so again.
        if not settle_now(self._db, self._settlement, self._window_s):
            raise LeaseLost(f"job {self._settlement.id} belongs to somebody else by now; its writes were rolled back")
        if self._counts:
            add_counts(self._db, self._counts)
        with self._ending:
            self._check()
            self._is_committing = True
        self._db.line.execute(b"COMMIT")

    def _roll_back(self) -> None:
        line = self._db.line
        with suppress(psycopg.Error):
            if not line.closed and line.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                line.execute(b"ROLLBACK")
            if not line.closed and self._has_begun:
                line.execute(b"DISCARD TEMP")  # temporary tables would outlive the job, and take the next one's writes

    # ---------------------------------------------------------------- the watchdog's thread

    def _watch(self) -> None:
        if self._clock.wait(self._left, self._limit_s):
            return
        with self._ending:
            if self._is_committing or self._is_left:  # the connection may be another's by now
                return
            self._is_over = True
            with suppress(psycopg.Error):
                self._db.line.cancel_safe(timeout=5.0)
        with self._mutex:
            if not self._is_left:
                self._roll_back()


def _rows_of(cursor: Cursor) -> list[tuple[Any, ...]]:
    return cursor.fetchall() if cursor.description else []


def _refuse_steering(sql: str) -> None:
    found = _FIRST_WORDS.match(sql)
    first, second = (found[1].upper(), (found[2] or "").upper()) if found else ("", "")
    if first in _STEERING and (first, second) not in {("SET", "LOCAL"), ("SET", "CONSTRAINTS")}:
        raise StoreError(f"job.transaction(): {_STEERING[first]}")
