"""A worker from its first heartbeat to its leave: what it claims, guards, settles, loses and gives back."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.app import App, Job
from holdfast.clock import SystemClock, new_token
from holdfast.errors import StoreAway, StoreError, Transient, Unwritable
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Beat, Claim, Exchange, Exchanged, Stats, WorkerRecord
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.guards.budget import RetryBudget
from holdfast.runtime.runner import Room
from holdfast.runtime.worker import Exit, Worker, WorkerSettings
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.types import BreakerMode, Change, Discard, JobRecord, JobState

NO_RETRY = RetryPolicy(max_retries=0)
QUICK = WorkerSettings(lease_s=30.0, heartbeat_s=0.02, sweep_s=0.02, grace_s=2.0)


@pytest.fixture
def app() -> App:
    return App("memory://")


@asynccontextmanager
async def working(app: App, settings: WorkerSettings = QUICK, **options: Any) -> AsyncIterator[asyncio.Task[Exit]]:
    """A worker that runs while the block does; it ends when it is stopped, or at the end of the block."""
    worker = app.worker(settings, **options)
    running = asyncio.create_task(worker.run())
    await until(lambda: running.done() or hasattr(worker, "_store_wait"))
    running.worker = worker  # type: ignore[attr-defined]
    try:
        yield running
    finally:
        worker.stop()
        async with asyncio.timeout(10):
            await asyncio.gather(running, return_exceptions=True)


def stop(running: asyncio.Task[Exit]) -> None:
    worker: Worker = running.worker  # type: ignore[attr-defined]
    worker.stop()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():
            await SystemClock().asleep(0.001)


async def record_of(app: App, job: Job[Any]) -> JobRecord:
    (record,) = await app.store.get([job.id])
    assert record is not None
    return record


async def until_state(app: App, job: Job[Any], state: JobState) -> JobRecord:
    async with asyncio.timeout(5):
        while (record := await record_of(app, job)).state is not state:
            await SystemClock().asleep(0.001)
    return record


def memory_of(app: App) -> MemoryStore:
    assert isinstance(app.store, MemoryStore)
    return app.store


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lease_s", 0),
        ("sweep_s", 0),
        ("grace_s", -1),
        ("heartbeat_s", 20.0),
        ("room", Room(concurrency=0)),
        ("room", Room(threads=0)),
        ("room", Room(isolates=0)),
    ],
)
def test_settings_that_cannot_work_are_refused(field: str, value: Any) -> None:
    options: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match="must be"):
        WorkerSettings(**options)


# ---------------------------------------------------------------- work


async def test_a_worker_runs_what_is_enqueued_while_it_waits(app: App) -> None:
    done = asyncio.Event()

    @app.task
    async def work() -> None:
        done.set()

    async with working(app) as running:
        job = await work.aenqueue()
        async with asyncio.timeout(5):
            await done.wait()
        await until_state(app, job, JobState.COMPLETED)
        (worker,) = (await app.store.stats()).workers
        assert worker.pid > 0
    assert running.result() is Exit.DRAINED
    assert (await app.store.stats()).workers == []


async def test_higher_priorities_run_first(app: App) -> None:
    ran = []

    @app.task(breaker=None)
    def work(n: int) -> None:
        ran.append(n)

    for n in (1, 5, 3, -2, 4):
        await work.options(priority=n).aenqueue(n)
    await app.worker(WorkerSettings(room=Room(threads=1))).run_until_idle(skip=True)
    assert ran == [5, 4, 3, 1, -2]


async def test_a_worker_takes_from_its_queues_only(app: App) -> None:
    @app.task
    async def work() -> None: ...

    mine, other = await work.options(queue="mine").aenqueue(), await work.options(queue="other").aenqueue()
    await app.worker(WorkerSettings(queues=("mine",))).run_until_idle(skip=True)
    assert (await record_of(app, mine)).state is JobState.COMPLETED
    assert (await record_of(app, other)).state is JobState.QUEUED


async def test_blocking_jobs_use_all_threads(app: App) -> None:
    pause = threading.Event()

    @app.task(breaker=None)
    def block() -> None:
        pause.wait(0.02)

    await app.aenqueue_many([block.bind() for _ in range(200)])
    began_s = SystemClock().monotonic()
    await app.worker(WorkerSettings(room=Room(threads=20))).run_until_idle(skip=True)
    assert SystemClock().monotonic() - began_s < 1.0  # 0.2 s at best, and 4 s on one thread
    assert (await app.astats()).jobs == {"completed": 200}


async def test_a_few_hundred_quick_jobs_each_run_once(app: App) -> None:
    ran: list[int] = []

    @app.task
    async def quick(n: int) -> None:
        ran.append(n)

    @app.task
    def sync_quick(n: int) -> None:
        ran.append(n)

    await app.aenqueue_many([(quick if n % 2 else sync_quick).bind(n) for n in range(1000)])
    await app.arun_until_idle()
    assert sorted(ran) == list(range(1000))


async def test_a_retry_waits_its_delay_on_the_stores_clock(app: App) -> None:
    @app.task(retry=RetryPolicy(max_retries=2, initial_delay=100.0, max_delay=1000.0, multiplier=2.0, jitter=False))
    async def flaky() -> None:
        raise Transient("busy")

    job = await flaky.aenqueue()
    began_s = SystemClock().monotonic()
    await app.arun_until_idle()
    record = await record_of(app, job)
    assert (record.state, record.reason) == (JobState.DEAD_LETTER, "total time over")
    assert [one.delay_s for one in record.attempts] == [100.0, 200.0, None] or len(record.attempts) == 2
    assert SystemClock().monotonic() - began_s < 5.0


async def test_schedules_fire_through_the_worker() -> None:
    clock = ManualClock(auto=False)
    app = App("memory://", clock=clock)
    ran = []

    @app.task
    async def report(n: int) -> None:
        ran.append(n)

    app.schedule(report.bind(7), every=60)
    async with working(app):
        for _ in range(3):
            await until(lambda: bool(clock._timers))
            clock.advance(61.0)
            await until_idle_for(clock)
        await until(lambda: len(ran) >= 2)
    assert set(ran) == {7}


async def until_idle_for(clock: ManualClock) -> None:
    for _ in range(20):
        clock.advance(0.1)
        await SystemClock().asleep(0.001)


async def test_a_cancelled_job_is_stopped_within_a_heartbeat(app: App) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @app.task
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with working(app) as running:
        job = await endless.aenqueue()
        async with asyncio.timeout(5):
            await begun.wait()
            assert await job.acancel()
            await stopped.wait()
    assert (running.result(), job.state) == (Exit.DRAINED, JobState.CANCELLED)
    assert (await app.astats()).executed == 0


# ---------------------------------------------------------------- guards


async def test_a_breaker_opens_over_jobs_and_parks_them_at_no_cost(app: App) -> None:
    is_down = True

    @app.task(retry=NO_RETRY, breaker=CircuitBreaker("b", failure_threshold=3, recovery_timeout=60.0))
    async def call() -> None:
        if is_down:
            raise Transient("down")

    jobs = await app.aenqueue_many([call.bind() for _ in range(10)])
    worker = app.worker(WorkerSettings(room=Room(concurrency=1)))
    async with asyncio.timeout(5):
        await worker._open()
        while len((await app.astats()).jobs) < 2 or (await app.astats()).jobs.get("dead_letter", 0) < 3:
            await worker._turn()
            await SystemClock().asleep(0)
        for _ in range(5):
            await worker._turn()
            await SystemClock().asleep(0)
    stats = await app.astats()
    assert stats.breakers == {"b": BreakerMode.OPEN}
    assert stats.jobs["dead_letter"] == 3
    is_down = False
    await worker._close()
    await app.arun_until_idle()
    records = [await record_of(app, job) for job in jobs]
    assert sorted(record.state for record in records) == sorted([JobState.DEAD_LETTER] * 3 + [JobState.COMPLETED] * 7)
    assert all(len(record.attempts) == 1 for record in records)
    assert (await app.astats()).breakers == {"b": BreakerMode.CLOSED}


async def test_threads_begin_no_more_than_the_threshold_and_what_is_in_flight_before_the_breaker_holds_the_rest(
    app: App,
) -> None:
    threads, threshold = 8, 5
    ran, pause = [], threading.Event()

    @app.task(retry=NO_RETRY, breaker=CircuitBreaker("b", failure_threshold=threshold, recovery_timeout=3600.0))
    def call(n: int) -> None:
        ran.append(n)
        pause.wait(0.001 * (n % 3))
        raise Transient("down")

    await app.aenqueue_many([call.bind(n) for n in range(300)])
    async with working(app, WorkerSettings(heartbeat_s=1.0, sweep_s=1.0, room=Room(threads=threads))):
        async with asyncio.timeout(10):
            while (stats := await app.astats()).breakers != {"b": BreakerMode.OPEN} or "running" in stats.jobs:
                await SystemClock().asleep(0.001)
    assert threshold <= len(ran) <= threshold + threads
    assert (await app.astats()).jobs["dead_letter"] == len(ran)


async def test_a_breaker_that_was_open_before_the_worker_came_is_no_news(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(breaker="b")
    async def call() -> None: ...

    caplog.set_level(logging.INFO, "holdfast.worker")
    await app.breakers.aforce_open("b")
    async with working(app):
        await until(lambda: bool(told_of_circuits(caplog)))
        await app.breakers.areset("b")
        await until(lambda: len(told_of_circuits(caplog)) == 2)
        await app.breakers.aforce_open("b")
        await until(lambda: len(told_of_circuits(caplog)) == 3)
    assert told_of_circuits(caplog) == [
        (logging.INFO, "circuit b is forced_open already"),
        (logging.INFO, "circuit b: forced_open -> closed"),
        (logging.WARNING, "circuit b: closed -> forced_open"),
    ]


def told_of_circuits(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(one.levelno, one.message) for one in caplog.records if one.message.startswith("circuit ")]


async def test_half_open_trials_that_fail_open_it_again(app: App) -> None:
    ran = []

    @app.task(
        retry=RetryPolicy(max_retries=3, initial_delay=0.1, jitter=False),
        breaker=CircuitBreaker("b", failure_threshold=2, recovery_timeout=60.0, half_open_max_calls=1),
    )
    async def call(n: int) -> None:
        ran.append(n)
        raise Transient("down")

    jobs = await app.aenqueue_many([call.bind(n) for n in range(4)])
    await app.worker(WorkerSettings(room=Room(concurrency=1))).run_until_idle(skip=True)
    records = [await record_of(app, job) for job in jobs]
    assert {record.state for record in records} == {JobState.DEAD_LETTER}
    assert {record.reason for record in records} == {"retries used up"}
    assert [len(record.attempts) for record in records] == [4] * 4
    assert len(ran) == 16


async def test_jobs_that_need_not_wait_for_a_breaker_are_buried_while_it_is_open(app: App) -> None:
    @app.task(name="patient", breaker="b")
    async def patient() -> None: ...

    @app.task(name="hasty", breaker="b", when_open="bury")
    async def hasty() -> None: ...

    waiting, buried = await patient.aenqueue(), await hasty.aenqueue()
    await app.breakers.aforce_open("b")
    await app.arun_until_idle()
    record = await record_of(app, buried)
    assert (record.state, record.reason) == (JobState.DEAD_LETTER, "breaker open")
    assert (await record_of(app, waiting)).state is JobState.QUEUED


@pytest.mark.parametrize("scope", ["task", "user", "project", "tenant"])
async def test_a_rate_limit_parks_what_is_too_much_at_no_cost(app: App, scope: str) -> None:
    starts: dict[str, list[float]] = {}
    store = memory_of(app)
    options: dict[str, Any] = {"rate": {scope: "2/minute"}, "breaker": None, "name": "limited"}

    @app.task(**options)
    async def limited(who: str) -> None:
        starts.setdefault("all" if scope == "task" else who, []).append(store._now())

    jobs: list[Job[Any]] = []
    for who in ("a", "b"):
        named: dict[str, Any] = {} if scope == "task" else {scope: who}
        jobs += [await limited.options(**named).aenqueue(who) for _ in range(5)]
    await app.arun_until_idle()
    assert set(starts) == ({"all"} if scope == "task" else {"a", "b"})
    for times in starts.values():
        ordered = sorted(times)
        assert len(ordered) == (10 if scope == "task" else 5)
        assert all(later - earlier >= 59.0 for earlier, later in zip(ordered, ordered[2:], strict=False))
    records = [await record_of(app, job) for job in jobs]
    assert {(record.state, len(record.attempts)) for record in records} == {(JobState.COMPLETED, 1)}


async def test_an_empty_retry_budget_parks_retries_and_no_first_attempts(app: App) -> None:
    retried: list[int] = []
    first: list[int] = []

    @app.task(
        retry=RetryPolicy(max_retries=1, initial_delay=10.0, jitter=False, total_timeout=None),
        breaker=None,
        budget=RetryBudget(ratio=1.0, cap=2.0),
    )
    async def flaky(n: int) -> None:
        if n not in first:
            first.append(n)
            raise Transient("busy")
        retried.append(n)

    jobs = await app.aenqueue_many([flaky.bind(n) for n in range(6)])
    async with working(app):
        for job in jobs:
            await until_state(app, job, JobState.RETRYING)
    memory_of(app).clock_offset_s += 11.0  # all of them ask at once, and nothing has been earned
    await app.arun_until_idle()
    records = [await record_of(app, job) for job in jobs]
    assert {record.state for record in records} == {JobState.COMPLETED}
    assert (len(first), len(retried)) == (6, 6)
    assert [len(record.attempts) for record in records] == [2] * 6
    counts = {count.name: count.n for count in (await app.store.stats(0)).counts}
    assert counts["parked"] >= 1


# ---------------------------------------------------------------- ready or not


async def test_a_worker_is_ready_while_its_store_answers_and_until_it_drains(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = asyncio.Event()

    @app.task(name="long", breaker=None)
    async def long() -> None:
        await blocked.wait()

    async def away(_: Exchange) -> Exchanged:
        raise StoreAway("nobody answers")

    worker = app.worker(replace(QUICK, lease_s=0.4))
    assert (worker.is_ready(), worker.why_not_ready(), worker.last_exchange_s) == (False, "it has not begun", None)
    assert worker.report().running == 0
    running = asyncio.create_task(worker.run())
    await until(worker.is_ready)
    await long.aenqueue()
    await until(lambda: worker.report().running == 1)
    assert worker.last_exchange_s is not None
    with monkeypatch.context() as patched:
        patched.setattr(app.store, "exchange", away)
        await until(lambda: worker.why_not_ready() == "the store does not answer")
        assert worker.last_exchange_s > 0.2
    await until(worker.is_ready)
    worker.stop()
    assert worker.why_not_ready() == "it is draining"
    blocked.set()
    await running
    assert worker.report().counts == {"completed": 1}


async def test_a_worker_whose_store_is_away_from_the_start_says_so(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(_: Exchange) -> Exchanged:
        raise StoreAway("nobody answers")

    worker = app.worker(QUICK)
    with monkeypatch.context() as patched:
        patched.setattr(app.store, "exchange", away)
        running = asyncio.create_task(worker.run())
        await until(lambda: worker.why_not_ready() != "it has not begun")
        assert (worker.why_not_ready(), worker.report().why_not_ready) == ("the store does not answer",) * 2
    await until(worker.is_ready)
    worker.stop()
    await running


async def test_a_worker_without_a_place_for_more_is_ready_however_long_it_asks_for_nothing(app: App) -> None:
    blocked = asyncio.Event()

    @app.task(name="long", breaker=None)
    async def long() -> None:
        await blocked.wait()

    await long.aenqueue()
    settings = replace(QUICK, lease_s=0.2, room=Room(concurrency=1, threads=1))
    async with working(app, settings) as running:
        worker: Worker = running.worker  # type: ignore[attr-defined]
        await until(lambda: (worker.last_exchange_s or 0.0) > 0.2)
        assert worker.is_ready()
        blocked.set()


# ---------------------------------------------------------------- totals


def totals_of(stats: Stats) -> dict[tuple[str, str], int]:
    return {(one.task, one.name): one.n for one in stats.totals}


async def test_totals_say_what_became_of_every_attempt_since_the_store_was_made(app: App) -> None:
    @app.task(name="flaky", retry=RetryPolicy(max_retries=1), breaker=None)
    async def flaky(n: int) -> None:
        seen.append(n)
        if n == 0 or seen.count(n) < 2:
            raise Transient("busy")

    seen: list[int] = []
    await app.aenqueue_many([flaky.bind(n) for n in range(3)])
    await app.arun_until_idle()
    totals = totals_of(await app.store.stats())
    expected = {"received": 3, "retried": 3, "completed": 2, "healed": 2, "failed": 1, "dead": 1, "failed:transient": 4}
    assert {name: totals["flaky", name] for name in expected} == expected
    assert sum(n for (_, name), n in totals.items() if name.startswith("run_le:")) == 6
    assert sum(n for (_, name), n in totals.items() if name.startswith("wait_le:")) == 6


async def ends_of(app: App) -> dict[str, int]:
    """How attempts ended, in all."""
    totals = totals_of(await app.store.stats())
    names = ("completed", "retried", "failed", "dead")
    sums = {name: sum(n for (_, counted), n in totals.items() if counted == name) for name in names}
    return {name: n for name, n in sums.items() if n}


async def test_what_is_sent_again_is_the_same_and_what_came_since_goes_after_it(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = asyncio.Event()
    store, sent = app.store, list[Exchange]()

    @app.task(name="first", breaker=None)
    async def first() -> None: ...

    @app.task(name="second", breaker=None)
    async def second() -> None:
        await go.wait()

    async def lose_the_first(exchange: Exchange) -> Exchanged:
        reply = await MemoryStore.exchange(memory_of(app), exchange)
        if exchange.counts:
            sent.append(exchange)
            if len(sent) == 1:
                go.set()
                for _ in range(5):
                    await asyncio.sleep(0)  # noqa: TID251 - lets the second one end meanwhile
                raise StoreAway("the answer was lost")
        return reply

    monkeypatch.setattr(store, "exchange", lose_the_first)
    await app.aenqueue_many([first.bind(), second.bind()])
    async with working(app, replace(QUICK, heartbeat_s=10.0)):
        await until(lambda: len(sent) >= 3)
    lost, again, later = sent[:3]
    assert (again.settlements, again.counts, again.counted) == (lost.settlements, lost.counts, lost.counted)
    assert [{one.task for one in exchange.counts} for exchange in (lost, later)] == [{"first"}, {"second"}]
    assert [len(exchange.settlements) for exchange in (lost, later)] == [1, 1]
    assert await ends_of(app) == {"completed": 2}


async def test_a_worker_with_nothing_to_settle_or_claim_sends_its_totals_after_a_heartbeat(app: App) -> None:
    blocked = asyncio.Event()

    @app.task(name="quick", breaker=None)
    async def quick() -> None: ...

    @app.task(name="long", breaker=None)
    async def long() -> None:
        await blocked.wait()

    await app.aenqueue_many([quick.bind(), long.bind()])
    settings = replace(QUICK, heartbeat_s=0.1, room=Room(concurrency=1, threads=1))
    async with working(app, settings):
        async with asyncio.timeout(5):
            while ("quick", "received") not in totals_of(await app.store.stats()):
                await SystemClock().asleep(0.001)
        states = {tally.task: tally.state for tally in (await app.store.stats()).tallies}
        assert states == {"quick": JobState.COMPLETED, "long": JobState.RUNNING}
        blocked.set()


async def test_a_worker_that_is_stopped_leaves_its_totals_behind(app: App) -> None:
    @app.task(name="quick", breaker=None)
    async def quick() -> None: ...

    job = await quick.aenqueue()
    async with working(app, replace(QUICK, heartbeat_s=10.0)):
        await until_state(app, job, JobState.COMPLETED)
        assert totals_of(await app.store.stats()) == {("quick", "completed"): 1}  # it came with the settlement
    assert totals_of(await app.store.stats())["quick", "received"] == 1


async def test_a_stop_does_not_wait_for_a_store_that_is_away_because_of_totals(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="quick", breaker=None)
    async def quick() -> None: ...

    async def away(_: Exchange) -> Exchanged:
        raise StoreAway("nobody answers")

    job = await quick.aenqueue()
    async with working(app, replace(QUICK, heartbeat_s=10.0, grace_s=60.0)) as running:
        await until_state(app, job, JobState.COMPLETED)
        monkeypatch.setattr(app.store, "exchange", away)
        stop(running)
        async with asyncio.timeout(5):
            assert await running is Exit.DRAINED
    assert "the counts of the last seconds are lost: nobody answers" in caplog.text


# ---------------------------------------------------------------- the end


async def test_a_stop_before_the_worker_has_begun_is_heard(app: App) -> None:
    worker = app.worker(QUICK)
    worker.stop()
    async with asyncio.timeout(5):
        assert await worker.run() is Exit.DRAINED


async def test_a_graceful_stop_finishes_what_runs_and_gives_back_what_waits(app: App) -> None:
    begun, go = threading.Event(), threading.Event()

    @app.task
    def work() -> None:
        begun.set()
        go.wait(5)

    settings = WorkerSettings(heartbeat_s=0.02, sweep_s=0.5, grace_s=5.0, room=Room(threads=1))
    async with working(app, settings) as running:
        first = await work.aenqueue()
        await until(begun.is_set)
        second = await work.aenqueue()
        await until_state(app, second, JobState.RUNNING)
        stop(running)
        given_back = await until_state(app, second, JobState.QUEUED)
        assert (await record_of(app, first)).state is JobState.RUNNING
        assert given_back.due_at <= given_back.created_at + 5.0
        go.set()
    assert running.result() is Exit.DRAINED
    assert (await record_of(app, first)).state is JobState.COMPLETED
    await app.arun_until_idle()
    assert [one.number for one in (await record_of(app, second)).attempts] == [1]


async def test_after_the_grace_time_what_runs_is_cancelled_and_released_at_no_cost(app: App) -> None:
    begun = asyncio.Event()
    stopped = []

    @app.task(retry=NO_RETRY)
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(1)

    settings = WorkerSettings(heartbeat_s=0.02, sweep_s=0.5, grace_s=0.02)
    async with working(app, settings) as running:
        job = await endless.aenqueue()
        async with asyncio.timeout(5):
            await begun.wait()
        stop(running)
        async with asyncio.timeout(5):
            assert await running is Exit.RELEASED
    record = await record_of(app, job)
    assert (record.state, record.attempts, stopped) == (JobState.QUEUED, (), [1])
    (delivery,) = await claimed_by_another(app)
    assert (delivery.retries, delivery.is_suspect, delivery.orphaned) == (0, False, 0)


async def test_after_the_grace_time_every_job_that_is_cancelled_may_clean_up(app: App) -> None:
    clean = asyncio.Event()
    begun: list[str] = []
    cleaned: list[str] = []

    @app.task(retry=NO_RETRY)
    async def endless(name: str) -> None:
        begun.append(name)
        try:
            await asyncio.Event().wait()
        finally:
            if name == "slow":
                await clean.wait()
            cleaned.append(name)

    settings = WorkerSettings(heartbeat_s=0.02, sweep_s=0.5, grace_s=0.02)
    async with working(app, settings) as running:
        jobs = await app.aenqueue_many([endless.bind(name) for name in ("slow", "quick")])
        await until(lambda: len(begun) == 2)
        stop(running)
        await until(lambda: cleaned == ["quick"])
        for _ in range(20):
            await SystemClock().asleep(0)
        assert not running.done()  # or its process would end with one job in the middle of its clean-up
        clean.set()
        async with asyncio.timeout(5):
            assert await running is Exit.RELEASED
    assert cleaned == ["quick", "slow"]
    assert {(await record_of(app, job)).state for job in jobs} == {JobState.QUEUED}


async def claimed_by_another(app: App) -> Any:
    await app.store.heartbeat(WorkerRecord(id="another", lease_s=30.0))
    reply = await app.store.exchange(Exchange(claim=Claim(worker="another", token=new_token(), limit=10)))
    return reply.deliveries


async def test_a_thread_that_hangs_has_the_worker_replaced_and_its_job_judged_as_timed_out(app: App) -> None:
    go, done = threading.Event(), list[int]()

    @app.task(name="stuck", timeout=0.05, retry=RetryPolicy(initial_delay=1.0))
    def stuck() -> None:
        if not done:
            done.append(1)
            go.wait(10)

    began_s = SystemClock().monotonic()
    async with working(app, is_replaceable=True) as running:
        job = await stuck.aenqueue()
        async with asyncio.timeout(10):
            assert await running is Exit.REPLACE
    took_s = SystemClock().monotonic() - began_s
    assert (await record_of(app, job)).state is JobState.RUNNING  # nobody may run it beside the thread
    (worker,) = (await app.store.stats()).workers
    await app.store.heartbeat(WorkerRecord(id=worker.id, lease_s=0.0))  # its process is gone
    go.set()
    await app.arun_until_idle()
    record = await record_of(app, job)
    assert record.state is JobState.COMPLETED
    assert record.attempts[0].error_name.endswith("TimeLimitExceeded")
    assert len(record.attempts) == 2
    assert took_s < 2.0  # the hanging thread is not waited for


async def test_a_thread_that_outlives_its_worker_keeps_its_job_until_it_has_ended(app: App) -> None:
    begun, go, ran = threading.Event(), threading.Event(), list[int]()

    @app.task(name="slow", retry=NO_RETRY)
    def slow() -> None:
        ran.append(1)
        begun.set()
        go.wait(10)

    lease_s = 0.3
    async with working(app, WorkerSettings(lease_s=lease_s, sweep_s=0.02, grace_s=0.01)) as first:
        job = await slow.aenqueue()
        await until(begun.is_set)
        stop(first)
        async with asyncio.timeout(5):
            assert await first is Exit.RELEASED
    async with working(app):
        ends_s = SystemClock().monotonic() + 3 * lease_s
        await until(lambda: SystemClock().monotonic() > ends_s)  # long enough for a lease to be lost
        assert ((await record_of(app, job)).state, ran) == (JobState.RUNNING, [1])
        go.set()
        record = await until_state(app, job, JobState.COMPLETED)
        assert (record.attempt, ran) == (1, [1])
        async with asyncio.timeout(5):
            while len((await app.store.stats()).workers) > 1:  # the first one takes its leave
                await SystemClock().asleep(0.001)
    await until(lambda: not hearts())


async def test_threads_that_outlive_their_worker_settle_their_jobs_as_each_ends(app: App) -> None:
    begun, goes = list[int](), [threading.Event(), threading.Event()]

    @app.task(name="slow", retry=NO_RETRY)
    def slow(n: int) -> None:
        begun.append(n)
        goes[n].wait(10)

    async with working(app, replace(QUICK, grace_s=0.01)) as running:
        jobs = await app.aenqueue_many([slow.bind(n) for n in range(2)])
        await until(lambda: len(begun) == 2)
        stop(running)
        async with asyncio.timeout(5):
            assert await running is Exit.RELEASED
    goes[0].set()
    await until_state(app, jobs[0], JobState.COMPLETED)
    assert (await record_of(app, jobs[1])).state is JobState.RUNNING
    goes[1].set()
    await until_state(app, jobs[1], JobState.COMPLETED)
    await until(lambda: not hearts())


def hearts() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "holdfast-heart"]


def test_a_thread_that_outlives_its_event_loop_keeps_its_job_until_it_has_ended(app: App) -> None:
    begun, go, ran = threading.Event(), threading.Event(), list[int]()

    @app.task(name="slow", retry=NO_RETRY)
    def slow() -> None:
        ran.append(1)
        begun.set()
        go.wait(10)

    lease_s = 0.3
    job = slow.enqueue()

    async def leave_it_behind() -> None:
        async with working(app, WorkerSettings(lease_s=lease_s, sweep_s=0.02, grace_s=0.01)):
            await until(begun.is_set)

    async def look_after_it() -> JobRecord:
        async with working(app):
            ends_s = SystemClock().monotonic() + 3 * lease_s
            await until(lambda: SystemClock().monotonic() > ends_s)  # long enough for a lease to be lost
            assert ((await record_of(app, job)).state, ran) == (JobState.RUNNING, [1])
            go.set()
            return await until_state(app, job, JobState.COMPLETED)

    asyncio.run(leave_it_behind())
    record = asyncio.run(look_after_it())
    assert ([one.outcome for one in record.attempts], ran) == ([Change.RELEASE, Change.COMPLETE], [1, 1])
    assert hearts() == []


async def test_a_worker_that_lost_its_lease_stops_its_work_and_settles_nothing(app: App) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @app.task
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise

    async with working(app) as running:
        job = await endless.aenqueue()
        async with asyncio.timeout(5):
            await begun.wait()
            (worker,) = (await app.store.stats()).workers
            await app.store.heartbeat(WorkerRecord(id=worker.id, lease_s=0.0))  # the store has given it up
            assert await running is Exit.REPLACE
            await stopped.wait()
    assert (await record_of(app, job)).state is JobState.RUNNING
    await app.store.heartbeat(WorkerRecord(id="another", lease_s=30.0))
    (orphan,) = await app.store.reclaim("another", new_token(), 10)
    assert (orphan.id, orphan.orphaned) == (job.id, 1)


async def test_a_dead_workers_jobs_are_run_by_the_next_one_at_no_cost(app: App) -> None:
    @app.task(retry=NO_RETRY)
    async def work() -> str:
        return "done"

    jobs = await app.aenqueue_many([work.bind() for _ in range(3)])
    assert len(await claimed_by_another(app)) == 3
    memory_of(app).clock_offset_s += 31.0
    await app.arun_until_idle()
    records = [await record_of(app, job) for job in jobs]
    assert {(record.state, record.attempt) for record in records} == {(JobState.COMPLETED, 1)}
    assert [[one.outcome for one in record.attempts] for record in records] == [[Change.RELEASE, Change.COMPLETE]] * 3
    lost = [record.attempts[0] for record in records]
    assert {(one.number, one.error_name, one.failure_type, one.worker) for one in lost} == {
        (1, "WorkerDied", None, "another")
    }
    assert all("not counted" in one.message for one in lost)
    stats = await app.astats()
    assert (stats.executed, stats.failed, stats.retried) == (3, 0, 0)


async def test_a_startup_hook_that_raises_leaves_no_worker_behind(app: App) -> None:
    @app.on_startup
    def broken() -> None:
        raise ZeroDivisionError

    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        await app.worker(QUICK).run()
    await until(lambda: threading.active_count() <= before)
    assert (await app.store.stats()).workers == []


# ---------------------------------------------------------------- a store that fails


class FlakyStore(MemoryStore):
    """Raises StoreError at some exchanges: before doing them, or after."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: list[tuple[Callable[[Exchange], bool], bool]] = []
        self.failed = 0
        self.beats_fail = False

    async def exchange(self, exchange: Exchange) -> Exchanged:
        is_after = None
        if self.fails and self.fails[0][0](exchange):
            _, is_after = self.fails.pop(0)
            self.failed += 1
        if is_after is False:
            raise StoreError("failed before")
        reply = await super().exchange(exchange)
        if is_after:
            raise StoreError("failed after")
        return reply

    async def heartbeat(self, worker: WorkerRecord) -> Beat:
        if self.beats_fail:
            raise StoreError("no connection")
        return await super().heartbeat(worker)


