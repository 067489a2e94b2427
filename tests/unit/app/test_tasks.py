"""Declaring tasks, calling them here and now, and running a job inline."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from holdfast.app import App
from holdfast.errors import CircuitOpenError, ConfigError, Invalid, StoreError, Transient
from holdfast.policy.classify import classify
from holdfast.policy.limiter import Rate
from holdfast.policy.retry import RetryPolicy
from holdfast.runtime.context import JobContext
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.guards.budget import RetryBudget
from holdfast.testing import ManualClock
from holdfast.types import Discard, Failure, FailureContext, FailureType, JobState, Snooze

NO_RETRY = RetryPolicy(max_retries=0)


@pytest.fixture
def app(clock: ManualClock) -> App:
    clock.advance(1.0)  # the instant zero is for test_runner.py
    return App("memory://", clock=clock)


# ---------------------------------------------------------------- declaring


def test_a_task_looks_like_its_function(app: App) -> None:
    @app.task(name="shop.charge")
    def charge(order: int) -> None:
        """Take the money."""

    assert (charge.name, charge.__name__, charge.__doc__) == ("shop.charge", "charge", "Take the money.")  # type: ignore[attr-defined]
    assert "shop.charge" in repr(charge)
    assert set(app.tasks) == {"shop.charge"}


def test_two_functions_cannot_have_one_name_but_a_reloaded_module_may(app: App) -> None:
    def declare() -> None:
        @app.task(name="one")
        def first() -> None: ...

    declare()
    declare()
    with pytest.raises(ConfigError, match="two tasks are named 'one'"):

        @app.task(name="one")
        def second() -> None: ...


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("name", ""),
        ("queue", "a\tb"),
        ("queue", "ring:prices"),
        ("queue", "stream:orders"),
        ("priority", 1.5),
        ("retry", 3),
        ("breaker", ""),
        ("when_open", "drop"),
        ("rate", "often"),
        ("rate", {"planet": "1/minute"}),
        ("timeout", 0),
        ("isolate", "thread"),
        ("dlq_retention_days", 0),
        ("result_ttl", -1),
        ("classify", "nice"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(app: App, option: str, value: Any) -> None:
    options: dict[str, Any] = {option: value}

    def plain() -> None: ...

    with pytest.raises(ConfigError, match=option):
        app.task(**options)(plain)
    assert app.tasks == {}


def test_generators_and_nameless_functions_are_refused(app: App) -> None:
    with pytest.raises(ConfigError, match="generator"):

        @app.task
        def many() -> Any:
            yield 1

    with pytest.raises(ConfigError, match="lambda"):
        app.task(lambda: None)


def test_a_breaker_has_one_configuration_whoever_names_it_first(app: App) -> None:
    strict = CircuitBreaker("payments", failure_threshold=2)

    @app.task(breaker="payments")
    def by_name() -> None: ...

    @app.task(breaker=strict)
    def by_object() -> None: ...

    @app.task(breaker="payments")
    def later() -> None: ...

    assert {app.specs[task.name].breaker_config.failure_threshold for task in (by_name, by_object, later)} == {2}
    app.worker()  # which would refuse two configurations
    with pytest.raises(ConfigError, match="'payments' has two different configurations"):

        @app.task(breaker=CircuitBreaker("payments", failure_threshold=3))
        def other() -> None: ...


def test_the_shorter_time_limit_counts(app: App) -> None:
    @app.task(timeout=10, retry=RetryPolicy(attempt_timeout=5))
    def both() -> None: ...

    @app.task(timeout=10)
    def one() -> None: ...

    assert (both.spec.timeout_s, one.spec.timeout_s) == (5, 10)


def test_a_task_without_options_has_a_breaker_of_its_own_name(app: App) -> None:
    @app.task(name="own")
    def own() -> None: ...

    @app.task(name="none", breaker=None)
    def none() -> None: ...

    assert (own.spec.breaker, none.spec.breaker) == ("own", None)
    assert (own.bind().job.gates, none.bind().job.gates) == (("breaker:own",), ())


def test_a_job_has_the_gates_of_its_limits(app: App) -> None:
    @app.task(name="t", breaker=None, rate={"task": "100/minute", "user": Rate.parse("10/minute", "rate")})
    def limited() -> None: ...

    assert limited.options(user="u").bind().job.gates == ("limit:t", "limit:t:user:u")


def test_two_schedules_need_two_names_and_one_timing_each(app: App) -> None:
    @app.task
    def report() -> None: ...

    app.schedule(report.bind(), every=60)
    app.schedule(report.bind(), cron="0 3 * * *", tz="Europe/Berlin", name="nightly")
    for wrong in ({"every": 60}, {"cron": "* * * * *", "every": 60}, {"name": "x"}, {"cron": "nonsense", "name": "y"}):
        options: dict[str, Any] = wrong
        with pytest.raises(ConfigError):
            app.schedule(report.bind(), **options)
    assert [one.name for one in app.schedules.list()] == ["nightly", report.name]


def test_the_target_is_where_another_process_finds_the_app(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    assert app.target == ""
    module = ModuleType("shop_of_this_test")
    module.__dict__["queue"] = app
    monkeypatch.setitem(sys.modules, "shop_of_this_test", module)
    assert app.target == "shop_of_this_test:queue"


def test_a_worker_knows_the_tasks_there_were_when_it_was_made(app: App) -> None:
    worker = app.worker()

    @app.task
    def late() -> None: ...

    assert late.name not in worker._specs


# ---------------------------------------------------------------- here and now


def test_a_call_runs_here_under_its_retries(app: App, clock: ManualClock) -> None:
    left = [Transient("busy"), Transient("busy")]

    @app.task(retry=RetryPolicy(initial_delay=2.0, multiplier=2.0, jitter=False))
    def flaky(n: int) -> int:
        if left:
            raise left.pop()
        return n

    assert flaky(7) == 7
    assert clock.sleeps == [2.0, 4.0]
    assert app.stats().jobs == {}


async def test_an_async_call_is_awaited(app: App, clock: ManualClock) -> None:
    left = [Transient("busy")]

    @app.task(retry=RetryPolicy(initial_delay=2.0, jitter=False))
    async def flaky(job: JobContext, n: int) -> int:
        await job.acheckpoint(n)
        if left:
            raise left.pop()
        return n

    assert await flaky(7) == 7
    assert clock.sleeps == [2.0]


def test_calls_share_their_breaker_and_limit(app: App, clock: ManualClock) -> None:
    @app.task(retry=NO_RETRY, breaker=CircuitBreaker("down", failure_threshold=1))
    def down() -> None:
        raise Transient("down")

    @app.task(retry=NO_RETRY, breaker="down")
    def neighbour() -> None: ...

    @app.task(breaker=None, retry=NO_RETRY, rate="1/day")
    def rare() -> str:
        return "ok"

    with pytest.raises(Transient):
        down()
    with pytest.raises(CircuitOpenError):
        neighbour()
    assert [rare(), rare()] == ["ok", "ok"]
    assert sum(clock.sleeps) == pytest.approx(86_400.0)


def test_a_call_has_a_context_without_a_job(app: App) -> None:
    @app.task
    def work(job: JobContext, n: int) -> tuple[int, Any, int]:
        job.checkpoint({"at": n})
        job.progress(0.5)
        done = job.step("double", lambda: 2 * n)
        return job.attempt, job.last_checkpoint, done

    @app.task(retry=NO_RETRY)
    def write(job: JobContext) -> None:
        with job.transaction():
            pass

    assert work(4) == (1, {"at": 4}, 8)
    with pytest.raises(StoreError, match="needs a job"):
        write()


# ---------------------------------------------------------------- a job run inline


def test_run_gives_everything_that_came_of_it(app: App, clock: ManualClock) -> None:
    errors = [Transient("first"), Transient("second")]

    @app.task(retry=RetryPolicy(initial_delay=5.0, multiplier=2.0, jitter=False))
    def flaky(job: JobContext, n: int) -> int:
        if errors:
            raise errors.pop(0)
        return n * job.attempt

    result = flaky.run(7)
    assert (result.success, result.value, result.error, result.state) == (True, 21, None, JobState.COMPLETED)
    assert [one.message for one in result.attempts] == ["first", "second", ""]
    assert [one.delay_s for one in result.attempts] == [5.0, 10.0, None]
    assert clock.monotonic() >= 15.0
    assert app.stats().jobs == {}


async def test_run_says_how_it_failed(app: App) -> None:
    @app.task
    async def broken() -> None:
        raise Invalid("no")

    result = await broken.arun()
    assert (result.success, result.value, result.state, result.reason) == (
        False,
        None,
        JobState.DEAD_LETTER,
        "not retriable",
    )
    assert isinstance(result.error, Invalid)
    assert [one.failure_type for one in result.attempts] == [FailureType.VALIDATION]


def test_run_has_steps_and_checkpoints_over_its_attempts(app: App) -> None:
    calls = []

    def pay() -> str:
        calls.append("pay")
        return "paid"

    @app.task
    def order(job: JobContext) -> Any:
        paid = job.step("pay", pay)
        seen = job.last_checkpoint
        job.checkpoint([job.attempt, paid])
        if job.attempt == 1:
            raise Transient("half way")
        return seen

    assert order.run().value == [1, "paid"]
    assert calls == ["pay"]


@pytest.mark.parametrize(
    ("value", "state", "reason"),
    [(Discard("sold out"), JobState.CANCELLED, "sold out"), (None, JobState.COMPLETED, "")],
)
def test_snooze_and_discard_are_no_results(app: App, value: Discard | None, state: JobState, reason: str) -> None:
    seen = []

    @app.task
    def polite(job: JobContext) -> Snooze | Discard | None:
        seen.append(job.attempt)
        return Snooze(30.0) if len(seen) < 3 else value

    result = polite.run()
    assert (result.state, result.reason, result.value, result.error) == (state, reason, None, None)
    assert len(seen) == 3


def test_a_classifier_of_the_tasks_own_is_used_and_one_that_raises_is_passed_over(app: App) -> None:
    def never_mind(error: BaseException, context: FailureContext | None) -> Failure:
        return Failure(FailureType.PERMANENT, error)

    def broken(error: BaseException, context: FailureContext | None) -> Failure:
        raise ZeroDivisionError

    @app.task(classify=never_mind)
    def strict() -> None:
        raise Transient("busy")

    @app.task(classify=broken, retry=NO_RETRY)
    def careless() -> None:
        raise Transient("busy")

    assert [one.failure_type for one in strict.run().attempts] == [FailureType.PERMANENT]
    failure = classify(Transient("busy"))
    assert [one.failure_type for one in careless.run().attempts] == [failure.type]


def test_one_budget_object_is_one_budget_for_all_its_tasks(app: App) -> None:
    shared = RetryBudget(cap=1.0)

    @app.task(budget=shared)
    def first() -> None: ...

    @app.task(budget=shared)
    def second() -> None: ...

    @app.task(budget="named")
    def third() -> None: ...

    assert first.spec.budget == second.spec.budget
    assert first.spec.budget_config.cap == second.spec.budget_config.cap == 1.0
    assert third.spec.budget == "named"
