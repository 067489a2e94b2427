"""What people do with an app: its hooks, numbers, dead letters, breakers, queues and jobs."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.app import App, Job
from holdfast.errors import ConfigError, Invalid, NotFound, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.replay import ReplayState
from holdfast.runtime.replays import Preview
from holdfast.testing import ManualClock
from holdfast.types import BreakerMode, JobState

NO_RETRY = RetryPolicy(max_retries=0)


@pytest.fixture
def app() -> App:
    return App("memory://")


def test_hooks_run_around_the_work_shutdown_in_reverse(app: App) -> None:
    calls: list[str] = []

    @app.on_startup
    def first() -> None:
        calls.append("first")

    @app.on_startup
    async def second() -> None:
        calls.append("second")

    @app.on_shutdown
    def last() -> None:
        calls.append("last")

    @app.on_shutdown
    async def before_last() -> None:
        calls.append("before last")

    @app.task
    async def work() -> None:
        calls.append("work")

    work.enqueue()
    app.run_until_idle()
    assert calls == ["first", "second", "work", "before last", "last"]


def test_stats_count_each_attempt_once(app: App) -> None:
    errors: list[Exception] = [Transient("busy"), Transient("busy")]

    @app.task(name="flaky", retry=RetryPolicy(initial_delay=1.0))
    def flaky() -> None:
        if errors:
            raise errors.pop()

    @app.task(name="broken")
    async def broken() -> None:
        raise Invalid("no")

    flaky.enqueue()
    broken.enqueue()
    app.run_until_idle()
    stats = app.stats()
    assert (stats.completed, stats.retried, stats.failed, stats.executed) == (1, 2, 1, 4)
    assert stats.success_rate == 0.25
    assert stats.failures_by_type == {"transient": 2, "validation": 1}
    assert stats.jobs == {"completed": 1, "dead_letter": 1}
    assert stats.by_task == {"flaky": {"completed": 1}, "broken": {"dead_letter": 1}}
    assert stats.workers == []


def test_a_dead_letter_goes_back_with_other_arguments(app: App) -> None:
    @app.task
    def charge(cents: int) -> int:
        if cents < 0:
            raise Invalid("less than nothing")
        return cents

    job = charge.enqueue(-1)
    app.run_until_idle()
    (letter,) = app.dead_letters.list().items
    assert (letter.id, letter.reason, letter.message) == (job.id, "not retriable", "less than nothing")
    with pytest.raises(Invalid, match="'cents'"):
        app.dead_letters.retry(job.id, {"cents": "much"})
    assert app.dead_letters.retry(job.id, {"cents": 5}).is_done
    app.run_until_idle()
    assert job.wait(timeout=1).result == 5
    assert [one.number for one in job.attempts] == [1, 2]
    assert app.dead_letters.list().items == []


def test_a_breaker_is_opened_and_closed_by_hand(app: App) -> None:
    ran = []

    @app.task(breaker="payments")
    def charge() -> None:
        ran.append(1)

    app.breakers.force_open("payments")
    job = charge.enqueue()
    app.run_until_idle()
    assert (ran, job.refresh().state, job.record.attempt) == ([], JobState.QUEUED, 0)
    assert [(view.key, view.mode) for view in app.breakers.list()] == [("payments", BreakerMode.FORCED_OPEN)]
    app.breakers.reset("payments")
    app.run_until_idle()
    assert ran == [1]


def test_a_paused_queue_starts_nothing(app: App) -> None:
    ran = []

    @app.task(queue="mail")
    async def send() -> None:
        ran.append(1)

    app.queues.pause("mail")
    send.enqueue()
    app.run_until_idle()
    (queue,) = app.queues.list()
    assert (ran, queue.name, queue.is_paused, queue.depth) == ([], "mail", True, 1)
    app.queues.resume("mail")
    app.run_until_idle()
    assert ran == [1]


def test_jobs_are_listed_got_and_cancelled(app: App) -> None:
    @app.task(name="a")
    def one() -> None: ...

    @app.task(name="b")
    def two() -> None: ...

    first, second = one.enqueue(), two.options(user="u").enqueue()
    assert [record.id for record in app.jobs.list().items] == [second.id, first.id]
    assert [record.id for record in app.jobs.list(task="a").items] == [first.id]
    assert [record.id for record in app.jobs.list(user="u", states=["queued"]).items] == [second.id]
    assert app.jobs.get(first.id).state is JobState.QUEUED
    with pytest.raises(NotFound):
        app.jobs.get("00000000-0000-7000-8000-000000000000")
    assert [changed.is_done for changed in app.jobs.cancel([first.id, first.id])] == [True, False]
    assert [(changed.id, changed.is_done) for changed in app.jobs.cancel(first.id)] == [(first.id, False)]


def test_a_replay_is_driven_by_the_workers(app: App) -> None:
    broken = [True]

    @app.task(retry=NO_RETRY, breaker=None)
    def work(n: int) -> int:
        if broken[0]:
            raise Transient("broken")
        return n

    jobs = [work.enqueue(n) for n in range(5)]
    app.run_until_idle()
    (group,) = app.dead_letters.groups()
    assert group.count == 5
    broken[0] = False
    app.dead_letters.replay(group=group.fingerprint, canary=2)
    app.run_until_idle()
    (replay,) = app.dead_letters.replays()
    assert (replay.state, replay.verdict, replay.sent) == ("done", "passed", 5)
    assert [job.wait(timeout=1).result for job in jobs] == [0, 1, 2, 3, 4]


def test_a_replay_whose_canary_fails_again_stops(app: App) -> None:
    @app.task(retry=NO_RETRY, breaker=None)
    def work(n: int) -> int:
        raise Transient("broken")

    for n in range(3):
        work.enqueue(n)
    app.run_until_idle()
    app.dead_letters.replay(canary=1)
    app.run_until_idle()
    (replay,) = app.dead_letters.replays()
    assert (replay.state, replay.verdict, replay.sent) == ("stopped", "failed", 1)
    assert app.stats().jobs == {"dead_letter": 3}


def test_exported_letters_are_imported_with_their_gates(app: App) -> None:
    @app.task(breaker=CircuitBreaker("b", failure_threshold=10), retry=NO_RETRY)
    def work(n: int) -> int:
        raise Transient("broken")

    job = work.enqueue(1)
    app.run_until_idle()
    lines = list(app.dead_letters.export())
    app.dead_letters.remove(job.id)
    app.dead_letters.import_(lines)
    app.breakers.force_open("b")
    app.run_until_idle()
    assert app.jobs.get(job.id).state is JobState.QUEUED


def test_a_closed_app_can_be_used_again(app: App) -> None:
    @app.task
    def work() -> None: ...

    work.enqueue()
    app.close()
    assert app.stats().jobs == {}
    job = work.enqueue()
    app.run_until_idle()
    assert job.refresh().state is JobState.COMPLETED
    app.close()


def test_every_method_that_blocks_has_a_twin_for_async_code(app: App) -> None:
    def twin_of(name: str) -> str:
        return "await_" if name == "wait" else f"a{name.rstrip('_')}"

    desks = (app.dead_letters, app.jobs, app.breakers, app.queues, app.schedules)
    verbs: dict[type, set[str]] = {type(desk): public_methods(type(desk)) for desk in desks}
    verbs[App] = {"enqueue_many", "run_until_idle", "stats", "prune", "close"}
    verbs[Job] = {"refresh", "wait", "cancel"}
    missing = [
        f"{owner.__name__}.{name}"
        for owner, names in verbs.items()
        for name in sorted(names)
        if not hasattr(owner, twin_of(name)) and not is_twin(name, names)
    ]
    assert missing == []
    assert len(verbs[type(app.dead_letters)]) > 20


def public_methods(owner: type) -> set[str]:
    return {name for name in vars(owner) if not name.startswith("_") and callable(getattr(owner, name))}


def is_twin(name: str, names: set[str]) -> bool:
    return name.startswith("a") and (name[1:] in names or f"{name[1:]}_" in names)


async def test_a_replay_is_steered_from_async_code(app: App) -> None:
    @app.task(retry=NO_RETRY, breaker=None)
    async def work() -> None:
        raise Transient("broken")

    await app.aenqueue_many([work.bind() for _ in range(3)])
    await app.arun_until_idle()
    desk = app.dead_letters
    preview = await desk.areplay(dry_run=True)
    assert isinstance(preview, Preview)
    assert (preview.total, await desk.areplays()) == (3, [])
    replay: Any = await desk.areplay(rate=1)
    assert (await desk.apause_replay(replay.id)).state is ReplayState.PAUSED
    assert (await desk.aresume_replay(replay.id)).state is ReplayState.RUNNING
    assert (await desk.astop_replay(replay.id)).state is ReplayState.STOPPED
    assert [(one.id, one.state) for one in await desk.areplays()] == [(replay.id, ReplayState.STOPPED)]


def test_pruning_deletes_all_whose_time_is_over_and_says_how_many(clock: ManualClock) -> None:
    app = App("memory://", clock=clock, result_ttl=10.0)

    @app.task(breaker=None)
    async def work() -> None: ...

    app.enqueue_many([work.bind() for _ in range(1_001)])
    app.run_until_idle()
    assert app.prune() == 0
    clock.advance(11.0)
    kept = work.enqueue()
    assert app.prune() == 1_001
    assert (app.prune(), kept.refresh().state) == (0, JobState.QUEUED)


def test_a_state_that_does_not_exist_is_refused_with_those_that_do(app: App) -> None:
    with pytest.raises(ConfigError, match=r"states='finished': must be one of .*completed"):
        app.jobs.list(states=["finished"])
