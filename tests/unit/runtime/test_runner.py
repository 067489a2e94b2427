"""The runner by itself: where jobs run, how they are stopped, and what is settled of it."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from holdfast.app import App, Task
from holdfast.clock import SystemClock, new_id, new_token
from holdfast.errors import Invalid, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Claim, Delivery, Exchange, Settlement, WorkerRecord
from holdfast.runtime.context import JobContext
from holdfast.runtime.counts import Counts
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.runner import Room, Runner
from holdfast.runtime.worker import shared_guards
from holdfast.testing import ManualClock
from holdfast.types import BreakerMode, Change, Discard, FailureType, JobState, NewJob, Snooze

RETRY = RetryPolicy(max_retries=3, initial_delay=2.0, multiplier=2.0, jitter=False)
WORKER = "a worker"
var: ContextVar[str] = ContextVar("var", default="clean")


class Harness:
    """A runner on an app's store, and the claims that it would be handed."""

    def __init__(self, app: App, room: Room | None = None, *, is_replaceable: bool = False, target: str = "") -> None:
        self.app = app
        self.news = asyncio.Event()
        guards = shared_guards(app.specs)
        self.runner = Runner(
            store=app.store,
            specs=app.specs,
            guards=guards,
            on_values=lambda reply: list(guards.absorb(reply)).clear(),
            worker=WORKER,
            room=room or Room(),
            clock=app.clock,
            rng=lambda: 0.5,
            target=target,
            lease_s=30.0,
            on_settled=self.news.set,
            is_replaceable=is_replaceable,
            counts=Counts(),
            asking=asyncio.Lock(),
        )

    async def claim(self, *jobs: NewJob, worker: str = WORKER) -> Sequence[Delivery]:
        """Enqueue these, and claim whatever can be."""
        await self.app.store.enqueue(list(jobs))
        await self.app.store.heartbeat(WorkerRecord(id=worker, lease_s=30.0))
        reply = await self.app.store.exchange(Exchange(claim=Claim(worker=worker, token=new_token(), limit=100)))
        self.runner.set_now(reply.now)
        return reply.deliveries

    async def start(self, *jobs: NewJob) -> list[str]:
        """Begin to run these; their ids."""
        await self.runner.start(await self.claim(*jobs))
        return [job.id for job in jobs]

    async def settled(self, n: int) -> list[Settlement]:
        """The settlements, once there are so many; none comes after them."""
        async with asyncio.timeout(5):
            while len(self.runner.settlements) < n:
                self.news.clear()
                await self.news.wait()
        await turns()
        return self.runner.settlements

    async def run(self, *jobs: NewJob) -> list[Settlement]:
        await self.start(*jobs)
        settled = await self.settled(len(jobs))
        await self.close()
        assert len(settled) == len(jobs)
        assert self.runner.runs == {}
        return settled

    async def close(self) -> None:
        self.runner.stop(None, "shutdown")
        await turns()
        await self.runner.close()


