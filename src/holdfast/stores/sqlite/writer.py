"""Group commit: whoever holds the pen takes everything that waits, writes it in one transaction and tells everybody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import apsw

from holdfast.errors import StoreError
from holdfast.ports import Enqueued
from holdfast.stores.sqlite.batch import Batch, Books
from holdfast.stores.sqlite.enqueue import add_jobs
from holdfast.stores.sqlite.faults import DiskFull, StillBusy, disk_full, is_broken, translated
from holdfast.stores.sqlite.reserve import Reserve
from holdfast.stores.sqlite.turns import Turn
from holdfast.types import NewJob

Answer = TypeVar("Answer")
_MOST_AT_ONCE: Final = 1000


class _Ask:
    """Something to be written, and the one who waits for the answer."""

    __slots__ = ("run", "jobs", "future", "woken", "answer", "error", "is_done")

    def __init__(self, run: Callable[[Batch], Any] | None, jobs: Sequence[NewJob], future: asyncio.Future[Any] | None):
        self.run = run
        self.jobs = jobs
        """Of an enqueue, when run is None: those without idempotency keys are written together."""
        self.future = future
        self.woken: threading.Lock | None = None
        self.answer: Any = None
        self.error: BaseException | None = None
        self.is_done = False


class Writer:
    """The one writing connection of a process.

    A sync caller that finds the pen free writes on its own thread; async callers are served by one thread of the
    writer's. There is no timer: while a batch is committed the next one gathers.
    """

    def __init__(self, path: str, connect: Callable[[], Books], turn: Turn, reserve: Reserve, tell: Callable[[], None]):
        self._path = path
        self._connect = connect
        self._turn = turn
        self._reserve = reserve
        self._tell = tell
        self._books: Books | None = None
        self._mutex = threading.Lock()
        self._waiting: list[_Ask] = []
        self._holder: _Ask | threading.Thread | None = None
        """Who has the pen: a sync caller by its ask, or the thread."""
        self._thread: threading.Thread | None = None
        self._wake = threading.Semaphore(0)
        self._is_closed = False

    # ---------------------------------------------------------------- callers

    def enqueue_now(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write new jobs on the caller's own thread, or together with others' when the pen is taken."""
        return cast("list[Enqueued]", self._ask_now(_Ask(None, jobs, None)))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """The same from an event loop."""
        return cast("list[Enqueued]", await self._ask(_Ask(None, jobs, asyncio.get_running_loop().create_future())))

    async def write(self, run: Callable[[Batch], Answer]) -> Answer:
        """Run this inside of the next transaction; it may be run again after a rollback."""
        return cast("Answer", await self._ask(_Ask(run, (), asyncio.get_running_loop().create_future())))

    def write_now(self, run: Callable[[Batch], Answer]) -> Answer:
        """The same on the caller's thread."""
        return cast("Answer", self._ask_now(_Ask(run, (), None)))

    def close(self, run: Callable[[Batch], None]) -> None:
        """Write all that waits, and this as the last thing; then stop the thread and close the connection."""
        try:
            self._ask_now(_Ask(run, (), None), is_last=True)
        finally:
            with self._mutex:
                thread = self._thread
            if thread is not None:
                self._wake.release()
                thread.join()
            self._drop()
            self._turn.close()

    # ---------------------------------------------------------------- who holds the pen

    def _ask_now(self, ask: _Ask, *, is_last: bool = False) -> Any:
        try:
            with self._mutex:
                self._check_open()
                self._is_closed = is_last
                self._waiting.append(ask)
                if self._holder is None:
                    self._holder = ask
                else:
                    ask.woken = threading.Lock()
                    ask.woken.acquire()
            if ask.woken is not None:
                ask.woken.acquire()  # until it is done, or the pen is ours
            if not ask.is_done:
                self._write_waiting(ask)
        except BaseException:  # Ctrl-C, or a signal of the caller's own
            self._withdraw(ask)
            raise
        if ask.error is not None:
            raise ask.error
        return ask.answer

    def _withdraw(self, ask: _Ask) -> None:
        """Its caller waits no more: take it back if it is not being written, and leave the pen to others."""
        with self._mutex:
            self._waiting = [one for one in self._waiting if one is not ask]
            if self._holder is ask:
                self._pass_pen()

    async def _ask(self, ask: _Ask) -> Any:
        with self._mutex:
            self._check_open()
            self._waiting.append(ask)
            if self._holder is None:
                self._pass_pen()
        assert ask.future is not None  # noqa: S101
        return await ask.future

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"{self._path}: the store is closed")

    def _pass_pen(self) -> None:
        """Give the pen to whoever waits first, or to nobody; called with the mutex held."""
        heir = self._waiting[0] if self._waiting else None
        if heir is None:
            self._holder = None
        elif heir.woken is not None:
            heir.woken.release()
            self._holder = heir
        else:
            self._holder = self._wake_thread()

    def _wake_thread(self) -> threading.Thread:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="holdfast-writer", daemon=True)
            self._thread.start()
        self._wake.release()
        return self._thread

    def _serve(self) -> None:
        while True:
            self._wake.acquire()
            with self._mutex:
                has_pen = self._holder is self._thread
                if self._is_closed and not has_pen:
                    return
            if has_pen:
                self._write_waiting()

    def _write_waiting(self, own: _Ask | None = None) -> None:
        """Write all that waits, then hand the pen to the first of those who came meanwhile."""
        asks: list[_Ask] = []
        try:
            with self._mutex:
                asks, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
            self._write(asks)
        except BaseException:  # Ctrl-C in a caller's thread: the others' asks go to the next one
            with self._mutex:
                self._waiting[:0] = [ask for ask in asks if not ask.is_done and ask is not own]
            asks = [ask for ask in asks if ask.is_done]
            raise
        finally:
            with self._mutex:
                self._pass_pen()
            self._deliver(asks)

    @staticmethod
    def _deliver(asks: Sequence[_Ask]) -> None:
        """Wake everybody: threads by their locks, event loops by one call each."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_Ask]] = {}
        for ask in asks:
            if ask.future is not None:
                by_loop.setdefault(ask.future.get_loop(), []).append(ask)
            elif ask.woken is not None and ask.woken.locked():
                ask.woken.release()
        for loop, theirs in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(_answer_all, theirs)

    # ---------------------------------------------------------------- the transaction

    def _write(self, asks: Sequence[_Ask]) -> None:
        """Write them together; if that fails, each by itself, so that none fails for its neighbours."""
        wanted = self._without_refused(asks)
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

    def _without_refused(self, asks: Sequence[_Ask]) -> Sequence[_Ask]:
        """New jobs are refused at once while the space that is kept for work under way is gone."""
        for ask in asks:
            ask.error = None
        if all(ask.run is not None for ask in asks) or self._reserve.is_kept(self._db()):
            return asks
        for ask in asks:
            if ask.run is None:
                ask.error = disk_full(self._path)
        return [ask for ask in asks if ask.run is not None]

    def _write_when_full(self, asks: Sequence[_Ask], error: DiskFull) -> None:
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

    def _commit(self, asks: Sequence[_Ask]) -> BaseException | None:
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


def _run_all(asks: Sequence[_Ask], batch: Batch) -> None:
    """Run each; new jobs that stand next to each other, and have no idempotency keys, go in as one."""
    group: list[_Ask] = []
    for ask in asks:
        if ask.run is None and all(job.idempotency_key is None for job in ask.jobs):
            group.append(ask)
            continue
        _add_group(group, batch)
        group = []
        ask.answer = add_jobs(batch, ask.jobs) if ask.run is None else ask.run(batch)
    _add_group(group, batch)


def _add_group(group: Sequence[_Ask], batch: Batch) -> None:
    if len(group) == 1:
        group[0].answer = add_jobs(batch, group[0].jobs)
    elif group:
        answers = add_jobs(batch, [job for ask in group for job in ask.jobs])
        start = 0
        for ask in group:
            ask.answer = answers[start : start + len(ask.jobs)]
            start += len(ask.jobs)


def _answer_all(asks: Sequence[_Ask]) -> None:
    for ask in asks:
        future = ask.future
        if future is None or future.done():  # the caller was cancelled; what it asked for is written all the same
            continue
        if ask.error is not None:
            future.set_exception(ask.error)
        else:
            future.set_result(ask.answer)