@pytest.fixture
def flaky(app: App) -> FlakyStore:
    app._store = store = FlakyStore()
    return store


@pytest.mark.parametrize("is_after", [False, True])
async def test_no_settlement_is_lost_when_an_exchange_fails(app: App, flaky: FlakyStore, is_after: bool) -> None:
    ran = []

    @app.task(breaker=None)
    async def work(n: int) -> None:
        ran.append(n)

    flaky.fails = [(lambda exchange: bool(exchange.settlements), is_after)] * 2
    jobs = await app.aenqueue_many([work.bind(n) for n in range(5)])
    async with working(app):
        for job in jobs:
            await until_state(app, job, JobState.COMPLETED)
    assert flaky.failed == 2
    assert sorted(ran) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("is_after", [False, True])
async def test_no_claimed_job_is_lost_when_the_answer_to_a_claim_is(
    app: App, flaky: FlakyStore, is_after: bool
) -> None:
    @app.task(breaker=None)
    async def work(n: int) -> None: ...

    jobs = await app.aenqueue_many([work.bind(n) for n in range(5)])
    flaky.fails = [(lambda exchange: exchange.claim is not None, is_after)]
    async with working(app):
        for job in jobs:
            await until_state(app, job, JobState.COMPLETED)
    assert flaky.failed == 1


