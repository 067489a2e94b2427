"""A call becomes a job: its arguments are checked, its options kept, its key held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.app import App, Job
from holdfast.errors import ConfigError, IdempotencyConflict, Invalid, JobFailed
from holdfast.testing import ManualClock
from holdfast.types import JobRecord, JobState


@pytest.fixture
def app() -> App:
    return App("memory://")


async def record_of(app: App, job: Job[Any]) -> JobRecord:
    (record,) = await app.store.get([job.id])
    assert record is not None
    return record


def test_a_job_runs_and_its_result_can_be_read(app: App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    sync_job, async_job = add.enqueue(1, b=2), double.enqueue(21)
    assert sync_job.state is JobState.QUEUED
    with pytest.raises(JobFailed, match="queued, and has no result yet"):
        _ = sync_job.result
    app.run_until_idle()
    assert sync_job.wait(timeout=1).result == 3
    assert async_job.wait(timeout=1).result == 42
    assert [one.number for one in async_job.attempts] == [1]


def test_a_job_that_was_given_up_says_why_instead_of_a_result(app: App) -> None:
    @app.task
    def broken() -> None:
        raise Invalid("no such order")

    job = broken.enqueue()
    app.run_until_idle()
    with pytest.raises(JobFailed, match=r"dead_letter \(not retriable\): .*Invalid: no such order"):
        _ = job.wait(timeout=1).result


def test_a_result_that_was_not_kept_is_none_whatever_the_annotation_says(app: App) -> None:
    @app.task
    def odd() -> int:
        return object()  # type: ignore[return-value]

    @app.task
    async def nothing() -> dict[str, int]:
        return None  # type: ignore[return-value]

    jobs: list[Job[Any]] = [odd.enqueue(), nothing.enqueue()]
    app.run_until_idle()
    assert [job.wait(timeout=1).result for job in jobs] == [None, None]
    assert "the result was not kept" in jobs[0].record.reason
    ran = odd.run()
    assert (ran.success, ran.value) == (True, None)


def test_waiting_for_a_job_that_nobody_runs_ends_after_the_timeout(app: App) -> None:
    @app.task
    def never() -> None: ...

    with pytest.raises(TimeoutError, match="still queued"):
        never.enqueue().wait(timeout=0.02)


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        (("x",), {"cents": 5}, "'order'.*int"),
        ((1,), {}, "missing.*'cents'"),
        ((1, 2), {}, "1 arguments by position"),
        ((1,), {"cents": 5, "cent": 5}, "no argument 'cent'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_at_once(
    app: App, args: tuple[Any, ...], kwargs: dict[str, Any], words: str
) -> None:
    @app.task
    def charge(order: int, *, cents: int) -> None: ...

    untyped: Any = charge
    for send in (untyped.enqueue, untyped.bind, untyped.options(priority=1).enqueue, untyped.run):
        with pytest.raises(Invalid, match=words):
            send(*args, **kwargs)
    assert app.stats().jobs == {}


async def test_options_are_kept_with_the_job(app: App) -> None:
    @app.task(queue="mail", priority=3)
    async def send(to: str) -> None: ...

    plain = await record_of(app, await send.aenqueue("a"))
    assert (plain.queue, plain.priority, plain.tenant, plain.user, plain.project) == ("mail", 3, "", "", "")
    options = send.options(
        queue="slow", priority=-1, tenant="t", user="u", project="p", idempotency_key="k", delay=timedelta(minutes=1)
    )
    other = await record_of(app, await options.aenqueue("b"))
    assert (other.queue, other.priority, other.tenant, other.user, other.project, other.idempotency_key) == (
        "slow",
        -1,
        "t",
        "u",
        "p",
        "k",
    )
    assert other.due_at - other.created_at == pytest.approx(60.0)


async def test_a_job_can_be_enqueued_for_a_time(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    @app.task
    async def later() -> None: ...

    at = datetime.fromtimestamp(clock.now() + 90, tz=UTC)
    job = await record_of(app, await later.options(at=at).aenqueue())
    assert job.due_at == pytest.approx(clock.now() + 90)
    past = await record_of(app, await later.options(at=at - timedelta(days=1)).aenqueue())
    assert past.due_at == past.created_at


async def test_a_memory_store_goes_by_the_clock_of_its_app(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    @app.task
    async def later() -> None: ...

    job = await record_of(app, await later.aenqueue())
    clock.advance(3600.0)
    assert (await record_of(app, await later.aenqueue())).created_at - job.created_at == 3600.0


@pytest.mark.parametrize(
    "options",
    [
        {"delay": -1},
        {"delay": 5, "at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"at": datetime(2030, 1, 1)},
        {"priority": "high"},
        {"priority": True},
        {"queue": ""},
        {"queue": "a\nb"},
        {"queue": "ring:prices"},
        {"tenant": 7},
        {"user": "x" * 201},
        {"idempotency_key": ""},
    ],
)
def test_options_that_cannot_work_are_refused_by_name(app: App, options: dict[str, Any]) -> None:
    @app.task
    def plain() -> None: ...

    with pytest.raises(ConfigError, match=list(options)[-1]):
        plain.options(**options)


def test_a_second_job_with_the_same_key_is_the_first(app: App) -> None:
    @app.task
    def charge(order: int) -> None: ...

    once = charge.options(idempotency_key="order-42")
    first, second = once.enqueue(42), once.enqueue(42)
    assert (first.id, first.is_new, second.is_new) == (second.id, True, False)
    assert charge.options(idempotency_key="order-42", tenant="other").enqueue(42).is_new
    with pytest.raises(IdempotencyConflict, match="'order-42' is taken by job") as caught:
        once.enqueue(43)
    assert (caught.value.key, caught.value.job_id) == ("order-42", first.id)


@pytest.mark.parametrize("wrong", [(1, 2), {"order": 1}, None, "charge"])
async def test_what_is_no_bound_call_is_refused_and_nothing_is_stored(app: App, wrong: Any) -> None:
    @app.task
    def charge(order: int) -> None: ...

    untyped: Any = charge
    for many in (app.enqueue_many, charge.enqueue_many):
        with pytest.raises(ConfigError, match=r"call=.* must be a bound call"):
            many([charge.bind(1), wrong])
        with pytest.raises(ConfigError, match="must be a bound call"):
            many([untyped])
    for amany in (app.aenqueue_many, charge.aenqueue_many):
        with pytest.raises(ConfigError, match="must be a bound call"):
            await amany([charge.bind(1), wrong])
    for call in (wrong, untyped, untyped.options(priority=1)):
        with pytest.raises(ConfigError, match="must be a bound call"):
            app.schedule(call, every=60)
    assert (await app.astats()).jobs == {}
    assert app.scheduled == {}


async def test_many_may_come_from_a_generator(app: App) -> None:
    @app.task
    def charge(order: int) -> None: ...

    calls: Any = (charge.bind(n) for n in range(3))
    again: Any = (charge.bind(n) for n in range(2))
    assert (len(app.enqueue_many(calls)), len(await app.aenqueue_many(again))) == (3, 2)
    assert (await app.astats()).jobs == {"queued": 5}


def test_many_are_enqueued_all_or_none(app: App) -> None:
    @app.task
    def charge(order: int) -> int:
        return order

    @app.task
    def mail(to: str) -> str:
        return to

    assert charge.enqueue_many([]) == []
    keyed = charge.options(idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        charge.enqueue_many([charge.bind(1), keyed.bind(2), keyed.bind(3)])
    assert app.stats().jobs == {}
    jobs = app.enqueue_many([charge.bind(1), charge.options(priority=9).bind(2), mail.bind("a")])
    app.run_until_idle()
    assert [job.wait(timeout=1).result for job in jobs] == [1, 2, "a"]


async def test_the_async_twins_do_the_same(app: App) -> None:
    @app.task
    async def charge(order: int) -> int:
        return order

    (many,) = await charge.aenqueue_many([charge.bind(1)])
    one = await charge.options(idempotency_key="k").aenqueue(2)
    with pytest.raises(IdempotencyConflict):
        await charge.options(idempotency_key="k").aenqueue(3)
    await app.arun_until_idle()
    assert [(await job.await_(timeout=1)).result for job in (many, one)] == [1, 2]


def test_a_queued_job_is_cancelled_once(app: App) -> None:
    ran = []

    @app.task
    def never() -> None:
        ran.append(1)

    job = never.enqueue()
    assert job.cancel()
    assert job.state is JobState.CANCELLED
    assert not job.cancel()
    app.run_until_idle()
    assert ran == []


async def test_sync_methods_say_what_to_use_in_async_code(app: App) -> None:
    @app.task
    async def plain() -> None: ...

    with pytest.raises(Exception, match="await its a… twin"):
        app.stats()
    with pytest.raises(Exception, match="await its a… twin"):
        plain.run()


async def test_results_are_kept_for_a_set_time(clock: ManualClock) -> None:
    app = App("memory://", clock=clock, result_ttl=100.0)

    @app.task
    async def usual() -> None: ...

    @app.task(result_ttl=10.0)
    async def short() -> None: ...

    @app.task(dlq_retention_days=1)
    async def dead() -> None:
        raise Invalid("no")

    jobs = [await task.aenqueue() for task in (usual, short, dead)]
    await app.arun_until_idle()

    async def left() -> list[bool]:
        await app.store.prune(100)
        return [record is not None for record in await app.store.get([job.id for job in jobs])]

    assert await left() == [True, True, True]
    clock.advance(11.0)
    assert await left() == [True, False, True]
    clock.advance(100.0)
    assert await left() == [False, False, True]
    clock.advance(86_400.0)
    assert await left() == [False, False, False]
