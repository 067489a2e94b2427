"""Connections for one purpose: lent, given back, and made anew when they break."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import psycopg

from holdfast.clock import SystemClock, chance
from holdfast.errors import StoreError
from holdfast.stores.postgres.connection import Address, Line, connect
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.faults import is_broken, is_worth_again, translated

Answer = TypeVar("Answer")
_MACHINE: Final = SystemClock()
_TRIES: Final = 6
_PAUSE_S: Final = 0.005
_SHORTEST_S: Final = 0.05
_IDLE: Final = psycopg.pq.TransactionStatus.IDLE


class Backoff:
    """While the server cannot be reached, each further try of a process waits longer, by chance."""

    def __init__(self, longest_s: float = 2.0) -> None:
        self._longest_s = longest_s
        self._failures = 0

    def wait(self) -> None:
        """Before a try."""
        if self._failures:
            _MACHINE.sleep(chance() * min(self._longest_s, _SHORTEST_S * 2.0**self._failures))

    def failed(self) -> None:
        """The try has failed."""
        self._failures = min(self._failures + 1, 10)

    def worked(self) -> None:
        """The server is there."""
        self._failures = 0


class Pool:
    """Runs what is asked on a connection of its own.

    What failed because the connection broke is sent again once, on a new one: every verb is safe to send twice. What
    failed because others were in the way is sent again after a short random pause.
    """

    def __init__(
        self,
        address: Address,
        backoff: Backoff,
        offset_s: Callable[[], float],
        *,
        most_spare: int = 1,
        is_hot: bool = False,
        answer_s: float | None = None,
    ) -> None:
        self._address = address
        self._backoff = backoff
        self._offset_s = offset_s
        self._most_spare = most_spare
        self._is_hot = is_hot
        self._answer_s = answer_s
        self._mutex = threading.Lock()
        self._spare: list[Db] = []
        self._is_closed = False

    def use(self, run: Callable[[Db], Answer]) -> Answer:
        """Run this; psycopg's errors come as StoreErrors."""
        is_second = False
        for n in range(_TRIES):
            try:
                db = self.lend()
                try:
                    return run(db)
                finally:
                    self.give_back(db)
            except psycopg.Error as error:
                if is_broken(error):
                    self.forget()
                    if is_second:
                        raise translated(error, self._address.location) from error
                    is_second = True
                elif n == _TRIES - 1 or not is_worth_again(error):
                    raise translated(error, self._address.location) from error
                else:
                    _MACHINE.sleep(_PAUSE_S * (n + 1) * chance())
        raise AssertionError("a last try raises or returns")

    def lend(self) -> Db:
        """A connection for one user at a time; raises StoreError when there is none to be had."""
        with self._mutex:
            if self._is_closed:
                raise StoreError(f"{self._address.location}: the store is closed")
            if self._spare:
                return self._spare.pop()
        return Db(self.connect(), self._offset_s)

    def connect(self) -> Line:
        """A new connection, perhaps after a pause."""
        self._backoff.wait()
        try:
            line = connect(self._address, is_hot=self._is_hot, answer_s=self._answer_s)
        except psycopg.Error as error:
            self._backoff.failed()
            raise translated(error, self._address.location) from error
        self._backoff.worked()
        return line

    def give_back(self, db: Db) -> None:
        """It may be lent again, if it is whole and there are not too many."""
        line = db.line
        if not line.closed and line.info.transaction_status == _IDLE:
            with self._mutex:
                if not self._is_closed and len(self._spare) < self._most_spare:
                    self._spare.append(db)
                    return
        with suppress(psycopg.Error):
            line.close()

    def forget(self) -> None:
        """Close what is not in use: the server may have dropped all of them."""
        with self._mutex:
            spare, self._spare = self._spare, []
        for db in spare:
            with suppress(psycopg.Error):
                db.line.close()

    def close(self) -> None:
        """Close what is not in use now, and the rest when it is given back."""
        with self._mutex:
            self._is_closed = True
        self.forget()
