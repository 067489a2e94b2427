"""Row T4: each attempt is counted once, as what became of it, whatever is lost on the way and whoever is killed."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Discard, JobContext, Permanent, RetryPolicy, Snooze, Transient
from holdfast.app import Task
from holdfast.clock import SystemClock, chance
from holdfast.ops.api.statistics import retry_stats
from holdfast.ports import Exchange, Exchanged, Operation, Settlement, Store
from holdfast.runtime.counts import completion
from holdfast.runtime.worker import WorkerSettings
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty import Fault, FaultyStore
from holdfast.testing.store_suite import claim
from holdfast.types import Change, JobRecord, JobState

CLOCK = SystemClock()
SETTINGS = WorkerSettings(lease_s=30.0, heartbeat_s=0.5, sweep_s=0.05, grace_s=5.0)
AT_ONCE = RetryPolicy(max_retries=2, initial_delay=0.001, min_delay=0.001, max_delay=0.001)
ENDS = {Change.COMPLETE: "completed", Change.RETRY: "retried", Change.BURY: "failed", Change.FAIL: "failed"}
KINDS = ("succeed", "heal", "bury", "give up", "discard", "snooze", "cancel")
WITH_TRANSACTIONS = ("write and raise", "write and snooze", "write and discard", "write")

Tasks = Sequence[Task[..., Any, Any]]


def add_tasks(app: App) -> Tasks:
    """Tasks that end in every way there is."""
    begun: Counter[str] = Counter()

    def end(job: JobContext, kind: str) -> Snooze | Discard | None:
        begun[job.id] += 1
        if kind.startswith("write"):
            with job.transaction():
                pass
        match kind:
            case "heal" if begun[job.id] < 3:
                raise Transient("busy")
            case "bury" | "write and raise":
                raise Permanent("no")
            case "give up":
                raise Transient("always")
            case "discard" | "write and discard":
                return Discard("no need")
            case "snooze" | "write and snooze" if begun[job.id] < 2:
                return Snooze(0.001)
            case "cancel":
                app.jobs.cancel(job.id)
            case _:
                pass
        return None

    @app.task(name="end", retry=AT_ONCE, breaker=None)
    def buries(job: JobContext, kind: str) -> Snooze | Discard | None:
        return end(job, kind)

    @app.task(name="end_without_letters", retry=AT_ONCE, breaker=None, enable_dlq=False)
    def fails(job: JobContext, kind: str) -> Snooze | Discard | None:
        return end(job, kind)

    return [buries, fails]


async def enqueue_some(app: App, tasks: Tasks, kinds: tuple[str, ...], n: int) -> dict[str, str]:
    """So many jobs of each kind, in an order of chance: the kinds by the jobs' ids."""
    chosen = sorted(kinds * n, key=lambda _: chance())
    jobs = await app.aenqueue_many([tasks[chance() < 0.3].bind(kind) for kind in chosen])
    return {job.id: kind for job, kind in zip(jobs, chosen, strict=True)}


async def records_of(app: App, ids: Sequence[str]) -> list[JobRecord]:
    found = [record for record in await app.store.get(ids) if record is not None]
    assert len(found) == len(ids)
    return found


def attempts_in(records: Sequence[JobRecord], kinds: dict[str, str]) -> Counter[str]:
    """How the attempts ended, as the jobs' own histories say; a discarded job's last one is in none."""
    ends = Counter(ENDS[one.outcome] for record in records for one in record.attempts if one.outcome in ENDS)
    ends["completed"] += sum(record.state is JobState.CANCELLED and kinds[record.id] == "discard" for record in records)
    return +ends


async def check_statistics(app: App, kinds: dict[str, str]) -> None:
    records = await records_of(app, list(kinds))
    expected = attempts_in(records, kinds)
    execution = (await retry_stats(app)).execution_stats
    told = {"completed": execution.successful, "retried": execution.retried, "failed": execution.failed}
    assert {name: n for name, n in told.items() if n} == expected
    assert execution.total_executed == expected.total()
    stats = await app.astats()
    assert (stats.completed, stats.retried, stats.failed) == tuple(told.values())  # of the minutes
    assert stats.totals.dead_lettered == sum(record.state is JobState.DEAD_LETTER for record in records)
    assert sum(stats.totals.failures_by_type.values()) == expected["failed"] + expected["retried"]


async def settled(app: App, kinds: dict[str, str]) -> int:
    """How many jobs have ended by what their worker said of them, and not in a transaction of their own."""
    records = await records_of(app, list(kinds))
    return sum(record.state.is_terminal and not kinds[record.id].startswith("write") for record in records)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await is_so():
            await CLOCK.asleep(0.01)


