"""`app.health()`: what is told of a real store after real work, and of one that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Permanent
from holdfast.errors import ConfigError, StoreAway
from holdfast.ports import Exchange, Exchanged, WorkerRecord
from holdfast.runtime import machine
from holdfast.runtime.machine import Memory
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.faulty import FaultyStore

ALIVE = WorkerRecord(id="w1", lease_s=3600.0)


@pytest.fixture(autouse=True)
def _enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of the tests may be short of it."""
    monkeypatch.setattr(machine, "left_memory", lambda: Memory(1, 2))


@pytest.fixture
def app(clock: ManualClock) -> Iterator[App]:
    app = App("memory://", clock=clock)
    yield app
    app.close()


def faulty(app: App, clock: ManualClock) -> FaultyStore:
    app._store = store = FaultyStore(MemoryStore(clock), clock)
    return store


async def test_an_app_that_has_done_nothing_is_well(app: App) -> None:
    health = await app.ahealth()
    assert (health.healthy, health.status, health.score) == (True, "healthy", 1.0)
    assert health.reasons == ()
    assert (health.success_rate, health.open_breakers, health.dead_letters, health.workers) == (None, (), 0, 0)
    assert {name: result.status for name, result in health.checks.items()} == {"store": "ok", "memory": "ok"}
    assert (health.is_durable, health.durability) == (False, "nothing survives the end of this process"), "a label"


async def test_attempts_letters_breakers_and_workers_are_counted(app: App) -> None:
    @app.task(name="even", breaker=None)
    def even(n: int) -> None:
        if n % 2:
            raise Permanent("odd")

    for n in range(4):
        await even.aenqueue(n)
    await app.arun_until_idle()
    await app.breakers.aforce_open("db")
    await app.store.heartbeat(ALIVE)
    health = await app.ahealth()
    assert (health.success_rate, health.dead_letters, health.open_breakers, health.workers) == (0.5, 2, ("db",), 1)
    # Half of the attempts failed (0.3), the one breaker is open (0.3), two new dead letters (0.004).
    assert (health.score, health.status, health.healthy) == (0.396, "unhealthy", False)
    assert health.reasons == (
        "50 % of attempts failed in 5 minutes",
        "breaker db is open",
        "2 jobs became dead letters in 5 minutes",
    )


async def test_what_happened_long_ago_is_forgotten(app: App, clock: ManualClock) -> None:
    @app.task(breaker=None)
    def fails() -> None:
        raise Permanent("no")

    await fails.aenqueue()
    await app.arun_until_idle()
    assert (await app.ahealth()).success_rate == 0.0
    clock.advance(360)
    health = await app.ahealth()
    assert (health.success_rate, health.dead_letters, health.score) == (None, 1, 1.0)


async def test_jobs_without_a_worker_are_a_trouble_unless_their_queue_is_paused(app: App, clock: ManualClock) -> None:
    @app.task(queue="mail")
    def send() -> None: ...

    await send.aenqueue()
    health = await app.ahealth()
    assert (health.score, health.reasons) == (0.4, ("jobs are due and no worker is alive",))
    await app.queues.apause("mail")
    assert (await app.ahealth()).score == 1.0
    await app.queues.aresume("mail")
    await app.store.heartbeat(ALIVE)
    clock.advance(330)
    assert (await app.ahealth()).score == 0.85, "a worker lives, and the lag counts"


async def test_a_failed_check_makes_an_app_less_well_and_a_critical_one_ill(app: App) -> None:
    wrong = {"a": True, "b": False}

    @app.health_check("a", timeout=2.0)
    def a() -> bool:
        return wrong["a"]

    @app.health_check("b", critical=True)
    async def b() -> bool:
        return wrong["b"]

    health = await app.ahealth()
    assert (health.score, health.status, health.checks["b"].error) == (0.0, "unhealthy", "it returned False")
    wrong["b"] = True
    assert (await app.ahealth()).score == 1.0
    wrong["a"] = False
    health = await app.ahealth()
    assert (health.score, health.status, health.healthy) == (0.75, "degraded", True)
    assert health.reasons == ("check a failed",)


async def test_a_store_that_is_away_is_told_and_not_raised(app: App, clock: ManualClock) -> None:
    store = faulty(app, clock)
    store.fail()
    health = await app.ahealth()
    assert (health.healthy, health.status, health.score) == (False, "unhealthy", 0.0)
    assert health.reasons == ("check store failed",)
    assert health.checks["store"].error == "holdfast.errors.StoreAway: no connection"
    assert health.durability == "unknown, as the store has not been reached yet"
    store.mend()
    assert (await app.ahealth()).healthy
    store.fail()
    assert (await app.ahealth()).durability == "nothing survives the end of this process", "as it was known before"


@pytest.mark.parametrize("verb", ["exchange", "stats"])
async def test_a_store_that_hangs_is_told_after_its_time(app: App, clock: ManualClock, verb: str) -> None:
    store = faulty(app, clock)
    store.fail(verb, fault="hang")
    asked = asyncio.create_task(app.ahealth())
    while not store.waiting[verb]:
        await asyncio.sleep(0)  # noqa: TID251 - only lets others run
    clock.advance(5)
    health = await asked
    assert (health.score, health.checks["store"].status) == (0.0, "timeout")


class Full(FaultyStore):
    """Answers what is read, and takes nothing."""

    is_full = True
    writes = 0

    async def exchange(self, exchange: Exchange) -> Exchanged:
        if exchange.counts:
            self.writes += 1
            if self.is_full:
                raise StoreAway("its memory is full, nothing was written")
        return await super().exchange(exchange)


async def test_a_store_that_takes_no_writes_is_ill(app: App, clock: ManualClock) -> None:
    app._store = store = Full(MemoryStore(clock), clock)
    for _ in range(2):
        health = await app.ahealth()
        assert (health.score, health.checks["store"].status) == (0.0, "failed")
        assert "its memory is full" in (health.checks["store"].error or "")
    store.is_full = False
    assert (await app.ahealth()).healthy, "it is tried at once after a failure"


async def test_a_store_is_written_to_now_and_then_and_nobody_hears_of_it(app: App, clock: ManualClock) -> None:
    app._store = store = Full(MemoryStore(clock), clock)
    store.is_full = False
    for _ in range(20):
        assert (await app.ahealth()).healthy
        clock.advance(1.0)
    assert store.writes == 2
    assert (await store.exchange(Exchange())).values == []


def test_a_store_that_is_a_file_has_its_disk_looked_at(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/shop.db")
    health = app.health()
    app.close()
    assert list(health.checks) == ["store", "memory", "disk"]
    assert health.checks["store"].status == "ok"
    assert health.is_durable


@pytest.mark.parametrize("name", ["store", "disk", "memory", "mine"])
def test_a_name_is_taken_once(app: App, name: str) -> None:
    app.health_check("mine", lambda: True)

    def other() -> bool:
        return True

    with pytest.raises(ConfigError, match=f"two health checks are named '{name}'"):
        app.health_check(name)(other)


def test_a_module_that_is_loaded_again_brings_its_checks_again(app: App) -> None:
    made: list[Any] = []
    for _ in range(2):

        @app.health_check("mine")
        def mine() -> None: ...

        made.append(mine)
    assert made[0] is not made[1]
