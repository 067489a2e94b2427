"""`/retry/…`, as T3 and T4 have it."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import App, CircuitBreaker
from holdfast.ops.api import ApiSettings
from holdfast.ports import Count, Exchange
from tests.unit.ops.api.shopfront import Shopfront, new_app


async def test_the_statistics_have_the_fields_of_t4_and_count_each_attempt_once(front: Shopfront) -> None:
    await front.letters(5, 6, 500)
    counts = [Count(0, "shop.charge", name, n) for name, n in (("completed", 6), ("retried", 3), ("failed", 1))]
    await front.app.store.exchange(Exchange(counts=[*counts, Count(0, "shop.charge", "failed:permanent", 1)]))
    totals = {one.name: one.n for one in (await front.app.store.stats()).totals}
    stats = await front.get("/retry/stats")
    execution = stats["execution_stats"]
    assert list(execution) == [
        "total_executed",
        "successful",
        "failed",
        "retried",
        "success_rate",
        "failure_rate",
        "retry_rate",
    ]
    assert execution["total_executed"] == sum(totals[name] for name in ("completed", "retried", "failed"))
    assert execution["successful"] == totals["completed"]
    rates = execution["success_rate"] + execution["failure_rate"] + execution["retry_rate"]
    assert rates == pytest.approx(100.0, abs=0.03)
    assert stats["circuit_breaker_stats"] == {
        "total_circuit_breakers": 2,
        "open_circuits": 0,
        "closed_circuits": 2,
    }
    assert stats["dead_letter_stats"] == {"total_dead_letters": 1, "by_task_type": {"shop.charge": 1}}
    assert stats["failures_by_error_type"]["permanent"] >= 1
    assert stats["tasks_per_second_per_worker"] == {}


async def test_a_breaker_that_is_held_open_counts_as_open(front: Shopfront) -> None:
    await front.post("/breakers/shop.charge/force-open")
    assert (await front.get("/retry/stats"))["circuit_breaker_stats"]["open_circuits"] == 1


async def test_failures_are_not_simulated_unless_that_is_switched_on(front: Shopfront) -> None:
    await front.post("/retry/simulate-failure", status=404, task_type="shop.charge")
    assert (await front.get("/breakers"))["items"][1]["failures"] == 0


async def test_five_simulated_failures_open_a_breaker_as_failed_runs_would() -> None:
    front = Shopfront(new_app(), ApiSettings(allows_simulation=True))
    modes = []
    for _ in range(6):
        answer = await front.post("/retry/simulate-failure", task_type="shop.charge")
        modes.append((answer["breaker"]["state"], answer["breaker"]["trips"]))
    assert modes == [("closed", 0)] * 4 + [("open", 1)] * 2
    assert answer["breaker"]["cause"] == "a simulated failure"
    job = await front.app.tasks["shop.charge"].aenqueue(1)
    assert (await job.arefresh()).state == "queued"
    await front.post("/retry/simulate-failure", status=404, task_type="none")
    await front.post("/retry/simulate-failure", status=422)
    await front.app.aclose()


async def test_a_breaker_with_a_window_counts_them_too() -> None:
    app = App("memory://")
    breaker = CircuitBreaker(failure_rate=0.5, window=4, min_calls=2)

    @app.task(name="windowed", breaker=breaker)
    def windowed() -> None:
        """Is not called."""

    @app.task(name="without", breaker=None)
    def without() -> None:
        """Is not called."""

    front = Shopfront(app, ApiSettings(allows_simulation=True))
    states = [(await front.post("/retry/simulate-failure", task_type="windowed"))["breaker"] for _ in range(2)]
    assert [one["state"] for one in states] == ["closed", "open"]
    assert states[0]["window"] == "50 % of 4 calls"
    await front.post("/retry/simulate-failure", status=409, task_type="without")
    await app.aclose()


async def test_a_simulated_failure_survives_others_who_change_the_breaker() -> None:
    front = Shopfront(new_app(), ApiSettings(allows_simulation=True))
    store = front.app.store
    lost = [2]

    class Contended:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def exchange(self, exchange: Exchange) -> object:
            if exchange.changes and lost[0]:
                lost[0] -= 1
                (change,) = exchange.changes
                stolen = msgspec.structs.replace(exchange, changes=[msgspec.structs.replace(change, expected=99)])
                return await store.exchange(stolen)
            return await store.exchange(exchange)

    front.app._store = Contended()  # type: ignore[assignment]
    answer = await front.post("/retry/simulate-failure", task_type="shop.charge")
    assert answer["breaker"]["failures"] == 1
    assert lost == [0]
    front.app._store = store
    await front.app.aclose()
