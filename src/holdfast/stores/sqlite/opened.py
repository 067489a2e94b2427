"""The connections of one process to a database, each with its own purpose."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

import apsw

from holdfast.errors import StoreError
from holdfast.ports import Beat, Clock, Count, Settlement, WorkerRecord
from holdfast.stores.lanes import Lanes
from holdfast.stores.sqlite.batch import Books
from holdfast.stores.sqlite.clock import StoreClock, agree_on_clock, save_instant
from holdfast.stores.sqlite.connection import connect, open_database
from holdfast.stores.sqlite.faults import DiskFull, is_broken, replaced, translated
from holdfast.stores.sqlite.files import Identity, files_of
from holdfast.stores.sqlite.forks import note_closed, note_opened
from holdfast.stores.sqlite.locks import WorkerLocks
from holdfast.stores.sqlite.news import News
from holdfast.stores.sqlite.reserve import Reserve
from holdfast.stores.sqlite.transaction import JobTransaction
from holdfast.stores.sqlite.turns import Turn
from holdfast.stores.sqlite.workers import alive_workers, beat
from holdfast.stores.sqlite.writer import Writer

Answer = TypeVar("Answer")
_MOST_SPARE: Final = 8


class Reader:
    """Reads on a thread and a connection of its own: in WAL mode no reader ever blocks the writer."""

    def __init__(self, path: str, open_connection: Callable[[], apsw.Connection]) -> None:
        self._path = path
        self._connect = open_connection
        self._db: apsw.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-reader")

    async def read(self, run: Callable[[apsw.Connection], Answer]) -> Answer:
        """Run this in one short read transaction: one consistent look."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, run)

    def _read(self, run: Callable[[apsw.Connection], Answer]) -> Answer:
        try:
            if self._db is None:
                self._db = self._connect()
            db = self._db
            db.execute("BEGIN")
            try:
                return run(db)
            finally:
                db.execute("COMMIT")
        except apsw.Error as error:
            if is_broken(error) and self._db is not None:
                self._db.close(True)
                self._db = None
            raise translated(error, self._path) from error

    def close(self) -> None:
        """Stop the thread and close the connection."""
        self._thread.shutdown()
        if self._db is not None:
            self._db.close()
            self._db = None


