"""Enqueueing while the store is away, and inside of a transaction of the caller's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.app import App, Task
from holdfast.errors import ConfigError, IdempotencyConflict, NotFound, StoreAway, StoreError
from holdfast.ports import Enqueued
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.faulty import FaultyStore
from holdfast.types import JobState, NewJob


class Mending(FaultyStore):
    """Comes back at an instant."""

    back_s = float("inf")
    sent: list[tuple[str, ...]]

    def enqueue_now(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        self._look(jobs)
        return super().enqueue_now(jobs, connection)

    async def enqueue(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        self._look(jobs)
        return await super().enqueue(jobs, connection)

    def _look(self, jobs: Sequence[NewJob]) -> None:
        self.sent.append(tuple(job.id for job in jobs))
        if self._clock.monotonic() >= self.back_s:
            self.mend()


@pytest.fixture
def store(clock: ManualClock) -> Mending:
    found = Mending(MemoryStore(clock), clock)
    found.sent = []
    return found


def app_on(store: FaultyStore, clock: ManualClock, **options: Any) -> App:
    app = App("memory://", clock=clock, **options)
    app._store = store
    return app


def greeting(app: App) -> Task[[str], None, None]:
    @app.task(name="greet")
    def greet(name: str) -> None: ...

    return greet


async def enqueued_both_ways(greet: Task[[str], None, None], way: str) -> Any:
    return await greet.aenqueue("Ada") if way == "async" else greet.enqueue("Ada")


BOTH = pytest.mark.parametrize("way", ["sync", "async"])


# ---------------------------------------------------------------- outages


@BOTH
async def test_without_a_wait_the_error_comes_at_once(store: Mending, clock: ManualClock, way: str) -> None:
    greet = greeting(app_on(store, clock))
    store.fail("enqueue")
    with pytest.raises(StoreAway, match=r"^no connection$"):
        await enqueued_both_ways(greet, way)
    assert (clock.sleeps, len(store.sent)) == ([], 1)


@BOTH
@pytest.mark.parametrize("fault", ["away", "lost"])
async def test_with_a_wait_the_same_job_is_sent_until_the_store_is_there(
    store: Mending, clock: ManualClock, way: str, fault: Any
) -> None:
    app = app_on(store, clock, enqueue_wait=30.0)
    store.fail("enqueue", fault=fault)
    store.back_s = 20.0
    job = await enqueued_both_ways(greeting(app), way)
    assert set(store.sent) == {(job.id,)}
    assert 20.0 <= clock.monotonic() <= 30.0
    assert max(clock.sleeps) <= 5.0
    assert len(clock.sleeps) > 4
    assert (await app.astats()).jobs == {"queued": 1}


@BOTH
async def test_the_wait_has_an_end(store: Mending, clock: ManualClock, way: str) -> None:
    app = app_on(store, clock, enqueue_wait=30.0)
    store.fail("enqueue")
    with pytest.raises(StoreAway, match=r"^no connection \(tried for 30 s\)$"):
        await enqueued_both_ways(greeting(app), way)
    assert clock.monotonic() == pytest.approx(30.0)


@BOTH
async def test_what_will_not_pass_is_not_waited_for(store: Mending, clock: ManualClock, way: str) -> None:
    app = app_on(store, clock, enqueue_wait=30.0)
    store.fail("enqueue", error=StoreError("wrong password"))
    with pytest.raises(StoreError, match="wrong password"):
        await enqueued_both_ways(greeting(app), way)
    assert clock.sleeps == []


@BOTH
async def test_many_are_sent_again_together(store: Mending, clock: ManualClock, way: str) -> None:
    app = app_on(store, clock, enqueue_wait=30.0)
    greet = greeting(app)
    store.fail("enqueue", fault="lost")
    store.back_s = 1.0
    calls = [greet.bind(name) for name in ("Ada", "Bob")]
    jobs = await app.aenqueue_many(calls) if way == "async" else app.enqueue_many(calls)
    assert set(store.sent) == {tuple(job.id for job in jobs)}
    assert (await app.astats()).jobs == {"queued": 2}


def test_a_wait_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="enqueue_wait"):
        App("memory://", enqueue_wait=-1.0)


# ---------------------------------------------------------------- connections


class Taking(MemoryStore):
    """Takes connections: what is written through one is there when it is told to commit."""

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[object, list[NewJob]] = {}

    async def enqueue(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        return self.enqueue_now(jobs, connection)

    def enqueue_now(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        if connection is None:
            return super().enqueue_now(jobs)
        self.open.setdefault(connection, []).extend(jobs)
        return [Enqueued(job.id) for job in jobs]

    def commit(self, connection: object) -> None:
        super().enqueue_now(self.open.pop(connection))


@pytest.fixture
def taking() -> tuple[App, Taking]:
    app = App("memory://", enqueue_wait=30.0)
    app._store = store = Taking()
    return app, store


@BOTH
async def test_a_job_is_there_when_the_callers_transaction_commits(taking: tuple[App, Taking], way: str) -> None:
    app, store = taking
    greet = greeting(app).options(connection="mine", priority=3)
    job = await greet.aenqueue("Ada") if way == "async" else greet.enqueue("Ada")
    assert job.state is JobState.QUEUED
    with pytest.raises(NotFound, match="its transaction has not been committed"):
        await job.arefresh()
    with pytest.raises(NotFound, match="its transaction has not been committed"):
        await job.await_(timeout=1.0)
    store.commit("mine")
    assert (await job.arefresh()).record.priority == 3
    await app.arun_until_idle()
    assert (await job.arefresh()).state is JobState.COMPLETED


@BOTH
async def test_many_go_through_one_connection(taking: tuple[App, Taking], way: str) -> None:
    app, store = taking
    greet = greeting(app)
    mine = greet.options(connection="mine")
    calls = [mine.bind("Ada"), mine.bind("Bob")]
    jobs = await greet.aenqueue_many(calls) if way == "async" else greet.enqueue_many(calls)
    assert [one.id for one in store.open["mine"]] == [job.id for job in jobs]
    for mixed in ([*calls, greet.bind("Cid")], [*calls, greet.options(connection="other").bind("Cid")]):
        with pytest.raises(ConfigError, match="with the same one, or none"):
            await app.aenqueue_many(mixed) if way == "async" else app.enqueue_many(mixed)
    assert len(store.open["mine"]) == 2


@BOTH
async def test_a_store_that_takes_no_connection_says_which_does(way: str) -> None:
    greet = greeting(App("memory://")).options(connection=object())
    with pytest.raises(ConfigError, match=r"memory:// cannot take part .* postgresql://… can"):
        await greet.aenqueue("Ada") if way == "async" else greet.enqueue("Ada")


def test_a_schedule_takes_no_connection(taking: tuple[App, Taking]) -> None:
    app, _ = taking
    with pytest.raises(ConfigError, match="connection"):
        app.schedule(greeting(app).options(connection="mine").bind("Ada"), every=60)


def test_on_a_connection_nothing_is_sent_twice(store: Mending, clock: ManualClock) -> None:
    app = app_on(store, clock, enqueue_wait=30.0)
    store.fail("enqueue")
    with pytest.raises(StoreAway, match=r"^no connection$"):
        greeting(app).options(connection="mine").enqueue("Ada")
    assert clock.sleeps == []


def test_a_key_that_is_taken_is_a_conflict_as_ever(taking: tuple[App, Taking]) -> None:
    app, store = taking
    taken = greeting(app).options(idempotency_key="k", connection="mine")

    def refuse(jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        return [Enqueued("another", is_new=False, is_conflict=True)]

    store.enqueue_now = refuse  # type: ignore[method-assign]
    with pytest.raises(IdempotencyConflict, match="another"):
        taken.enqueue("Ada")


def test_an_app_is_shown_without_its_password() -> None:
    app = App("memory://")
    app.url = "postgresql://u:secret@host/db"
    assert repr(app) == "<App postgresql://u:…@host/db 0 tasks>"
