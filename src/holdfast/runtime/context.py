"""What a running job can ask for: its checkpoint, its steps, its progress, a transaction."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from holdfast.errors import HoldfastError, LeaseLost
from holdfast.ports import Delivery, Note, Transaction
from holdfast.runtime.payload import decode_result, encode_result
from holdfast.types import Notes

P = ParamSpec("P")
R = TypeVar("R")


class Desk(Protocol):
    """What a context needs from whoever runs the job."""

    def note(self, note: Note) -> bool:
        """Remember this; blocks until it is durable, and says whether the lease still holds."""

    async def anote(self, note: Note) -> bool:
        """The same without blocking the event loop."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Writes that commit together with the job's completion."""


class JobContext:
    """The running job, for tasks whose first parameter is annotated with this class.

    In async tasks use the a… twins: the plain methods block.
    """

    def __init__(self, delivery: Delivery, desk: Desk) -> None:
        self._delivery = delivery
        self._desk = desk
        self._notes = delivery.notes or Notes()
        self._checkpoint = self._notes.checkpoint
        self._steps = dict(self._notes.steps)

    @property
    def id(self) -> str:
        """The job's id."""
        return self._delivery.id

    @property
    def task(self) -> str:
        """The task's name."""
        return self._delivery.task

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._delivery.attempt

    @property
    def tenant(self) -> str:
        """The tenant it was enqueued for."""
        return self._delivery.tenant

    @property
    def user(self) -> str:
        """The user it was enqueued for."""
        return self._delivery.user

    @property
    def project(self) -> str:
        """The project it was enqueued for."""
        return self._delivery.project

    # ---- checkpoints

    @property
    def last_checkpoint(self) -> Any:
        """What `checkpoint` was last given, in this attempt or an earlier one; None at first."""
        return None if self._checkpoint is None else decode_result(self._checkpoint)

    def checkpoint(self, value: Any) -> None:
        """Remember where the job is; durable on return. Raises LeaseLost when the job is no longer this worker's."""
        data = encode_result(value)
        self._require(self._desk.note(self._note(checkpoint=data)))
        self._checkpoint = data

    async def acheckpoint(self, value: Any) -> None:
        """The same for async tasks."""
        data = encode_result(value)
        self._require(await self._desk.anote(self._note(checkpoint=data)))
        self._checkpoint = data

    # ---- steps

    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function; but if an earlier attempt has finished the step of this name, return what it returned.

        What it returns is kept as JSON, and comes back as JSON does: a tuple as a list.
        """
        if (done := self._steps.get(name)) is not None:
            return cast(R, decode_result(done))
        value = fn(*args, **kwargs)
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise HoldfastError(f"step {name!r}: an async function needs `await job.astep(…)`")
        return cast(R, self._finish(name, value, self._desk.note))

    async def astep(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The same for async functions."""
        if (done := self._steps.get(name)) is not None:
            return cast(R, decode_result(done))
        value = await fn(*args, **kwargs)
        data = encode_result(value)
        self._require(await self._desk.anote(self._note(step=(name, data))))
        self._steps[name] = data
        return cast(R, decode_result(data))

    def _finish(self, name: str, value: Any, note: Callable[[Note], bool]) -> Any:
        data = encode_result(value)
        self._require(note(self._note(step=(name, data))))
        self._steps[name] = data
        return decode_result(data)  # the first attempt sees what a later one would

    # ---- progress

    def progress(self, share: float) -> None:
        """Say how far the job is, from 0 to 1."""
        self._require(self._desk.note(self._note(progress=_share(share))))

    async def aprogress(self, share: float) -> None:
        """The same for async tasks."""
        self._require(await self._desk.anote(self._note(progress=_share(share))))

    # ---- transactions

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Writes into the store's own database that are there exactly once: leaving the block completes the job.

        `tx.execute(sql, parameters)` returns the rows. Where the store has no transactions StoreError is raised.
        """
        with self._desk.transaction() as tx:
            yield tx

    @asynccontextmanager
    async def atransaction(self) -> AsyncIterator[AsyncTransaction]:
        """The same for async tasks: `await tx.execute(…)`."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="holdfast-tx") as thread:
            manager = self._desk.transaction()
            tx = await loop.run_in_executor(thread, manager.__enter__)
            try:
                yield AsyncTransaction(tx, thread)
            except BaseException as error:
                swallowed = await loop.run_in_executor(
                    thread, manager.__exit__, type(error), error, error.__traceback__
                )
                if not swallowed:
                    raise
            else:
                await loop.run_in_executor(thread, manager.__exit__, None, None, None)

    # ---- inside

    def _note(
        self,
        *,
        checkpoint: bytes | None = None,
        step: tuple[str, bytes] | None = None,
        progress: float | None = None,
    ) -> Note:
        return Note(
            id=self._delivery.id, token=self._delivery.token, checkpoint=checkpoint, step=step, progress=progress
        )

    def _require(self, is_held: bool) -> None:
        if not is_held:
            raise LeaseLost(f"job {self.id} is no longer this worker's, or was cancelled; stop working on it")

    def __repr__(self) -> str:
        return f"<JobContext {self.task} {self.id} attempt {self.attempt}>"


class AsyncTransaction:
    """A transaction whose statements run on a thread of their own."""

    def __init__(self, tx: Transaction, thread: ThreadPoolExecutor) -> None:
        self._tx = tx
        self._thread = thread

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Sequence[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._tx.execute, sql, parameters)

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        """Run one statement for each row."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._tx.executemany, sql, list(rows))


def _share(share: float) -> float:
    if not isinstance(share, int | float) or not 0.0 <= share <= 1.0:
        raise HoldfastError(f"progress({share!r}): must be a share from 0 to 1")
    return float(share)
