"""Row 27: Redis stands still, is busy, or drops all. Nobody hangs, nothing is lost, no stale holder is believed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from redis import Redis, ResponseError

from holdfast.app.task import Call
from holdfast.errors import StoreAway
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import full_only, on, waits
from tests.faults.engines import RedisEngine
from tests.faults.load import Dice, mixed_calls
from tests.faults.report import Figures, Report, figures_of
from tests.faults.storm import weather
from tests.faults.workers import CLOCK, LEASE_S, poll

_LONG_ONES: Final = 2


@waits
@on("redis")
def test_a_server_that_stands_still_past_all_leases_is_survived(arena: Arena, is_full: bool, report: Report) -> None:
    engine, dice = arena.engine, Dice()
    assert isinstance(engine, RedisEngine)
    jobs, strikes = (10_000, 10) if is_full else (200, 1)

    def strike(_: object) -> None:
        engine.server.pause()
        CLOCK.sleep(1.5 * LEASE_S)
        engine.server.resume()

    calls = _with_long_ones(arena, mixed_calls(arena.app, jobs, dice, seconds=0.02), strikes)
    after = weather(arena, calls, strike, strikes=strikes, every_s=0.4, is_outage=True, is_patient=True)

    assert checker.check(after.evidence) == []
    assert completed(after.evidence) == len(after.evidence.acked)
    assert list(checker.recoveries(after.evidence)), "no job was cut off: this run shows nothing"
    again = sum(len(runs) > 1 for runs in checker.runs_by_job(after.evidence.effects).values())
    report(
        "the server stands still (SIGSTOP) for one and a half leases",
        injected=strikes,
        figures=figures_of(after.evidence),
        note=f"{again} jobs ran again, {after.told}",
        seed=dice.seed,
    )


@full_only  # and keeps a processor busy, so that others would wait for one beside it
@on("redis")
def test_a_server_that_is_busy_with_a_script_past_all_leases_is_survived(arena: Arena, report: Report) -> None:
    engine, dice = arena.engine, Dice()
    assert isinstance(engine, RedisEngine)
    jobs, strikes = 3_000, 4
    with engine.server.client() as client:
        client.config_set("busy-reply-threshold", 100)

    def strike(_: object) -> None:
        with engine.server.client() as client, ThreadPoolExecutor(1) as beside:
            script = beside.submit(client.eval, "while true do end", 0)
            with engine.server.client() as other:
                poll(lambda: _is_busy(other), 5, "the server is busy")
                CLOCK.sleep(1.5 * LEASE_S)
                other.script_kill()
            with pytest.raises(ResponseError, match="killed by user"):
                script.result(5)

    calls = _with_long_ones(arena, mixed_calls(arena.app, jobs, dice, seconds=0.02), strikes)
    after = weather(arena, calls, strike, strikes=strikes, every_s=1.0, is_outage=True, is_patient=True)

    assert checker.check(after.evidence) == []
    assert completed(after.evidence) == len(after.evidence.acked)
    assert list(checker.recoveries(after.evidence)), "no job was cut off: this run shows nothing"
    assert after.refusals, "nobody was told: this run shows nothing"
    assert {(type(one), "busy with a script" in str(one)) for one in after.refusals} == {(StoreAway, True)}
    assert "busy with a script" in after.log
    again = sum(len(runs) > 1 for runs in checker.runs_by_job(after.evidence.effects).values())
    report(
        "the server is busy with somebody's script for one and a half leases, and answers BUSY",
        injected=strikes,
        figures=figures_of(after.evidence),
        note=f"{again} jobs ran again, {after.told}; each was told that the server is away, and was asked again",
        seed=dice.seed,
    )


def _with_long_ones(arena: Arena, calls: list[Call[Any]], strikes: int) -> list[Call[Any]]:
    """Before each strike's share of them, jobs that run for longer than a lease, and have no attempt to lose."""
    share = len(calls) // strikes
    return [
        one
        for n in range(strikes)
        for one in (
            *(arena.call("once", 2 * LEASE_S, 0.0) for _ in range(_LONG_ONES)),
            *calls[n * share : (n + 1) * share],
        )
    ]


def _is_busy(client: Redis) -> bool:
    try:
        client.ping()
    except ResponseError as error:
        return "BUSY" in str(error)
    return False


@waits
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


@waits
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
    assert completed(after.evidence) == len(after.evidence.acked)
    report(
        "all clients dropped (CLIENT KILL) at once",
        injected=strikes,
        figures=figures_of(after.evidence),
        note=after.told,
        seed=dice.seed,
    )
