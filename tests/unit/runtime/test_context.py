"""Checkpoints, steps, progress and transactions, as a job sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from holdfast.app import App
from holdfast.errors import HoldfastError, LeaseLost, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Delivery, Note, Transaction
from holdfast.runtime.context import JobContext
from holdfast.types import JobState, Notes


class Desk:
    """Keeps the notes; the lease holds until it is lost."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.is_held = True
        self.log: list[str] = []

    def note(self, note: Note) -> bool:
        self.notes.append(note)
        return self.is_held

    async def anote(self, note: Note) -> bool:
        return self.note(note)

    def transaction(self) -> AbstractContextManager[Transaction]:
        return self._transaction()

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        self.log.append("begin")
        try:
            yield Rows(self.log)
        except BaseException:
            self.log.append("rollback")
            raise
        self.log.append("commit")


class Rows:
    """A transaction that writes down what it is told."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Sequence[tuple[Any, ...]]:
        self._log.append(sql)
        return [(1,)]

    def executemany(self, sql: str, rows: Any) -> None:
        self._log.append(f"{sql} × {len(list(rows))}")


@pytest.fixture
def desk() -> Desk:
    return Desk()


def context(desk: Desk, notes: Notes | None = None) -> JobContext:
    delivery = Delivery(
        id="id", task="t", queue="q", payload=b"{}", token=b"tok", attempt=2, tenant="x", user="u", project="p"
    )
    delivery.notes = notes
    return JobContext(delivery, desk)


def test_it_says_which_job_it_is(desk: Desk) -> None:
    job = context(desk)
    assert (job.id, job.task, job.attempt, job.tenant, job.user, job.project) == ("id", "t", 2, "x", "u", "p")
    assert job.last_checkpoint is None
    assert repr(job) == "<JobContext t id attempt 2>"


async def test_a_checkpoint_is_noted_under_the_lease_and_read_back(desk: Desk) -> None:
    job = context(desk, Notes(checkpoint=b'{"page":3}'))
    assert job.last_checkpoint == {"page": 3}
    job.checkpoint({"page": 4})
    assert job.last_checkpoint == {"page": 4}
    await job.acheckpoint(None)
    assert job.last_checkpoint is None
    assert [(note.id, note.token, note.checkpoint) for note in desk.notes] == [
        ("id", b"tok", b'{"page":4}'),
        ("id", b"tok", b"null"),
    ]


async def test_a_step_is_done_once_and_comes_back_as_json_does(desk: Desk) -> None:
    calls: list[str] = []

    def pay(cents: int, *, to: str) -> tuple[int, str]:
        calls.append("pay")
        return cents, to

    async def ship() -> str:
        calls.append("ship")
        return "on its way"

    job = context(desk, Notes(steps={"earlier": b'"done before"'}))
    assert job.step("earlier", pay, 1, to="x") == "done before"  # type: ignore[comparison-overlap]
    assert job.step("pay", pay, 5, to="shop") == [5, "shop"]  # type: ignore[comparison-overlap]
    assert job.step("pay", pay, 5, to="shop") == [5, "shop"]  # type: ignore[comparison-overlap]
    assert await job.astep("ship", ship) == await job.astep("ship", ship) == "on its way"
    assert calls == ["pay", "ship"]
    assert [note.step for note in desk.notes] == [("pay", b'[5,"shop"]'), ("ship", b'"on its way"')]


async def test_a_step_that_fails_is_not_done(desk: Desk) -> None:
    job = context(desk)

    def fail() -> None:
        raise Transient("half way")

    async def afail() -> None:
        raise Transient("half way")

    with pytest.raises(Transient):
        job.step("a", fail)
    with pytest.raises(Transient):
        await job.astep("b", afail)
    assert desk.notes == []
    assert job.step("a", lambda: 1) == 1


async def test_an_async_function_in_a_sync_step_is_refused(desk: Desk) -> None:
    async def ship() -> None: ...

    def future() -> Any:
        return asyncio.get_running_loop().create_future()

    job = context(desk)
    for fn in (ship, future):
        with pytest.raises(HoldfastError, match=r"await job\.astep"):
            job.step("ship", fn)
    assert desk.notes == []


async def test_progress_is_a_share(desk: Desk) -> None:
    job = context(desk)
    job.progress(0.25)
    await job.aprogress(1)
    assert [note.progress for note in desk.notes] == [0.25, 1.0]
    for wrong in (-0.1, 1.1, float("nan"), "half"):
        with pytest.raises(HoldfastError, match="from 0 to 1"):
            job.progress(wrong)  # type: ignore[arg-type]


async def test_a_lost_lease_is_told_and_nothing_is_remembered(desk: Desk) -> None:
    desk.is_held = False
    job = context(desk)
    with pytest.raises(LeaseLost, match="no longer this worker's"):
        job.checkpoint(1)
    with pytest.raises(LeaseLost):
        await job.acheckpoint(1)
    with pytest.raises(LeaseLost):
        job.step("a", lambda: 1)
    with pytest.raises(LeaseLost):
        job.progress(0.5)
    assert job.last_checkpoint is None


def test_a_transaction_commits_when_the_block_is_left(desk: Desk) -> None:
    job = context(desk)
    with job.transaction() as tx:
        assert tx.execute("INSERT", (1,)) == [(1,)]
    with pytest.raises(ZeroDivisionError), job.transaction():
        raise ZeroDivisionError
    assert desk.log == ["begin", "INSERT", "commit", "begin", "rollback"]


async def test_an_async_transaction_does_the_same_on_a_thread(desk: Desk) -> None:
    job = context(desk)
    async with job.atransaction() as tx:
        assert await tx.execute("INSERT") == [(1,)]
        await tx.executemany("UPDATE", [(1,), (2,)])
    with pytest.raises(ZeroDivisionError):
        async with job.atransaction():
            raise ZeroDivisionError
    assert desk.log == ["begin", "INSERT", "UPDATE × 2", "commit", "begin", "rollback"]


async def test_an_async_transaction_that_is_cancelled_is_rolled_back(desk: Desk) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        async with context(desk).atransaction():
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    async with asyncio.timeout(5):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert desk.log == ["begin", "rollback"]


# ---------------------------------------------------------------- in a worker


@pytest.mark.parametrize("is_async", [False, True])
def test_steps_checkpoints_and_progress_survive_an_attempt(is_async: bool) -> None:
    app = App("memory://")
    seen: list[Any] = []

    def work(job: JobContext) -> str:
        seen.append((job.attempt, job.last_checkpoint, job.step("pay", lambda: job.attempt)))
        job.checkpoint({"attempt": job.attempt})
        job.progress(job.attempt / 4)
        if job.attempt < 3:
            raise Transient("half way")
        return "done"

    async def awork(job: JobContext) -> str:
        async def pay() -> int:
            return job.attempt

        seen.append((job.attempt, job.last_checkpoint, await job.astep("pay", pay)))
        await job.acheckpoint({"attempt": job.attempt})
        await job.aprogress(job.attempt / 4)
        if job.attempt < 3:
            raise Transient("half way")
        return "done"

    task: Any = app.task(name="t")(awork if is_async else work)
    job = task.enqueue()
    app.run_until_idle()
    assert seen == [(1, None, 1), (2, {"attempt": 1}, 1), (3, {"attempt": 2}, 1)]
    assert (job.wait(timeout=1).result, job.record.progress) == ("done", 0.75)


def test_the_blocking_methods_say_what_to_use_in_an_async_task() -> None:
    app = App("memory://")

    @app.task(retry=RetryPolicy(max_retries=0))
    async def work(job: JobContext) -> None:
        job.checkpoint(1)

    assert "acheckpoint" in str(work.run().error)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_store_without_transactions_says_so(is_async: bool) -> None:
    app = App("memory://")

    def work(job: JobContext) -> None:
        with job.transaction():
            raise AssertionError

    async def awork(job: JobContext) -> None:
        async with job.atransaction():
            raise AssertionError

    task: Any = app.task(name="t")(awork if is_async else work)
    result = task.run()
    assert result.state is JobState.DEAD_LETTER
    assert len(result.attempts) == 1  # no retry can help
    assert "memory:// has no transactions" in str(result.error)