class Heartbeats:
    """Renews leases on a thread and a connection of its own, ahead of all other writes."""

    def __init__(
        self,
        path: str,
        open_connection: Callable[[], apsw.Connection],
        turn: Turn,
        store_clock: StoreClock,
        locks: WorkerLocks,
        reserve: Reserve,
        tell: Callable[[], None],
    ) -> None:
        self._path = path
        self._connect = open_connection
        self._turn = turn
        self._store_clock = store_clock
        self._locks = locks
        self._reserve = reserve
        self._tell = tell
        self._db: apsw.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-heartbeat")

    async def beat(self, worker: WorkerRecord) -> Beat:
        """Register a worker, renew its lease, or take its leave."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._beat, worker)

    def _beat(self, worker: WorkerRecord) -> Beat:
        is_leaving = worker.lease_s <= 0
        if not is_leaving:
            self._locks.take(worker.id)  # before the row is there: who sees the row must find it locked
        answer = self._write_in_any_case(worker)
        if not answer.is_alive:
            self._locks.drop(worker.id)
            self._tell()  # there may be orphans
        return answer

    def _write_in_any_case(self, worker: WorkerRecord) -> Beat:
        try:
            return self._write(worker)
        except DiskFull as error:
            full = error
        for _ in self._reserve.make_room(self._db):
            with suppress(DiskFull):
                return self._write(worker)
        raise full

    def _write(self, worker: WorkerRecord) -> Beat:
        try:
            if self._db is None:
                self._db = self._connect()
            self._turn.begin(self._db)
            answer = beat(self._db, worker, self._store_clock.now())
            self._turn.end(self._db)
        except BaseException as error:
            self._roll_back(error)
            if isinstance(error, apsw.Error):
                raise translated(error, self._path) from error
            raise
        return answer

    def _roll_back(self, error: BaseException) -> None:
        db = self._db
        if db is not None:
            with suppress(apsw.Error):
                if not is_broken(error) and db.in_transaction:
                    db.execute("ROLLBACK")
                    return
            if is_broken(error):
                db.close(True)
                self._db = None

    @staticmethod
    def alive(db: apsw.Connection) -> list[str]:
        """Every worker that was not given up."""
        return alive_workers(db)

    def close(self) -> None:
        """Stop the thread and close the connection."""
        self._thread.shutdown()
        if self._db is not None:
            self._db.close()
            self._db = None
        self._turn.close()


class Opened:
    """A database that this process has open.

    One connection is never used and stays open to the end: for as long as it is there, SQLite does not delete the log,
    and no other file can get the numbers of these two. So whatever else is found under their names was put there.
    """

    def __init__(self, path: str, synchronous: str, key_window_s: float, clock: Clock) -> None:
        self.pid = os.getpid()
        self.path = path
        self.database: Identity | None = None
        note_opened(self)
        self._synchronous = synchronous
        self._key_window_s = key_window_s
        self._clock = clock
        open_database(path, synchronous, clock)
        self._anchor = connect(path, synchronous, clock)
        try:
            files = files_of(path)
            if files is None:
                raise replaced(path)
            self._files, self.database = files, files.database
            self.store_clock = self._agree_on_clock()
            self._reserve = Reserve(path, clock)
            self._reserve.make()
        except BaseException:
            self._anchor.close(True)
            raise
        self.locks = WorkerLocks(path)
        self.news = News(path, self._reading, clock)
        self.writer = Writer(path, self._watched_books, self._new_turn(), self._reserve, self.news.tell)
        self.reader = Reader(path, self._reading)
        self.heartbeats = Heartbeats(
            path,
            self._writing,
            self._new_turn(is_urgent=True),
            self.store_clock,
            self.locks,
            self._reserve,
            self.news.tell,
        )
        self._mutex = threading.Lock()
        self._spare: list[tuple[Books, Turn]] = []

    def transaction(self, settlement: Settlement, limit_s: float, counts: Sequence[Count]) -> JobTransaction:
        """A job's own transaction, on a connection of its own."""
        return JobTransaction(
            settlement,
            limit_s,
            counts,
            path=self.path,
            clock=self._clock,
            borrow=self._lend,
            give_back=self._take_back,
            tell=self.news.tell,
        )

    def close(self) -> None:
        """Close every connection; the last one out moves the log into the file."""
        self.news.close()
        self.heartbeats.close()
        self.reader.close()
        with suppress(StoreError):  # all that was promised is durable already
            self.writer.close(lambda batch: save_instant(batch.db, batch.tick()))
        with self._mutex:
            while self._spare:
                books, turn = self._spare.pop()
                books.db.close()
                turn.close()
        self.locks.close()
        with suppress(apsw.Error):
            self._anchor.close(True)
        note_closed(self)

    def _lend(self) -> tuple[Books, Turn]:
        with self._mutex:
            if self._spare:
                return self._spare.pop()
        return self._books(), self._new_turn()

    def _take_back(self, books: Books, turn: Turn, is_broken_now: bool) -> None:
        with self._mutex:
            if not is_broken_now and len(self._spare) < _MOST_SPARE:
                self._spare.append((books, turn))
                return
        with suppress(apsw.Error):
            books.db.close(True)
        turn.close()

    def _watched_books(self) -> Books:
        books = self._books()
        self._reserve.watch(books.db)
        return books

    def _books(self) -> Books:
        return Books(self._writing(), self.store_clock, Lanes(), self._key_window_s)

    def _writing(self) -> apsw.Connection:
        return self._connect(is_writer=True)

    def _reading(self) -> apsw.Connection:
        return self._connect(is_writer=False)

    def _connect(self, *, is_writer: bool) -> apsw.Connection:
        if files_of(self.path) != self._files:  # to open what is there now would make a log for it
            raise replaced(self.path)
        return connect(self.path, self._synchronous, self._clock, is_writer=is_writer)

    def _new_turn(self, *, is_urgent: bool = False) -> Turn:
        return Turn(self.path, self._files, self._clock, is_urgent=is_urgent)

    def _agree_on_clock(self) -> StoreClock:
        db, turn = self._writing(), self._new_turn()
        try:
            turn.begin(db)
            store_clock = agree_on_clock(db, self._clock)
            turn.end(db)
        except apsw.Error as error:
            raise translated(error, self.path) from error
        finally:
            db.close(True)
            turn.close()
        return store_clock