@pytest.mark.parametrize("is_after", [False, True])
async def test_no_job_is_lost_when_the_store_fails_while_permits_are_asked_for(
    app: App, flaky: FlakyStore, is_after: bool
) -> None:
    @app.task(breaker=None, rate="1000/minute")
    async def limited(n: int) -> None: ...

    jobs = await app.aenqueue_many([limited.bind(n) for n in range(5)])
    flaky.fails = [(lambda exchange: bool(exchange.changes) and exchange.claim is None, is_after)]
    async with working(app) as running:
        for job in jobs:
            await until_state(app, job, JobState.COMPLETED)
    assert running.result() is Exit.DRAINED
    assert flaky.failed == 1


@pytest.mark.parametrize("is_after", [False, True])
async def test_no_settlement_is_lost_when_the_store_fails_at_the_end(
    app: App, flaky: FlakyStore, is_after: bool
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @app.task(breaker=None)
    async def work() -> None:
        begun.set()
        await go.wait()

    async with working(app) as running:
        job = await work.aenqueue()
        async with asyncio.timeout(5):
            await begun.wait()
        stop(running)
        flaky.fails = [(lambda exchange: bool(exchange.settlements), is_after)] * 2
        await SystemClock().asleep(0)
        go.set()
        async with asyncio.timeout(5):
            assert await running is Exit.DRAINED
    assert (await record_of(app, job)).state is JobState.COMPLETED


async def test_a_worker_whose_heartbeats_fail_stops_before_its_lease_is_over(app: App, flaky: FlakyStore) -> None:
    begun = asyncio.Event()

    @app.task
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with working(app, WorkerSettings(lease_s=0.3, heartbeat_s=0.05, grace_s=1.0)) as running:
        job = await endless.aenqueue()
        async with asyncio.timeout(5):
            await begun.wait()
            flaky.beats_fail = True
            assert await running is Exit.REPLACE
    record = await record_of(app, job)
    assert (record.state, record.attempt) == (JobState.QUEUED, 0)  # given back, as nobody had taken it over yet


# ---------------------------------------------------------------- settlements that cannot be written


class PickyStore(FlakyStore):
    """Cannot write some changes of some jobs, whatever else is in the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.unwritable: set[tuple[str, Change]] = set()
        self.is_known = False
        self.hangs: asyncio.Event | None = None
        """Set once a settlement went by itself, which is never answered then."""

    async def exchange(self, exchange: Exchange) -> Exchanged:
        if self.hangs is not None and len(exchange.settlements) == 1:
            self.hangs.set()
            await asyncio.Event().wait()
        for job_id, _ in self.unwritable & {(one.id, one.change) for one in exchange.settlements}:
            raise Unwritable(job_id, "no such text") if self.is_known else ValueError("no such text")
        return await super().exchange(exchange)


@pytest.fixture(params=[False, True], ids=["odd error", "Unwritable"])
def picky(app: App, request: pytest.FixtureRequest) -> PickyStore:
    app._store = store = PickyStore()
    store.is_known = request.param
    return store


async def held_up(app: App, picky: PickyStore, go: asyncio.Event) -> list[Job[None]]:
    """Five jobs that end together, in one batch of settlements; the third cannot be written as completed."""

    @app.task(breaker=None)
    async def work(n: int) -> None:
        await go.wait()

    jobs = await app.aenqueue_many([work.bind(n) for n in range(5)])
    picky.unwritable = {(jobs[2].id, Change.COMPLETE)}
    return jobs


async def check_only_the_third_was_buried(app: App, jobs: list[Job[None]]) -> None:
    for job in jobs[:2] + jobs[3:]:
        await until_state(app, job, JobState.COMPLETED)
    buried = await until_state(app, jobs[2], JobState.DEAD_LETTER)
    assert buried.reason == "its settlement cannot be written"


@pytest.mark.parametrize("failing", [0, 1, 2, 3, 4, 5])
async def test_a_settlement_that_cannot_be_written_is_buried_and_the_others_are_settled(
    app: App, picky: PickyStore, failing: int
) -> None:
    go = asyncio.Event()
    jobs = await held_up(app, picky, go)

    def is_the_one(exchange: Exchange) -> bool:
        """Whether it settles one job by itself: that with this number, or in the fifth case, the bad one's burial."""
        if len(exchange.settlements) != 1 or failing == 5:
            return failing == 5 and [one.change for one in exchange.settlements] == [Change.BURY]
        return exchange.settlements[0].id == jobs[failing].id

    async with working(app) as running:
        await until(lambda: running.worker.runner.begun == 5)  # type: ignore[attr-defined]
        picky.fails = [(is_the_one, failing % 2 == 0)]  # the store is away in between
        go.set()
        await check_only_the_third_was_buried(app, jobs)
        later = await app.tasks[jobs[0].record.task].aenqueue(6)
        await until_state(app, later, JobState.COMPLETED)
    assert (running.result(), picky.failed) == (Exit.DRAINED, 1)
    assert await ends_of(app) == {"completed": 5, "failed": 1, "dead": 1}


async def test_a_settlement_that_cannot_be_written_at_the_end_is_buried_too(app: App, picky: PickyStore) -> None:
    go, stopped = asyncio.Event(), list[int]()
    jobs = await held_up(app, picky, go)
    app.on_shutdown(lambda: stopped.append(1))
    async with working(app) as running:
        await until(lambda: running.worker.runner.begun == 5)  # type: ignore[attr-defined]
        stop(running)
        await SystemClock().asleep(0)
        go.set()
        async with asyncio.timeout(5):
            assert await running is Exit.DRAINED
    await check_only_the_third_was_buried(app, jobs)
    assert await ends_of(app) == {"completed": 4, "failed": 1, "dead": 1}
    assert stopped == [1]
    assert (await app.store.stats()).workers == []


async def test_a_job_that_cannot_be_settled_in_any_way_keeps_nobody(app: App, picky: PickyStore) -> None:
    go = asyncio.Event()
    jobs = await held_up(app, picky, go)
    picky.unwritable |= {(jobs[2].id, Change.BURY)}
    go.set()
    async with working(app) as running:
        for job in jobs[:2] + jobs[3:]:
            await until_state(app, job, JobState.COMPLETED)
    assert running.result() is Exit.DRAINED
    assert (await record_of(app, jobs[2])).state is JobState.RUNNING
    assert await ends_of(app) == {"completed": 4}


async def test_what_goes_one_by_one_is_not_lost_with_the_lease(app: App, picky: PickyStore) -> None:
    go = asyncio.Event()
    jobs = await held_up(app, picky, go)
    worker = app.worker(WorkerSettings(lease_s=0.3, heartbeat_s=0.05))
    running = asyncio.create_task(worker.run())
    await until(lambda: worker._started_at > 0.0 and worker.runner.begun == 5)
    picky.hangs = asyncio.Event()
    go.set()
    async with asyncio.timeout(5):
        await picky.hangs.wait()
        picky.unwritable.clear()
        picky.beats_fail = True
        assert await running is Exit.REPLACE
    assert {(await record_of(app, job)).state for job in jobs} == {JobState.COMPLETED}


async def test_a_settlement_that_cannot_be_written_after_the_lease_keeps_no_other(app: App, picky: PickyStore) -> None:
    go = asyncio.Event()
    jobs = await held_up(app, picky, go)
    worker = app.worker(WorkerSettings(lease_s=0.3, heartbeat_s=0.05))
    running = asyncio.create_task(worker.run())
    await until(lambda: worker._started_at > 0.0 and worker.runner.begun == 5)
    picky.fails = [(lambda exchange: bool(exchange.settlements) and not worker._is_lost, False)] * 100
    go.set()
    await until(lambda: picky.failed > 0)
    picky.beats_fail = True
    async with asyncio.timeout(5):
        assert await running is Exit.REPLACE
    await check_only_the_third_was_buried(app, jobs)


class OddStore(MemoryStore):
    """Fails a number of claims in a way that nobody thought of."""

    odd = 0

    async def exchange(self, exchange: Exchange) -> Exchanged:
        if exchange.claim is not None and self.odd:
            self.odd -= 1
            raise ZeroDivisionError
        return await super().exchange(exchange)


async def test_a_worker_waits_before_it_asks_again_whatever_went_wrong(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)
    app._store = store = OddStore(clock)
    store.odd = 5

    @app.task(breaker=None)
    async def work() -> None: ...

    job = await work.aenqueue()
    await app.arun_until_idle()
    assert (await record_of(app, job)).state is JobState.COMPLETED
    assert len([slept_s for slept_s in clock.sleeps if 0.05 <= slept_s <= 5.0]) >= 5


async def test_half_characters_are_settled_as_what_they_are_and_harm_no_neighbour(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/shop.db")

    @app.task(name="drop")
    async def drop() -> Discard:
        return Discard("user \ud800 gone")

    @app.task(name="fail", retry=NO_RETRY, breaker=CircuitBreaker("b", failure_threshold=1))
    async def fail() -> None:
        raise ConnectionError("name \ud800 unknown")

    @app.task(name="give")
    def give() -> str:
        return "half \ud800"

    @app.task(name="fine")
    async def fine(n: int) -> int:
        return n

    jobs: list[Job[Any]] = [await one.aenqueue() for one in (drop, fail, give)]
    jobs += await app.aenqueue_many([fine.bind(n) for n in range(3)])
    async with working(app) as running:
        dropped = await until_state(app, jobs[0], JobState.CANCELLED)
        failed = await until_state(app, jobs[1], JobState.DEAD_LETTER)
        for job in jobs[2:]:
            await until_state(app, job, JobState.COMPLETED)
        (breaker,) = [view for view in await app.breakers.alist() if view.key == "b"]
    assert running.result() is Exit.DRAINED
    assert (dropped.reason, failed.message, breaker.mode) == ("user ? gone", "name ? unknown", BreakerMode.OPEN)
    assert (await jobs[2].arefresh()).result is None
    await app.aclose()
