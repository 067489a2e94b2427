"""Group commit: whoever holds the pen takes everything that waits, writes it in one transaction and tells everybody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar, cast

import apsw

from holdfast.ports import Enqueued
from holdfast.stores.ends import are_plain
from holdfast.stores.keys import may_be_known
from holdfast.stores.pen import Ask, Pen
from holdfast.stores.sqlite.batch import Batch, Books
from holdfast.stores.sqlite.enqueue import add_jobs, add_plain_jobs, known_states
from holdfast.stores.sqlite.faults import DiskFull, StillBusy, disk_full, is_broken, translated
from holdfast.stores.sqlite.reserve import Reserve
from holdfast.stores.sqlite.turns import Turn
from holdfast.types import NewJob

Answer = TypeVar("Answer")


class Writer:
    """The one writing connection of a process: what its pen gathers is one transaction."""

    def __init__(self, path: str, connect: Callable[[], Books], turn: Turn, reserve: Reserve, tell: Callable[[], None]):
        self._path = path
        self._connect = connect
        self._turn = turn
        self._reserve = reserve
        self._tell = tell
        self._books: Books | None = None
        self._pen = Pen("holdfast-writer", path, self._write)

    # ---------------------------------------------------------------- callers

    def enqueue_now(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write new jobs on the caller's own thread, or together with others' when the pen is taken."""
        return cast("list[Enqueued]", self._pen.ask_now(None, jobs))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """The same from an event loop."""
        return cast("list[Enqueued]", await self._pen.ask(None, jobs))

    async def write(self, run: Callable[[Batch], Answer]) -> Answer:
        """Run this inside of the next transaction; it may be run again after a rollback."""
        return cast("Answer", await self._pen.ask(run))

    def write_now(self, run: Callable[[Batch], Answer]) -> Answer:
        """The same on the caller's thread."""
        return cast("Answer", self._pen.ask_now(run))

    def close(self, run: Callable[[Batch], None]) -> None:
        """Write all that waits, and this as the last thing; then stop the thread and close the connection."""
        try:
            self._pen.ask_now(run, is_last=True)
        finally:
            self._pen.close()
            self._drop()
            self._turn.close()

    # ---------------------------------------------------------------- the transaction

    def _write(self, asks: Sequence[Ask]) -> None:
        """Write them together; if that fails, each by itself, so that none fails for its neighbours."""
        for ask in asks:
            ask.error = None
        wanted = self._without_refused(self._without_known(asks))
        error = self._commit(wanted) if wanted else None
        if isinstance(error, DiskFull):
            self._write_when_full(wanted, error)
        elif error is not None:
            if len(wanted) == 1 or isinstance(error, StillBusy):
                for ask in wanted:
                    ask.error = error
            else:
                for ask in wanted:
                    ask.error = self._commit([ask])
        for ask in asks:
            ask.is_done = True

    def _without_known(self, asks: Sequence[Ask]) -> Sequence[Ask]:
        """New jobs that are all known are answered by a look: what is written by others need not be waited for."""
        doubtful = [ask for ask in asks if ask.run is None and are_plain(ask.jobs) and may_be_known(ask.jobs)]
        db = self._db()
        if not doubtful or db is None:
            return asks
        try:
            states = known_states(db, [job for ask in doubtful for job in ask.jobs])
        except apsw.Error:  # writing will say what is wrong
            return asks
        for ask in doubtful:
            if all(job.id in states for job in ask.jobs):
                ask.answer = [Enqueued(job.id, is_new=False, state=states[job.id]) for job in ask.jobs]
                ask.is_done = True
        return [ask for ask in asks if not ask.is_done]

    def _without_refused(self, asks: Sequence[Ask]) -> Sequence[Ask]:
        """New jobs are refused at once while the space that is kept for work under way is gone."""
        if all(ask.run is not None for ask in asks) or self._reserve.is_kept(self._db()):
            return asks
        for ask in asks:
            if ask.run is None:
                ask.error = disk_full(self._path)
        return [ask for ask in asks if ask.run is not None]

    def _write_when_full(self, asks: Sequence[Ask], error: DiskFull) -> None:
        """Refuse new jobs, and let what is under way come to its end on the space that was kept for it."""
        for ask in asks:
            if ask.run is None:
                ask.error = error
                continue
            ask.error = self._commit([ask])
            if isinstance(ask.error, DiskFull):
                for _ in self._reserve.make_room(self._db()):
                    ask.error = self._commit([ask])
                    if not isinstance(ask.error, DiskFull):
                        break

    def _commit(self, asks: Sequence[Ask]) -> BaseException | None:
        try:
            if self._books is None:
                self._books = self._connect()
            self._turn.begin(self._books.db)
            batch = Batch(self._books)
            _run_all(asks, batch)
            batch.flush()
            self._turn.end(batch.db)
            batch.committed()
        except Exception as error:  # it is handed to whoever asked
            return self._failed(error)
        except BaseException as error:
            self._failed(error)
            raise
        if batch.has_news:
            self._tell()
        self._reserve.keep(batch.db)
        return None

    def _failed(self, error: BaseException) -> BaseException:
        """Roll back, drop a connection that may be broken, and put the error into words."""
        if is_broken(error):
            self._drop()
        elif self._books is not None:
            try:
                if self._books.db.in_transaction:
                    self._books.db.execute("ROLLBACK")
            except apsw.Error:
                self._drop()
        if isinstance(error, apsw.Error):
            told = translated(error, self._path)
            told.__cause__ = error
            return told
        return error

    def _db(self) -> apsw.Connection | None:
        return None if self._books is None else self._books.db

    def _drop(self) -> None:
        books, self._books = self._books, None
        if books is not None:
            with suppress(apsw.Error):
                books.db.close(True)


def _run_all(asks: Sequence[Ask], batch: Batch) -> None:
    """Run each; new jobs that stand next to each other, and are plain, go in as one."""
    group: list[Ask] = []
    for ask in asks:
        if ask.run is None and are_plain(ask.jobs):
            group.append(ask)
            continue
        _add_group(group, batch)
        group = []
        ask.answer = add_jobs(batch, ask.jobs) if ask.run is None else ask.run(batch)
    _add_group(group, batch)


def _add_group(group: Sequence[Ask], batch: Batch) -> None:
    if len(group) == 1:
        group[0].answer = add_plain_jobs(batch, group[0].jobs)
    elif group:
        answers = add_plain_jobs(batch, [job for ask in group for job in ask.jobs])
        start = 0
        for ask in group:
            ask.answer = answers[start : start + len(ask.jobs)]
            start += len(ask.jobs)
