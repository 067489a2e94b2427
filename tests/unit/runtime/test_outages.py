"""The store goes away under a worker, for a moment or for longer than a lease, and comes back."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.app import App, Job
from holdfast.clock import SystemClock, new_token
from holdfast.errors import StoreAway, StoreError
from holdfast.ports import Claim, Delivery, Exchange, Exchanged, Settlement, WorkerRecord
from holdfast.runtime.context import JobContext
from holdfast.runtime.outage import insist, insist_now
from holdfast.runtime.runner import Room
from holdfast.runtime.worker import Exit, Worker, WorkerSettings
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.faulty import VERBS, FaultyStore
from holdfast.types import Change, JobRecord, JobState

LEASE_S = 12.0
SETTINGS = WorkerSettings(lease_s=LEASE_S, grace_s=30.0)
STEP_S = 0.1


class StepClock(ManualClock):
    """Knows until when the heart waits, so that time passes no quicker than it can follow."""

    def __init__(self) -> None:
        super().__init__(auto=False)
        self.waits_until = float("-inf")

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        end = self.waits_until = self.monotonic() + (seconds or 0.0)
        while not event.wait(0.0005):
            if self.monotonic() >= end:
                self.waits_until = float("-inf")
                return event.is_set()
        self.waits_until = float("inf")
        return True


class Scene:
    """An app whose store goes away, on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = StepClock()
        self.store = FaultyStore(MemoryStore(self.clock), self.clock)
        self.app = App("memory://", clock=self.clock)
        self.app._store = self.store

    async def let_pass(self, seconds: float) -> None:
        """Let time pass in small steps, each with all that comes of it."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end - 1e-9:
            self.clock.advance(min(STEP_S, end - self.clock.monotonic()))
            await self.settle_down()

    async def settle_down(self) -> None:
        for _ in range(8):
            await SystemClock().asleep(0)
        async with asyncio.timeout(5):
            while not (self._heart_waits() or self.store.waiting["heartbeat"]):
                await SystemClock().asleep(0.0005)
        for _ in range(8):
            await SystemClock().asleep(0)

    async def mend(self) -> None:
        """The store is there again, and what hung has had its error."""
        self.store.mend()
        await until(lambda: not self.store.waiting["heartbeat"])

    def _heart_waits(self) -> bool:
        if not any(one.name == "holdfast-heart" for one in threading.enumerate()):
            return True
        return self.clock.waits_until > self.clock.monotonic()

    async def record(self, job: Job[Any]) -> JobRecord:
        (record,) = await self.store.inner.get([job.id])
        assert record is not None
        return record

    @asynccontextmanager
    async def worker(self, settings: WorkerSettings = SETTINGS) -> AsyncIterator[tuple[Worker, asyncio.Task[Exit]]]:
        """A worker that runs while the block does; in the end the store is there and the worker is stopped."""
        worker = self.app.worker(settings)
        running = asyncio.create_task(worker.run())
        await self.settle_down()
        try:
            yield worker, running
        finally:
            await self.mend()
            worker.stop()
            async with asyncio.timeout(10):
                while not running.done():
                    await self.let_pass(STEP_S)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.message for one in caplog.records if one.levelno >= logging.WARNING]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():
            await SystemClock().asleep(0.001)


# ---------------------------------------------------------------- shorter than a lease


@pytest.mark.parametrize("fault", ["away", "lost", "hang"])
async def test_through_a_short_outage_work_goes_on_and_is_settled_after_it(
    scene: Scene, caplog: pytest.LogCaptureFixture, fault: Any
) -> None:
    go, ran = asyncio.Event(), list[int]()

    @scene.app.task(breaker=None)
    async def work(n: int) -> int:
        ran.append(n)
        await go.wait()
        return n

    jobs = await scene.app.aenqueue_many([work.bind(n) for n in range(3)])
    async with scene.worker() as (worker, running):
        await scene.let_pass(1.0)
        assert worker.runner.begun == 3
        scene.store.fail(fault=fault)
        await scene.let_pass(1.0)
        go.set()  # they end while nobody can be told
        await scene.let_pass(4.0)
        assert not running.done()
        await scene.mend()
        await scene.let_pass(6.0)
        records = [await scene.record(job) for job in jobs]
    assert [(one.state, one.result, one.attempt) for one in records] == [
        (JobState.COMPLETED, b"%d" % n, 1) for n in range(3)
    ]
    assert sorted(ran) == [0, 1, 2]
    assert running.result() is Exit.DRAINED
    if fault != "hang":
        said = told(caplog)
        assert len(said) == 2, said
        assert said[0].startswith("the store does not answer as it should")
        assert said[1].startswith("the store answers again, after ")


async def test_tries_are_few_and_spread_however_long_it_takes(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    @scene.app.task(breaker=None)
    async def work() -> None: ...

    async with scene.worker(WorkerSettings(lease_s=600.0)) as (_, running):
        await scene.let_pass(1.0)
        scene.store.calls.clear()
        scene.store.fail()
        await scene.let_pass(60.0)
        assert not running.done()
        assert 60 / 5 <= scene.store.calls["exchange"] <= 60  # at most 5 s between tries, and 2.5 s in the middle
        assert scene.store.calls["reclaim"] <= 60
        await scene.mend()
        await scene.let_pass(10.0)
    assert len(told(caplog)) == 2


async def test_a_finished_step_is_remembered_after_the_outage_and_not_run_again(scene: Scene) -> None:
    ran, begun, go = list[str](), asyncio.Event(), asyncio.Event()

    @scene.app.task(breaker=None)
    async def work(job: JobContext) -> str:
        begun.set()
        await go.wait()

        async def charge() -> str:
            ran.append("charged")
            return "ok"

        return await job.astep("charge", charge)

    job = await work.aenqueue()
    async with scene.worker():
        await scene.let_pass(1.0)
        assert begun.is_set()
        scene.store.fail()
        go.set()
        await scene.let_pass(4.0)
        await scene.mend()
        await scene.let_pass(6.0)
        record = await scene.record(job)
    assert (record.state, record.attempt, ran) == (JobState.COMPLETED, 1, ["charged"])


# ---------------------------------------------------------------- longer than a lease


async def two_jobs(scene: Scene) -> tuple[Job[Any], Job[Any], asyncio.Event, list[str]]:
    """A job that ends when it is told to, and one that never ends; what becomes of that is seen."""
    go, seen = asyncio.Event(), list[str]()

    @scene.app.task(name="quick", breaker=None)
    async def quick() -> str:
        await go.wait()
        return "done"

    @scene.app.task(name="endless", breaker=None)
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("stopped")
            raise

    first, second = await scene.app.aenqueue_many([quick.bind(), endless.bind()])
    return first, second, go, seen


async def test_work_is_stopped_when_its_lease_is_over_and_not_before(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, go, seen = await two_jobs(scene)
    async with scene.worker() as (_, running):
        await scene.let_pass(3.0)
        scene.store.fail()
        await scene.let_pass(2.0)
        go.set()
        await scene.let_pass(LEASE_S - 2.4 - 1.2 - 2.0 - 0.2)  # the last beat was at most 2.4 s before the outage
        assert seen == []
        await scene.let_pass(2.4 + 0.4)
        assert seen == ["stopped"]  # within the lease, which is over 1.2 s later
        await scene.let_pass(50.0)
        assert not running.done()  # it has something to say, and nobody else could be told either
        await scene.mend()
        await scene.let_pass(6.0)
        assert running.done()
        records = [await scene.record(job) for job in (first, second)]
    assert running.result() is Exit.REPLACE
    # What was stopped goes on at once, with the same attempt, and is no suspect: no worker has died.
    assert [(one.state, one.attempt) for one in records] == [(JobState.COMPLETED, 1), (JobState.QUEUED, 0)]
    assert records[1].attempts == ()
    said = told(caplog)
    assert len(said) == 3, said
    assert "stops its work: its lease could not be renewed: no connection" in said[1]
    async with scene.worker() as (_, running):  # its next life, with another id
        await scene.let_pass(1.0)
        workers = (await scene.store.stats()).workers
        assert (await scene.record(second)).worker == workers[0].id
        scene.app.specs.clear()


async def test_what_was_finished_but_taken_over_meanwhile_is_refused_without_harm(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, go, _ = await two_jobs(scene)
    async with scene.worker() as (_, running):
        await scene.let_pass(3.0)
        scene.store.fail()
        go.set()
        await scene.let_pass(60.0)
        other = scene.store.inner  # the store was away for this one only
        await other.heartbeat(WorkerRecord(id="other", lease_s=1000.0))
        orphans = await other.reclaim("other", new_token(), 10)
        assert {one.id for one in orphans} == {first.id, second.id}
        settlements = [
            Settlement(id=one.id, token=one.token, change=Change.COMPLETE, result=b'"other"') for one in orphans
        ]
        await other.exchange(Exchange(settlements=settlements))
        await scene.mend()
        await scene.let_pass(6.0)
        assert running.done()
    records = [await scene.record(job) for job in (first, second)]
    assert {(one.state, one.result) for one in records} == {(JobState.COMPLETED, b'"other"')}
    assert any("came too late" in line for line in told(caplog))


async def test_an_answer_that_never_comes_does_not_keep_a_lost_worker(scene: Scene) -> None:
    @scene.app.task(breaker=None)
    async def work() -> None: ...

    async with scene.worker() as (_, running):
        await scene.let_pass(3.0)
        scene.store.fail(fault="hang")
        await scene.let_pass(LEASE_S)
        await until(running.done)  # it has nothing to say
        assert running.result() is Exit.REPLACE


async def test_what_was_stopped_is_given_back_after_an_answer_that_never_came(scene: Scene) -> None:
    _, second, _, seen = await two_jobs(scene)
    async with scene.worker() as (_, running):
        await scene.let_pass(3.0)
        scene.store.fail(fault="hang")
        await scene.let_pass(LEASE_S)
        await until(lambda: seen == ["stopped"])
        await scene.let_pass(3 * LEASE_S)
        await scene.mend()
        await scene.let_pass(6.0)
        await until(running.done)
        assert running.result() is Exit.REPLACE
    assert (await scene.record(second)).state is JobState.QUEUED


async def test_while_a_thread_runs_a_lost_job_the_process_does_not_wait_for_the_store(scene: Scene) -> None:
    begun, go, end = threading.Event(), threading.Event(), asyncio.Event()

    @scene.app.task(name="quick", breaker=None)
    async def quick() -> None:
        await end.wait()

    @scene.app.task(name="slow", breaker=None)
    def slow() -> None:
        begun.set()
        go.wait(20)

    await scene.app.aenqueue_many([quick.bind(), slow.bind()])
    async with scene.worker() as (worker, running):
        await until(begun.is_set)
        await scene.let_pass(1.0)
        scene.store.fail()
        end.set()
        await scene.let_pass(1.0)
        assert len(worker.runner.settlements) == 1
        await scene.let_pass(LEASE_S)
        await until(running.done)  # the process is replaced, and with it the thread
        assert running.result() is Exit.REPLACE
        go.set()


# ---------------------------------------------------------------- stopping in an outage


async def test_a_stop_in_an_outage_waits_for_the_store_within_the_grace_time(scene: Scene) -> None:
    go = asyncio.Event()

    @scene.app.task(breaker=None)
    async def work() -> None:
        await go.wait()

    job = await work.aenqueue()
    async with scene.worker() as (worker, running):
        await scene.let_pass(1.0)
        scene.store.fail("exchange", "reclaim", "wait")
        go.set()
        await scene.let_pass(1.0)
        worker.stop()
        await scene.let_pass(20.0)
        assert not running.done()
        await scene.mend()
        await scene.let_pass(6.0)
        assert running.done()
    assert running.result() is Exit.DRAINED
    assert (await scene.record(job)).state is JobState.COMPLETED


@pytest.mark.parametrize("fault", ["away", "hang"])
async def test_a_stop_in_an_outage_ends_with_the_grace_time(
    scene: Scene, caplog: pytest.LogCaptureFixture, fault: Any
) -> None:
    go = asyncio.Event()

    @scene.app.task(breaker=None)
    async def work() -> None:
        await go.wait()

    await work.aenqueue()
    async with scene.worker(WorkerSettings(lease_s=600.0, grace_s=10.0)) as (worker, running):
        await scene.let_pass(1.0)
        scene.store.fail(fault=fault)
        go.set()
        worker.stop()
        await scene.let_pass(18.0)
        await until(running.done)
        assert running.result() is Exit.RELEASED
    assert any("1 settlements could not be sent" in line for line in told(caplog))


async def test_a_stop_in_an_outage_waits_for_no_claim_beyond_the_lease(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    @scene.app.task(breaker=None)
    async def work() -> None: ...

    async with scene.worker(WorkerSettings(lease_s=LEASE_S, grace_s=600.0)) as (worker, running):
        await scene.let_pass(1.0)
        scene.store.fail()  # the next claim has no answer: whatever it brought is an orphan when the lease is over
        await scene.let_pass(3.0)
        worker.stop()
        await scene.let_pass(LEASE_S)
        await until(running.done)
        assert running.result() is Exit.REPLACE
    assert not any("could not be sent" in line for line in told(caplog))


async def test_a_thread_that_runs_a_lost_job_ends_the_grace_time(scene: Scene) -> None:
    begun, go, end = threading.Event(), threading.Event(), asyncio.Event()

    @scene.app.task(name="quick", breaker=None)
    async def quick() -> None:
        await end.wait()

    @scene.app.task(name="slow", breaker=None)
    def slow() -> None:
        begun.set()
        go.wait(20)

    await scene.app.aenqueue_many([quick.bind(), slow.bind()])
    async with scene.worker(WorkerSettings(lease_s=LEASE_S, grace_s=600.0)) as (worker, running):
        await until(begun.is_set)
        await scene.let_pass(1.0)
        scene.store.fail()
        end.set()
        await scene.let_pass(1.0)
        worker.stop()
        await scene.let_pass(LEASE_S + 10.0)
        await until(running.done)
        assert running.result() is Exit.REPLACE
        go.set()


async def test_the_last_words_of_a_lost_worker_claim_nothing(scene: Scene) -> None:
    end = asyncio.Event()

    @scene.app.task(breaker=None)
    async def work(n: int) -> None:
        await end.wait()

    first = await work.aenqueue(1)
    async with scene.worker() as (_, running):
        await scene.let_pass(1.0)
        scene.store.fail(*[verb for verb in VERBS if verb != "enqueue"], fault="hang")
        second = await work.aenqueue(2)  # the worker asks for it, and has no answer
        end.set()
        await scene.let_pass(LEASE_S)
        await scene.mend()
        await scene.let_pass(6.0)
        await until(running.done)
    assert running.result() is Exit.REPLACE
    assert (await scene.record(first)).state is JobState.COMPLETED
    assert (await scene.record(second)).state is JobState.QUEUED


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_worker_that_is_cancelled_ends_as_cancelled(scene: Scene, is_lost: bool) -> None:
    async with scene.worker() as (worker, running):
        await scene.let_pass(1.0)
        if is_lost:
            worker._lose("in a test")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


# ---------------------------------------------------------------- starting in an outage


async def test_a_worker_waits_at_its_start_for_a_store_that_is_away(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    @scene.app.task(breaker=None)
    async def work() -> None: ...

    job = await work.aenqueue()
    scene.store.fail()
    async with scene.worker() as (_, running):
        await scene.let_pass(60.0)
        assert not running.done()
        assert scene.store.calls["exchange"] <= 60
        await scene.mend()
        await scene.let_pass(6.0)
        assert (await scene.record(job)).state is JobState.COMPLETED
    assert running.result() is Exit.DRAINED
    assert len(told(caplog)) == 2


async def test_a_store_that_goes_away_between_the_first_two_calls_is_waited_for_too(scene: Scene) -> None:
    scene.store.fail("heartbeat")
    async with scene.worker() as (_, running):
        await scene.let_pass(10.0)
        await scene.mend()
        await scene.let_pass(6.0)
        assert len((await scene.store.stats()).workers) == 1
    assert running.result() is Exit.DRAINED


async def test_a_worker_that_waits_for_its_store_can_be_stopped(scene: Scene) -> None:
    scene.store.fail()
    async with scene.worker() as (worker, running):
        await scene.let_pass(10.0)
        worker.stop()
        await until(running.done)
    assert running.result() is Exit.DRAINED


async def test_a_store_that_is_there_and_wrong_is_not_waited_for(scene: Scene) -> None:
    scene.store.fail(error=StoreError("made by a newer Holdfast"))
    with pytest.raises(StoreError, match="newer"):
        await scene.app.worker(SETTINGS).run()


async def test_running_until_idle_waits_for_no_store(scene: Scene) -> None:
    scene.store.fail("exchange")
    with pytest.raises(StoreAway):
        await scene.app.worker().run_until_idle(skip=True)


# ---------------------------------------------------------------- news


async def test_a_store_that_cannot_tell_of_news_is_looked_at_now_and_then(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    ran = list[int]()

    @scene.app.task(breaker=None)
    async def work() -> None:
        ran.append(1)

    async with scene.worker():
        await scene.let_pass(1.0)
        scene.store.fail("wait", error=StoreError("no listener"))
        await scene.let_pass(2.0)  # the wait under way ends first
        scene.store.calls.clear()
        await scene.let_pass(30.0)
        assert scene.store.calls["wait"] <= 30
        assert scene.store.calls["exchange"] <= 40
        await work.aenqueue()
        await scene.let_pass(5.1)
        assert ran == [1]
    assert [line for line in told(caplog) if "cannot tell of news" in line] == told(caplog)
    assert len(told(caplog)) == 1


async def test_a_store_that_answers_late_is_slow_and_nothing_else(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    @scene.app.task(breaker=None)
    async def work() -> None: ...

    jobs = await scene.app.aenqueue_many([work.bind() for _ in range(3)])
    scene.store.fail("exchange", "reclaim", "note", "wait", fault="late", late_s=2.0)
    async with scene.worker(WorkerSettings(lease_s=LEASE_S, room=Room(concurrency=1))) as (_, running):
        await scene.let_pass(40.0)
        assert {(await scene.record(job)).state for job in jobs} == {JobState.COMPLETED}
        assert not running.done()
    assert told(caplog) == []


# ---------------------------------------------------------------- one call, through an outage


async def test_the_time_that_a_try_takes_is_a_part_of_the_wait() -> None:
    clock, calls = ManualClock(), list[float]()

    def call() -> None:
        calls.append(clock.monotonic())
        clock.advance(10.0)
        raise StoreAway("no answer in time")

    async def acall() -> None:
        call()

    with pytest.raises(StoreAway, match="tried for 3 s"):
        insist_now(call, 3.0, clock, lambda: 1.0)
    assert calls == [0.0]
    with pytest.raises(StoreAway, match="tried for 12 s"):
        await insist(acall, 12.0, clock, lambda: 1.0)
    assert calls == [0.0, 10.0, 20.2]


# ---------------------------------------------------------------- a failover that has lost what was acknowledged


class Forgetful(MemoryStore):
    """Acknowledges settlements, and has them no more after a failover."""

    is_forgetting = False

    async def exchange(self, exchange: Exchange) -> Exchanged:
        if not self.is_forgetting:
            return await super().exchange(exchange)
        reply = await super().exchange(replace(exchange, settlements=[]))
        return replace(reply, settled=[True] * len(exchange.settlements))


async def test_a_settlement_that_a_failover_has_lost_is_made_good_after_the_outage(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    store = Forgetful(scene.clock)
    scene.store.inner = store
    ran: list[str] = []
    stay = asyncio.Event()

    @scene.app.task(breaker=None)
    async def work(name: str) -> None:
        ran.append(name)
        if name == "long":
            await stay.wait()

    long = await work.aenqueue("long")
    async with scene.worker():
        await scene.let_pass(1.0)
        store.is_forgetting = True
        short = await work.aenqueue("short")
        await scene.let_pass(1.0)
        assert (await scene.record(short)).state is JobState.RUNNING
        store.is_forgetting = False
        scene.store.fail()
        await scene.let_pass(2.0)
        await scene.mend()
        await scene.let_pass(6.0)
        assert (await scene.record(short)).state is JobState.COMPLETED
        assert (await scene.record(long)).state is JobState.RUNNING
        stay.set()
        await scene.let_pass(0.5)
        assert (await scene.record(long)).state is JobState.COMPLETED
    assert ran == ["long", "short", "short"]
    assert any("1 jobs are this worker's in the store, and not here" in line for line in told(caplog))


# ---------------------------------------------------------------- a request that is done after its sender gave it up


class Late(MemoryStore):
    """Does a claim or a reclaim once more when it is told to, as a network does that had kept it."""

    kept: Callable[[], Awaitable[object]] | None = None

    async def exchange(self, exchange: Exchange) -> Exchanged:
        if exchange.claim is not None and exchange.claim.limit:
            self.kept = functools.partial(super().exchange, exchange)
        return await super().exchange(exchange)


async def test_jobs_that_a_late_claim_brought_are_given_back_and_run(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    store = Late(scene.clock)
    scene.store.inner = store
    ran: list[int] = []

    @scene.app.task(breaker=None)
    async def work(n: int) -> None:
        ran.append(n)

    async with scene.worker() as (_, running):
        await scene.let_pass(1.0)
        late = store.kept
        assert late is not None
        job = scene.app.tasks[work.name].bind(1).job
        await MemoryStore.enqueue(store, [job])
        await late()  # before anybody else
        (record,) = await store.get([job.id])
        assert record is not None
        assert record.state is JobState.RUNNING
        await scene.let_pass(3 * SETTINGS.beat_s)
        (record,) = await store.get([job.id])
        assert record is not None
        assert (record.state, [one.number for one in record.attempts]) == (JobState.COMPLETED, [1])
        assert not running.done()
    assert ran == [1]
    assert any("1 jobs are this worker's in the store, and not here" in line for line in told(caplog))


async def test_orphans_that_a_late_reclaim_brought_are_judged(scene: Scene) -> None:
    store = MemoryStore(scene.clock)
    scene.store.inner = store

    @scene.app.task(breaker=None)
    async def work() -> None: ...

    job = scene.app.tasks[work.name].bind().job
    await store.heartbeat(WorkerRecord(id="dead", lease_s=1.0))
    await store.enqueue([job])
    await store.exchange(Exchange(claim=Claim(worker="dead", token=new_token(), limit=1)))
    scene.store.fail("reclaim")
    async with scene.worker() as (worker, _):
        await scene.let_pass(2.0)
        assert len(await store.reclaim(worker.id, new_token(), 10)) == 1  # which nobody hears of
        await scene.let_pass(3 * SETTINGS.beat_s)
        (record,) = await store.get([job.id])
    assert record is not None
    assert record.state is JobState.COMPLETED
    assert [one.error_name for one in record.attempts] == ["WorkerDied", ""]


class Silent(MemoryStore):
    """Does what a reclaim asks for, and says so to nobody."""

    done = 0

    async def reclaim(self, worker: str, token: bytes, limit: int) -> list[Delivery]:
        reply = await super().reclaim(worker, token, limit)
        if reply:
            self.done += 1
            await asyncio.Event().wait()
        return reply


async def test_orphans_of_a_reclaim_that_a_stop_has_cut_off_do_not_wait_for_the_grace_time(scene: Scene) -> None:
    scene.store.inner = store = Silent(scene.clock)
    stay = asyncio.Event()

    @scene.app.task(breaker=None)
    async def work(is_long: bool) -> None:
        if is_long:
            await stay.wait()

    long = await work.aenqueue(True)
    async with scene.worker() as (worker, running):
        await scene.let_pass(1.0)
        job = scene.app.tasks[work.name].bind(False).job
        await store.heartbeat(WorkerRecord(id="dead", lease_s=1.0))
        await store.enqueue([job])
        await store.exchange(Exchange(claim=Claim(worker="dead", token=new_token(), limit=1)))
        await scene.let_pass(3.0)
        assert store.done == 1
        worker.stop()
        await scene.let_pass(3 * SETTINGS.beat_s)
        (record,) = await store.get([job.id])
        assert record is not None
        assert (record.state, [one.error_name for one in record.attempts]) == (JobState.QUEUED, ["WorkerDied"])
        assert (await scene.record(long)).state is JobState.RUNNING
        stay.set()
        await scene.let_pass(1.0)
        assert running.result() is Exit.DRAINED


async def test_settlements_on_their_way_are_not_taken_for_unknown_ones(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    @scene.app.task(breaker=None)
    async def work(n: int) -> None:
        await scene.clock.asleep(0.3)

    await scene.app.aenqueue_many([work.bind(n) for n in range(200)])
    async with scene.worker(replace(SETTINGS, room=Room(concurrency=10))):
        done = 0
        while done < 200:
            await scene.let_pass(2.0)
            tallies = (await scene.store.inner.stats()).tallies
            done = sum(tally.n for tally in tallies if tally.state is JobState.COMPLETED)
    assert told(caplog) == []


async def test_a_worker_that_was_given_up_before_it_began_is_replaced(scene: Scene) -> None:
    worker = scene.app.worker(SETTINGS)
    await scene.store.inner.heartbeat(WorkerRecord(id=worker.id, lease_s=0.0))
    assert await worker.run() is Exit.REPLACE


async def test_a_claim_whose_answer_was_lost_is_asked_for_again_and_not_given_back(scene: Scene) -> None:
    ran: list[int] = []

    @scene.app.task(breaker=None)
    async def work(job: JobContext) -> None:
        ran.append(job.attempt)

    async with scene.worker() as (worker, _):
        await scene.let_pass(1.0)
        scene.store.fail("exchange", fault="lost")
        job = scene.app.tasks[work.name].bind().job
        await scene.store.inner.enqueue([job])
        await scene.let_pass(0.5)
        assert worker._unanswered is not None
        for _ in range(2):  # the heart beats on a way of its own
            beat = await scene.store.inner.heartbeat(WorkerRecord(id=worker.id, lease_s=LEASE_S))
            assert list(beat.held) == [worker._unanswered.token]
            worker._held.hear(beat.held)
            await worker._look_at_held()
        assert worker.runner.settlements == []
        await scene.mend()
        await scene.let_pass(6.0)
    assert ran == [1]


async def test_what_a_worker_is_given_after_it_was_told_to_stop_is_given_back_at_once(scene: Scene) -> None:
    ran: list[int] = []

    @scene.app.task(breaker=None)
    async def work(n: int) -> None:
        ran.append(n)

    async with scene.worker() as (worker, running):
        await scene.let_pass(1.0)
        scene.store.fail("exchange", fault="late", late_s=1.0)
        job = await work.aenqueue(1)
        await scene.let_pass(0.5)
        worker.stop()
        scene.store.mend()
        await scene.let_pass(3.0)
        assert running.result() is Exit.DRAINED
        record = await scene.record(job)
    assert (record.state, record.attempts, ran) == (JobState.QUEUED, (), [])


async def test_a_run_until_idle_that_is_told_to_stop_ends(scene: Scene) -> None:
    @scene.app.task(breaker=None)
    async def work(n: int) -> None:
        if n == 3:
            worker.stop()

    jobs = await scene.app.aenqueue_many([work.bind(n) for n in range(2_000)])
    worker = scene.app.worker(replace(SETTINGS, room=Room(concurrency=2)))
    async with asyncio.timeout(10):
        await worker.run_until_idle(skip=False)
    states = {(await scene.record(job)).state for job in jobs}
    assert states == {JobState.COMPLETED, JobState.QUEUED}