async def turns(n: int = 5) -> None:
    """Let the other coroutines run."""
    for _ in range(n):
        await asyncio.sleep(0)  # noqa: TID251 - gives way, and waits for nothing


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what a thread does."""
    async with asyncio.timeout(5):
        while not is_so():
            await SystemClock().asleep(0.001)


def job_of(task: Task[Any, Any, Any], *args: Any) -> NewJob:
    return task.bind(*args).job


@pytest.fixture
def app() -> App:
    return App("memory://")


# ---------------------------------------------------------------- outcomes


@pytest.mark.parametrize("is_async", [False, True])
async def test_each_outcome_is_settled_as_what_it_is(app: App, is_async: bool) -> None:
    outcomes: dict[str, Any] = {
        "value": {"a": 1},
        "nothing": None,
        "snooze": Snooze(5.0),
        "discard": Discard("sold out"),
        "healing": Transient("busy"),
        "hopeless": Invalid("no"),
    }

    def result(name: str) -> Any:
        if isinstance(outcome := outcomes[name], Exception):
            raise outcome
        return outcome

    async def aresult(name: str) -> Any:
        return result(name)

    task: Any = app.task(name="t", retry=RETRY)(aresult if is_async else result)
    settled = await Harness(app).run(*[job_of(task, name) for name in outcomes])
    by_change = {one.change: one for one in settled}
    assert sorted(one.change for one in settled) == sorted(
        [Change.COMPLETE, Change.COMPLETE, Change.PARK, Change.DISCARD, Change.RETRY, Change.BURY]
    )
    assert {one.result for one in settled if one.change is Change.COMPLETE} == {b'{"a":1}', b"null"}
    park, retry, bury = by_change[Change.PARK], by_change[Change.RETRY], by_change[Change.BURY]
    assert (park.delay_s, park.is_refunded, park.attempt) == (5.0, True, None)
    assert by_change[Change.DISCARD].reason == "sold out"
    assert (retry.delay_s, retry.is_refunded) == (2.0, False)
    assert retry.elapsed_s == pytest.approx(2.0, abs=0.5)
    assert retry.attempt is not None
    assert (retry.attempt.failure_type, retry.attempt.delay_s, retry.attempt.breaker) == (
        FailureType.TRANSIENT,
        2.0,
        "closed",
    )
    assert bury.attempt is not None
    assert (bury.reason, bury.attempt.failure_type) == ("not retriable", FailureType.VALIDATION)
    assert "in result" in bury.attempt.traceback


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_run_that_begins_at_the_clocks_zero_has_begun(clock: ManualClock, is_async: bool) -> None:
    def work() -> None: ...

    async def awork() -> None: ...

    app = App("memory://", clock=clock)
    task: Any = app.task(name="t")(awork if is_async else work)
    (one,) = await Harness(app).run(job_of(task))
    assert one.change is Change.COMPLETE
    assert one.started_at == pytest.approx(clock.now())


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("is_async", [False, True])
async def test_whatever_a_handler_raises_is_a_failure_and_stops_nothing_else(
    app: App, error: BaseException, is_async: bool
) -> None:
    def explode() -> None:
        raise error

    async def aexplode() -> None:
        raise error

    task: Any = app.task(name="t", retry=RETRY)(aexplode if is_async else explode)
    (one,) = await Harness(app).run(job_of(task))
    assert one.change is Change.RETRY
    assert one.attempt is not None
    assert (one.attempt.failure_type, one.attempt.error_name.rpartition(".")[2]) == (
        FailureType.SYSTEM,
        type(error).__name__,
    )


@pytest.mark.parametrize("is_async", [False, True])
async def test_arguments_that_no_longer_fit_are_buried_at_once_with_readable_words(app: App, is_async: bool) -> None:
    def charge(order: int) -> None: ...

    async def acharge(order: int) -> None: ...

    task: Any = app.task(name="t", retry=RETRY)(acharge if is_async else charge)
    wrong = NewJob(id=job_of(task, 1).id, task="t", payload=b'{"order":"one"}')
    (one,) = await Harness(app).run(wrong)
    assert (one.change, one.reason) == (Change.BURY, "not retriable")
    assert one.attempt is not None
    assert one.attempt.failure_type is FailureType.VALIDATION
    assert "argument 'order': expected" in one.attempt.message


async def test_a_result_that_cannot_be_kept_completes_and_says_so(app: App) -> None:
    @app.task
    async def odd() -> Any:
        return object()

    (one,) = await Harness(app).run(job_of(odd))
    assert (one.change, one.result) == (Change.COMPLETE, b"null")
    assert "the result was not kept" in one.reason


async def test_a_sync_task_that_returns_a_coroutine_has_not_done_its_work(app: App) -> None:
    async def inner() -> None: ...

    @app.task(retry=RETRY)
    def outer() -> Any:
        return inner()

    (one,) = await Harness(app).run(job_of(outer))
    assert one.change in {Change.RETRY, Change.BURY}


async def test_jobs_without_a_task_wait_for_a_while_at_no_cost_and_are_then_buried(app: App) -> None:
    harness = Harness(app)
    lost = NewJob(id=new_id(), task="gone", payload=b"{}")
    verdicts = []
    for _ in range(7):
        await harness.start(lost)
        (one,) = harness.runner.settlements
        verdicts.append((one.change, one.reason, one.is_refunded))
        assert one.attempt is not None
        assert "no task named 'gone'" in one.attempt.message
        await app.store.exchange(Exchange(settlements=[one]))
        harness.runner.settlements.clear()
        app.store.clock_offset_s += 200.0  # type: ignore[attr-defined]
        await app.store.heartbeat(WorkerRecord(id=WORKER, lease_s=30.0))
    assert verdicts == [(Change.PARK, "unknown task", True)] * 6 + [(Change.BURY, "unknown task", False)]
    await harness.close()


async def test_waiting_for_a_task_costs_none_of_its_own_attempts(app: App) -> None:
    ran = []

    @app.task(name="mine", retry=RetryPolicy(max_retries=2, initial_delay=1.0, jitter=False))
    async def mine() -> None:
        ran.append(1)
        raise ConnectionError("down")

    old = App("memory://")  # the code before the deploy
    old._store = app.store
    job = await mine.aenqueue()
    await waited_in_vain(old, 4)
    await app.arun_until_idle()
    record = (await job.arefresh()).record
    assert (record.state, record.reason, len(ran)) == (JobState.DEAD_LETTER, "retries used up", 3)
    own = [one for one in record.attempts if one.error_name != "holdfast.errors.UnknownTask"]
    assert [(one.number, one.outcome) for one in own] == [(1, Change.RETRY), (2, Change.RETRY), (3, Change.BURY)]
    assert len(record.attempts) == 3 + 4


async def test_a_letter_of_an_unknown_task_waits_again_once_it_is_replayed(app: App) -> None:
    lost = NewJob(id=new_id(), task="gone", payload=b"{}")
    await app.store.enqueue([lost])
    assert await waited_in_vain(app, 7) == [Change.PARK] * 6 + [Change.BURY]
    assert (await app.dead_letters.aretry(lost.id)).is_done
    assert await waited_in_vain(app, 7) == [Change.PARK] * 6 + [Change.BURY]


async def waited_in_vain(app: App, times: int) -> list[Change]:
    """A worker without the task claims the job so often."""
    harness = Harness(app)
    changes = []
    for _ in range(times):
        await harness.start()
        (one,) = harness.runner.settlements
        changes.append(one.change)
        assert (await app.store.exchange(Exchange(settlements=[one]))).settled == [True]
        harness.runner.settlements.clear()
        app.store.clock_offset_s += 200.0  # type: ignore[attr-defined]
        await app.store.heartbeat(WorkerRecord(id=WORKER, lease_s=30.0))
    await harness.close()
    await app.store.heartbeat(WorkerRecord(id=WORKER, lease_s=86_400.0))
    return changes


async def test_no_dead_letters_where_they_are_switched_off(app: App) -> None:
    @app.task(enable_dlq=False)
    async def broken() -> None:
        raise Invalid("no")

    (one,) = await Harness(app).run(job_of(broken))
    assert one.change is Change.FAIL


async def test_run_time_and_computed_delays_are_what_total_timeout_counts(app: App) -> None:
    @app.task(retry=RetryPolicy(initial_delay=2.0, jitter=False, total_timeout=100.0))
    async def flaky() -> None:
        raise Transient("busy")

    harness = Harness(app)
    for elapsed_s, change in ((97.0, Change.RETRY), (98.5, Change.BURY)):
        (delivery,) = await harness.claim(job_of(flaky))
        delivery.elapsed_s = elapsed_s
        delivery.created_at -= 1e6  # time in the queue does not count
        await harness.runner.start([delivery])
        (one,) = await harness.settled(1)
        assert one.change is change
        harness.runner.settlements.clear()
    await harness.close()


# ---------------------------------------------------------------- no job sees another's context


async def test_context_variables_do_not_leak_between_async_jobs(app: App) -> None:
    seen = []

    @app.task
    async def leaky(n: int) -> None:
        seen.append(var.get())
        var.set(f"of job {n}")

    await Harness(app, Room(concurrency=1)).run(*[job_of(leaky, n) for n in range(3)])
    assert seen == ["clean"] * 3


async def test_context_variables_do_not_leak_between_sync_jobs(app: App) -> None:
    seen = []

    @app.task
    def leaky(n: int) -> None:
        seen.append(var.get())
        var.set(f"of job {n}")

    await Harness(app, Room(threads=1)).run(*[job_of(leaky, n) for n in range(3)])
    assert seen == ["clean"] * 3


# ---------------------------------------------------------------- time limits


async def test_an_async_job_is_cancelled_at_its_time_limit(app: App) -> None:
    @app.task(timeout=0.02, retry=RETRY)
    async def slow() -> None:
        await asyncio.Event().wait()

    @app.task(timeout=30)
    async def quick() -> None: ...

    settled = await Harness(app).run(job_of(slow), job_of(quick))
    (one,) = [it for it in settled if it.change is not Change.COMPLETE]
    assert one.change is Change.RETRY
    assert one.attempt is not None
    assert one.attempt.error_name.endswith("TimeLimitExceeded")
    assert one.attempt.duration_s == pytest.approx(0.02, abs=0.3)


async def test_code_that_swallows_its_cancellation_is_cancelled_again(app: App) -> None:
    @app.task(timeout=0.01, retry=RETRY)
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    (one,) = await Harness(app).run(job_of(stubborn))
    assert one.change is Change.RETRY
    assert one.attempt is not None
    assert one.attempt.error_name.endswith("TimeLimitExceeded")


async def test_a_timeout_of_the_handlers_own_is_not_the_jobs(app: App) -> None:
    @app.task(timeout=30, retry=RETRY)
    async def own() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    (one,) = await Harness(app).run(job_of(own))
    assert one.attempt is not None
    assert one.attempt.error_name == "TimeoutError"


async def test_a_thread_beyond_its_time_limit_is_given_up_where_the_process_stays(app: App) -> None:
    go = threading.Event()

    @app.task(name="stuck", timeout=0.02, retry=RETRY)
    def stuck() -> None:
        go.wait(5)

    harness = Harness(app)
    await harness.start(job_of(stuck))
    (one,) = await harness.settled(1)
    assert (one.change, one.reason) == (Change.BURY, "still running after its time limit")
    assert one.attempt is not None
    assert "still running" in one.attempt.message
    assert not harness.runner.must_be_replaced
    go.set()
    await until(lambda: harness.runner._sync_held == 0)
    assert harness.runner.settlements == [one]
    assert harness.runner.counts.totals == {"failed": 1, f"failed:{one.attempt.failure_type}": 1, "dead": 1}
    await harness.close()


async def test_the_end_of_a_thread_that_was_given_up_is_not_the_end_of_its_jobs_next_run(app: App) -> None:
    ends, goes = list[int](), [threading.Event(), threading.Event()]

    @app.task(name="stuck", timeout=0.02, retry=RETRY)
    def stuck() -> None:
        goes[len(ends)].wait(5)
        ends.append(1)

    harness = Harness(app, Room(threads=1))
    (id_,) = await harness.start(job_of(stuck))
    (buried,) = await harness.settled(1)
    await app.store.exchange(Exchange(settlements=[buried]))
    assert (await app.dead_letters.aretry(id_)).is_done
    harness.runner.settlements.clear()
    await harness.start()
    goes[0].set()
    (again,) = await harness.settled(1)  # as it is known of, its time limit is kept
    assert (again.id, again.change, len(ends)) == (id_, Change.BURY, 1)
    goes[1].set()
    await until(lambda: harness.runner._sync_held == 0)
    await harness.close()


async def test_failures_that_the_loop_has_not_heard_of_count_with_those_it_has(app: App) -> None:
    calls: list[int] = []
    is_through = threading.Event()

    @app.task(retry=RETRY, breaker=CircuitBreaker("b", failure_threshold=5))
    def fail(n: int) -> None:
        calls.append(n)
        raise ConnectionError

    @app.task(breaker=None, priority=-1)
    def last() -> None:
        is_through.set()

    harness = Harness(app, Room(threads=1))
    await harness.start(*(job_of(fail, n) for n in range(4)))
    await harness.settled(4)
    await harness.start(*(job_of(fail, n) for n in range(4, 24)), job_of(last))
    assert is_through.wait(5)  # and the loop hears of nothing meanwhile
    assert calls == [0, 1, 2, 3, 4]
    await harness.settled(25)
    assert calls == [0, 1, 2, 3, 4]
    await harness.close()


async def test_a_thread_beyond_its_time_limit_counts_against_the_breaker(app: App) -> None:
    go = threading.Event()

    @app.task(timeout=0.02, retry=RETRY, breaker=CircuitBreaker("b", failure_threshold=1))
    def stuck() -> None:
        go.wait(5)

    harness = Harness(app)
    await harness.start(job_of(stuck))
    await harness.settled(1)
    assert harness.runner._guards.state_of("b", harness.runner.now()) is BreakerMode.OPEN
    go.set()
    await until(lambda: harness.runner._sync_held == 0)
    assert harness.runner._guards.state_of("b", harness.runner.now()) is BreakerMode.OPEN
    await harness.close()


async def test_a_thread_beyond_its_time_limit_has_its_process_replaced_and_its_job_blamed(app: App) -> None:
    go = threading.Event()

    @app.task(timeout=0.02, retry=RETRY)
    def stuck() -> None:
        go.wait(5)

    harness = Harness(app, is_replaceable=True)
    (id_,) = await harness.start(job_of(stuck))
    await until(lambda: harness.runner.must_be_replaced)
    assert harness.runner.settlements == []
    await turns()
    (orphan,) = await orphans_of(app)
    assert (orphan.id, orphan.is_alone) == (id_, True)
    assert "0.02 s" in orphan.blame
    go.set()
    await harness.close()


async def test_a_thread_beyond_its_time_limit_that_raises_while_its_process_drains_has_failed(app: App) -> None:
    go = threading.Event()

    @app.task(timeout=0.02, retry=RETRY)
    def stuck() -> None:
        go.wait(5)
        raise ConnectionError

    harness = Harness(app, is_replaceable=True)
    await harness.start(job_of(stuck))
    await until(lambda: harness.runner.must_be_replaced)
    harness.runner.stop(None, "shutdown")
    go.set()
    (one,) = await harness.settled(1)
    assert (one.change, one.is_refunded) == (Change.RETRY, False)
    assert one.attempt is not None
    assert one.attempt.error_name == "ConnectionError"
    await harness.close()


async def orphans_of(app: App) -> list[Delivery]:
    """What the worker leaves behind, as the next one gets it."""
    await app.store.heartbeat(WorkerRecord(id=WORKER, lease_s=0.0))
    await app.store.heartbeat(WorkerRecord(id="another", lease_s=30.0))
    return await app.store.reclaim("another", new_token(), 100)


# ---------------------------------------------------------------- orphans


async def test_what_a_dead_worker_held_comes_back_as_suspects_at_no_cost(app: App) -> None:
    @app.task
    async def innocent() -> None: ...

    harness = Harness(app)
    await harness.claim(job_of(innocent), job_of(innocent))
    harness.runner.judge_orphans(await orphans_of(app))
    assert [(one.change, one.is_refunded, one.is_suspect) for one in harness.runner.settlements] == [
        (Change.RELEASE, True, True)
    ] * 2
    told = [one.attempt for one in harness.runner.settlements if one.attempt is not None]
    assert [(one.number, one.outcome, one.error_name, one.failure_type) for one in told] == [
        (1, Change.RELEASE, "WorkerDied", None)
    ] * 2
    await harness.close()


@pytest.mark.parametrize(("blame", "error"), [("", "WorkerDied"), ("took longer than 5 s", "TimeLimitExceeded")])
async def test_an_orphan_that_was_alone_or_is_blamed_has_failed(app: App, blame: str, error: str) -> None:
    @app.task(name="t", retry=RETRY, timeout=5)
    async def killer() -> None: ...

    harness = Harness(app)
    (delivery,) = await harness.claim(job_of(killer))
    delivery.is_alone, delivery.blame, delivery.worker = True, blame, "the dead"
    harness.runner.judge_orphans([delivery])
    (one,) = harness.runner.settlements
    assert (one.change, one.is_refunded) == (Change.RETRY, False)
    assert one.attempt is not None
    assert one.attempt.error_name.endswith(error)
    await harness.close()


async def test_time_in_which_nobody_ran_an_orphan_is_not_its_run_time(app: App) -> None:
    @app.task(name="t", retry=RetryPolicy(initial_delay=2.0, jitter=False, total_timeout=300.0), timeout=5)
    async def killer() -> None: ...

    harness = Harness(app)
    (delivery,) = await harness.claim(job_of(killer))
    delivery.is_alone, delivery.worker = True, "the dead"
    delivery.claimed_at -= 3600.0  # every worker was down for an hour
    harness.runner.judge_orphans([delivery])
    (one,) = harness.runner.settlements
    assert one.change is Change.RETRY
    await harness.close()


# ---------------------------------------------------------------- stopping


@pytest.mark.parametrize("is_entered", [False, True])
async def test_a_stop_gives_back_what_runs_whether_or_not_it_took_its_first_step(app: App, is_entered: bool) -> None:
    @app.task
    async def endless() -> None:
        await asyncio.Event().wait()

    harness = Harness(app, Room(concurrency=2))
    ids = await harness.start(*[job_of(endless) for _ in range(4)])
    if is_entered:
        await turns()
    harness.runner.release_waiting()
    harness.runner.stop(None, "shutdown")
    settled = await harness.settled(4)
    assert sorted(one.id for one in settled) == sorted(ids)
    assert {(one.change, one.is_refunded, one.is_suspect) for one in settled} == {(Change.RELEASE, True, False)}
    assert harness.runner.runs == {}
    await harness.close()


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_job_that_was_cancelled_before_it_began_never_runs(app: App, is_async: bool) -> None:
    go, ran = threading.Event(), []

    @app.task(name="first")
    def first() -> None:
        go.wait(5)

    @app.task(name="second")
    def second() -> None:
        ran.append(1)

    @app.task(name="afirst")
    async def afirst() -> None:
        await until(go.is_set)

    @app.task(name="asecond")
    async def asecond() -> None:
        ran.append(1)

    harness = Harness(app, Room(concurrency=1, threads=1))
    jobs = [job_of(afirst), job_of(asecond)] if is_async else [job_of(first), job_of(second)]
    _, cancelled = await harness.start(*jobs)
    await until(lambda: harness.runner.begun == 1)
    harness.runner.stop([cancelled], "cancelled")
    go.set()
    await harness.settled(1)
    await until(lambda: not harness.runner.runs)
    assert ran == []
    await harness.close()


@pytest.mark.parametrize("why", ["shutdown", "cancelled"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_what_is_stopped_before_it_began_leaves_its_start_to_another(app: App, is_async: bool, why: str) -> None:
    go = threading.Event()

    @app.task(name="wait", breaker=None, rate="2/minute")
    def wait() -> None:
        go.wait(5)

    @app.task(name="await", breaker=None, rate="2/minute")
    async def await_() -> None:
        await until(go.is_set)

    harness = Harness(app, Room(concurrency=1, threads=1))
    task: Task[Any, Any, Any] = await_ if is_async else wait
    _, second = await harness.start(job_of(task), job_of(task))
    await until(lambda: harness.runner.begun == 1)
    harness.runner.stop([second], why)
    go.set()
    await until(lambda: not harness.runner.runs)
    harness.runner.settlements.clear()
    await harness.start(job_of(task), job_of(task))
    settled = await harness.settled(2)
    assert [one.change for one in settled] == [Change.PARK, Change.COMPLETE]
    await harness.close()


async def test_a_job_that_no_process_is_to_be_had_for_leaves_its_start_to_another(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    @app.task(breaker=None, rate="1/hour", isolate="process")
    def apart() -> None: ...

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    harness = Harness(app, target="shop:app")
    for _ in range(3):
        await harness.start(job_of(apart))
        settled = await harness.settled(1)
        assert [one.change for one in settled] == [Change.RELEASE]
        settled.clear()
    await harness.close()


async def test_nothing_more_begins_once_everything_was_lost(app: App) -> None:
    ran = []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)
        await asyncio.Event().wait()

    harness = Harness(app, Room(concurrency=2))
    await harness.start(*[job_of(work, n) for n in range(6)])
    await turns()
    harness.runner.stop(None, "cancelled")
    await turns(20)
    assert ran == [0, 1]
    assert harness.runner.settlements == []
    await harness.close()


async def test_a_cancelled_job_is_stopped_and_counts_as_nothing(app: App) -> None:
    ended = []

    @app.task
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    harness = Harness(app)
    ids = await harness.start(job_of(endless))
    await turns()
    harness.news.clear()
    harness.runner.stop(ids, "cancelled")
    await turns()
    assert ended == [1]
    assert harness.news.is_set()
    assert (harness.runner.settlements, harness.runner.runs, harness.runner.counts.totals) == ([], {}, {})
    await harness.close()


async def test_losing_the_lease_in_a_note_settles_nothing(app: App) -> None:
    go = asyncio.Event()

    @app.task
    async def work(job: JobContext) -> None:
        await go.wait()
        await job.acheckpoint(1)

    harness = Harness(app)
    await harness.start(job_of(work))
    await orphans_of(app)
    go.set()
    await until(lambda: not harness.runner.runs)
    assert harness.runner.settlements == []
    await harness.close()


async def test_what_waits_too_long_is_given_back_and_the_rest_stays(app: App) -> None:
    go = threading.Event()

    @app.task
    def work(n: int) -> None:
        go.wait(5)

    harness = Harness(app, Room(threads=1))
    ids = await harness.start(*[job_of(work, n) for n in range(3)])
    await until(lambda: harness.runner.begun == 1)
    harness.runner.release_late()
    assert harness.runner.settlements == []
    harness.runner.runs[ids[1]].delivery.claimed_at -= 2.0
    harness.runner.release_late()
    assert [(one.id, one.change) for one in harness.runner.settlements] == [(ids[1], Change.RELEASE)]
    go.set()
    assert {one.id for one in await harness.settled(3)} == set(ids)
    await harness.close()


async def test_what_is_claimed_is_given_back_when_starting_it_fails_in_a_way_nobody_thought_of(app: App) -> None:
    @app.task(rate="100/minute")
    async def limited() -> None: ...

    harness = Harness(app)
    deliveries = await harness.claim(job_of(limited), job_of(limited))
    harness.runner._guards.ask = None  # type: ignore[assignment, method-assign]
    with pytest.raises(TypeError):
        await harness.runner.start(deliveries)
    assert [(one.change, one.is_refunded) for one in harness.runner.settlements] == [(Change.RELEASE, True)] * 2
    await harness.close()


async def test_what_is_stopped_before_its_thread_has_begun_it_is_given_back(app: App) -> None:
    begun, go = threading.Event(), threading.Event()

    @app.task(breaker=None)
    def work() -> None:
        begun.set()
        go.wait(5)

    harness = Harness(app, Room(threads=1))
    first, second = await harness.start(job_of(work), job_of(work))
    await until(begun.is_set)
    harness.runner.stop(None, "shutdown")
    go.set()
    settled = {one.id: one for one in await harness.settled(2)}
    await harness.close()
    assert (settled[first].change, settled[second].change) == (Change.COMPLETE, Change.RELEASE)
    assert settled[second].is_refunded
