"""A connection with the store's clock: one statement, or several in one round trip and one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from holdfast.stores.postgres.connection import Line

Cursor = psycopg.Cursor[tuple[Any, ...]]
_BUSY: Final = psycopg.pq.TransactionStatus.ACTIVE


class Db:
    """Statements with named values; `offset_s`, by which tests move the store's clock, is in every one."""

    __slots__ = ("line", "_offset_s")

    def __init__(self, line: Line, offset_s: Callable[[], float]) -> None:
        self.line = line
        self._offset_s = offset_s

    def run(self, sql: str, **values: Any) -> Cursor:
        """One statement; inside of `together` its rows come when the block is left."""
        values["offset_s"] = self._offset_s()
        cursor = self.line.cursor(binary=True)
        return cursor.execute(sql.encode(), values)

    def rows(self, sql: str, **values: Any) -> list[Any]:
        """All rows of one statement."""
        return self.run(sql, **values).fetchall()

    def row(self, sql: str, **values: Any) -> Any:
        """The only row of one statement."""
        return self.run(sql, **values).fetchall()[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """All statements of the block in one round trip, committed when it is left, or none of them."""
        with self.line.pipeline():
            yield

    @contextmanager
    def transaction(self, lock_wait_s: float | None = None) -> Iterator[None]:
        """A transaction of several round trips; it may wait less long for locks than the connection does."""
        if lock_wait_s is None:
            self.line.execute(b"BEGIN")
        else:
            milliseconds = max(1, round(1000 * min(lock_wait_s, self.line.answer_s / 2)))
            self.line.execute(f"BEGIN; SET LOCAL lock_timeout = {milliseconds}".encode(), prepare=False)
        try:
            yield
        except BaseException:
            if not self.line.closed and self.line.info.transaction_status != _BUSY:
                self.line.execute(b"ROLLBACK")
            raise
        self.line.execute(b"COMMIT")