async def until_all_ended(app: App, ids: Sequence[str]) -> None:
    async def have_ended() -> bool:
        return all(record.state.is_terminal for record in await records_of(app, ids))

    await until(have_ended)


@asynccontextmanager
async def workers(app: App, n: int) -> AsyncIterator[None]:
    """So many workers of this process, which are stopped at the end."""
    some = [app.worker(SETTINGS) for _ in range(n)]
    running = [asyncio.create_task(one.run()) for one in some]
    try:
        yield
    finally:
        for one in some:
            one.stop()
        async with asyncio.timeout(20):
            await asyncio.gather(*running)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}
    app = App(urls.get(request.param) or request.getfixturevalue(f"{request.param}_url"))
    yield app
    await app.aclose()


class LossyStore(FaultyStore):
    """Of the first exchanges that count something, every other fails: before it is done, or after."""

    FAULTS: Sequence[Fault | None] = (None, "lost", None, "away", None, "lost", "lost", None) * 2

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.faults = iter(self.FAULTS)

    async def exchange(self, exchange: Exchange) -> Exchanged:
        fault = next(self.faults, None) if exchange.counts else None
        if fault is not None:
            self.fail("exchange", fault=fault)
        try:
            return await super().exchange(exchange)
        finally:
            self.mend()


async def test_attempts_are_counted_once_while_answers_are_lost(app: App) -> None:
    tasks = add_tasks(app)
    app._store = store = LossyStore(app.store)
    kinds = KINDS + (WITH_TRANSACTIONS if store.capabilities.has_transactions else ())
    jobs: dict[str, str] = {}
    async with workers(app, 2):
        for _ in range(3):
            jobs |= await enqueue_some(app, tasks, kinds, 2)
            await until_all_ended(app, list(jobs))
    await check_statistics(app, jobs)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_settlement_is_taken_back_when_it_was_refused_and_not_when_its_job_has_gone_on(is_lost: bool) -> None:
    """It is sent twice, and refused the second time: in one case it had taken effect the first time."""
    app = App("memory://")
    inner = MemoryStore()
    app._store = store = FaultyStore(inner)

    @app.task(name="retried", retry=RetryPolicy(max_retries=1, initial_delay=50.0, jitter=False), breaker=None)
    async def retried() -> None:
        store.fail("exchange", fault="lost" if is_lost else "away")
        raise Transient("busy")

    job = await retried.aenqueue()
    async with workers(app, 1):

        async def has_failed() -> bool:
            return store.calls["exchange"] >= 5

        await until(has_failed)
        if is_lost:  # another worker retries it, and completes it
            inner.clock_offset_s += 60.0
            (delivery,) = await claim(inner, worker="another")
            done = Settlement(id=job.id, token=delivery.token, change=Change.COMPLETE)
            counts = completion(delivery.claimed_at, "retried")
            await inner.exchange(Exchange(settlements=[done], counts=counts, counted=("another", 1)))
        else:
            assert (await inner.change(Operation(change=Change.CANCEL, ids=[job.id])))[0].is_done
        store.mend()
    (record,) = await records_of(app, [job.id])
    assert [one.outcome for one in record.attempts] == ([Change.RETRY, Change.COMPLETE] if is_lost else [])
    await check_statistics(app, {job.id: "retried"})


SHOP = """
import asyncio, os
from holdfast import App
from holdfast.runtime.worker import WorkerSettings
from tests.integration.test_counted_once import add_tasks

app = App(os.environ["COUNTED_ONCE_URL"])
add_tasks(app)
# No heartbeat comes before it is killed; and there is no supervisor, on whose death it would drain.
if __name__ == "__main__":  # and not in the processes of isolated jobs, which import this
    asyncio.run(app.worker(WorkerSettings(lease_s=300.0)).run())
"""


async def test_attempts_are_counted_once_when_workers_are_killed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = App(url)
    tasks = add_tasks(app)
    kinds = (*(kind for kind in KINDS if kind != "cancel"), *WITH_TRANSACTIONS)
    (tmp_path / "counted_shop.py").write_text(SHOP)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "COUNTED_ONCE_URL": url, "PYTHONPATH": f"{root}{os.pathsep}{tmp_path}"}
    jobs: dict[str, str] = {}
    for _ in range(2):
        jobs |= await enqueue_some(app, tasks, kinds, 40)
        before = await settled(app, jobs)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "counted_shop.py", env=environment, cwd=tmp_path, stderr=DEVNULL
        )

        async def has_begun(before: int = before, jobs: dict[str, str] = jobs) -> bool:
            return await settled(app, jobs) >= before + 20

        try:
            await until(has_begun)
        finally:
            process.kill()
            await process.wait()
    async with workers(app, 1):
        await until_all_ended(app, list(jobs))
    await check_statistics(app, jobs)
    await app.aclose()
