"""Row 27: Redis stands still, or drops all its clients. Nobody hangs, nothing is lost, no stale holder is believed."""

from __future__ import annotations

from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import on, waits
from tests.faults.engines import RedisEngine
from tests.faults.load import Dice, mixed_calls
from tests.faults.report import Figures, Report, figures_of
from tests.faults.storm import weather
from tests.faults.workers import CLOCK, LEASE_S

pytestmark = waits


@on("redis")
def test_a_server_that_stands_still_past_all_leases_is_survived(arena: Arena, is_full: bool, report: Report) -> None:
    engine, dice = arena.engine, Dice()
    assert isinstance(engine, RedisEngine)
    jobs, strikes = (10_000, 10) if is_full else (200, 1)

    def strike(_: object) -> None:
        engine.server.pause()
        CLOCK.sleep(1.5 * LEASE_S)
        engine.server.resume()

    calls = mixed_calls(arena.app, jobs, dice, seconds=0.02)
    after = weather(arena, calls, strike, strikes=strikes, every_s=0.4, is_outage=True)

    assert checker.check(after.evidence) == []
    assert completed(after.evidence) == jobs
    again = sum(len(runs) > 1 for runs in checker.runs_by_job(after.evidence.effects).values())
    report(
        "the server stands still (SIGSTOP) for one and a half leases",
        injected=strikes,
        figures=figures_of(after.evidence),
        note=f"{again} jobs ran again, {after.told}",
        seed=dice.seed,
    )


@on("redis")
def test_a_connection_may_be_lost_any_number_of_times(arena: Arena, report: Report) -> None:
    engine, times = arena.engine, 200
    assert isinstance(engine, RedisEngine)
    with engine.server.client() as client:
        for _ in range(times):
            client.client_kill_filter(_type="normal", skipme=True)
            arena.enqueue([arena.call("work", 1)])
    assert arena.unfinished() == times
    acked = len(arena.client.acked)
    report(
        "one client dropped before each of its enqueues",
        injected=times,
        figures=Figures(acked=acked, lost=acked - arena.unfinished()),
        note=f"enqueues told of it {times - acked}",
    )


@on("redis")
def test_clients_that_are_all_dropped_come_back_at_no_cost(arena: Arena, is_full: bool, report: Report) -> None:
    engine, dice = arena.engine, Dice()
    assert isinstance(engine, RedisEngine)
    jobs, strikes = (10_000, 200) if is_full else (300, 10)

    def strike(_: object) -> None:
        with engine.server.client() as client:
            for kind in ("normal", "pubsub"):
                client.client_kill_filter(_type=kind, skipme=True)

    calls = mixed_calls(arena.app, jobs, dice, seconds=0.02)
    after = weather(arena, calls, strike, strikes=strikes, every_s=0.3 if is_full else 0.15)

    assert checker.check(after.evidence) == []
    assert completed(after.evidence) == jobs
    report(
        "all clients dropped (CLIENT KILL) at once",
        injected=strikes,
        figures=figures_of(after.evidence),
        note=after.told,
        seed=dice.seed,
    )
