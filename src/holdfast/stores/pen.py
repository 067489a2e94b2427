"""The pen: whoever holds it takes everything that waits, writes it as one batch and tells everybody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from holdfast.errors import StoreError
from holdfast.types import NewJob

_MOST_AT_ONCE: Final = 1000


class Ask:
    """Something to be written, and the one who waits for the answer."""

    __slots__ = ("run", "jobs", "future", "woken", "answer", "error", "is_done")

    def __init__(self, run: Callable[..., Any] | None, jobs: Sequence[NewJob], future: asyncio.Future[Any] | None):
        self.run = run
        self.jobs = jobs
        """Of an enqueue, when run is None: those without idempotency keys and ends are written together."""
        self.future = future
        self.woken: threading.Lock | None = None
        self.answer: Any = None
        self.error: BaseException | None = None
        self.is_done = False


class Pen:
    """Gathers what is asked for, and has `write` answer it batch by batch, never two at once.

    A sync caller that finds the pen free writes on its own thread; async callers are served by one thread of the
    pen's. There is no timer: while a batch is written the next one gathers. `write` sets the answer or the error of
    every ask, and `is_done`.
    """

    def __init__(self, name: str, location: str, write: Callable[[Sequence[Ask]], None]) -> None:
        self._name = name
        self._location = location
        self._write = write
        self._mutex = threading.Lock()
        self._waiting: list[Ask] = []
        self._holder: Ask | threading.Thread | None = None
        """Who has the pen: a sync caller by its ask, or the thread."""
        self._thread: threading.Thread | None = None
        self._wake = threading.Semaphore(0)
        self._is_closed = False

    def ask_now(self, run: Callable[..., Any] | None, jobs: Sequence[NewJob] = (), *, is_last: bool = False) -> Any:
        """Have this written, on the caller's own thread or together with others' when the pen is taken.

        After the last one nothing more is taken.
        """
        ask = Ask(run, jobs, None)
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

    async def ask(self, run: Callable[..., Any] | None, jobs: Sequence[NewJob] = ()) -> Any:
        """The same from an event loop."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._mutex:
            self._check_open()
            self._start_thread()
            self._waiting.append(Ask(run, jobs, future))
            if self._holder is None:
                self._pass_pen()
        return await future

    def close(self) -> None:
        """Take nothing more, answer what waits, and stop the thread."""
        with self._mutex:
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            self._wake.release()
            thread.join()

    # ---------------------------------------------------------------- who holds it

    def _withdraw(self, ask: Ask) -> None:
        """Its caller waits no more: take it back if it is not being written, and leave the pen to others."""
        with self._mutex:
            self._waiting = [one for one in self._waiting if one is not ask]
            if self._holder is ask:
                self._pass_pen()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"{self._location}: the store is closed")

    def _pass_pen(self) -> None:
        """Give the pen to whoever waits first, or to nobody; called with the mutex held."""
        heir = self._waiting[0] if self._waiting else None
        if heir is None:
            self._holder = None
            if self._is_closed:  # the thread was there for those behind the last one
                self._wake.release()
        elif heir.woken is not None:
            heir.woken.release()
            self._holder = heir
        else:
            self._wake.release()
            self._holder = self._thread

    def _start_thread(self) -> None:
        """Before the first async ask waits: where no thread is to be had, that one is refused, and nobody else."""
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            thread.start()
            self._thread = thread

    def _serve(self) -> None:
        while True:
            self._wake.acquire()
            with self._mutex:
                has_pen = self._holder is self._thread
                if self._is_closed and self._holder is None:  # so nobody waits either
                    return
            if has_pen:
                self._write_waiting()

    def _write_waiting(self, own: Ask | None = None) -> None:
        """Write all that waits, then hand the pen to the first of those who came meanwhile."""
        asks: list[Ask] = []
        try:
            with self._mutex:
                asks, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
            self._write(asks)
        except BaseException as error:
            undone = [ask for ask in asks if not ask.is_done]
            if own is None:  # the pen's thread, which serves the next ones all the same
                for ask in undone:
                    ask.error, ask.is_done = error, True
            else:  # Ctrl-C in a caller's thread, or trouble of its own: the others' asks go to the next one
                with self._mutex:
                    self._waiting[:0] = [ask for ask in undone if ask is not own]
                asks = [ask for ask in asks if ask.is_done]
                raise
        finally:
            with self._mutex:
                self._pass_pen()
            self._deliver(asks)

    @staticmethod
    def _deliver(asks: Sequence[Ask]) -> None:
        """Wake everybody: threads by their locks, event loops by one call each."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Ask]] = {}
        for ask in asks:
            if ask.future is not None:
                by_loop.setdefault(ask.future.get_loop(), []).append(ask)
            elif ask.woken is not None and ask.woken.locked():
                ask.woken.release()
        for loop, theirs in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(_answer_all, theirs)


def _answer_all(asks: Sequence[Ask]) -> None:
    for ask in asks:
        future = ask.future
        if future is None or future.done():  # the caller was cancelled; what it asked for is written all the same
            continue
        if ask.error is not None:
            future.set_exception(ask.error)
        else:
            future.set_result(ask.answer)
