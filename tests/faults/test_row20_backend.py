"""Row 20: a server process of PostgreSQL is killed, and with it all sessions fall. The fleet comes back by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, suppress

import psycopg
import pytest

from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.engines import PostgresEngine
from tests.faults.load import Dice, mixed_calls
from tests.faults.report import Report, figures_of
from tests.faults.storm import weather
from tests.faults.workers import CLOCK, poll
from tests.servers import PostgresServer

STORE = "postgres"


@pytest.fixture
def engine() -> Iterator[PostgresEngine]:
    """A server of its own: its neighbours would fall too."""
    with PostgresServer() as server, closing(PostgresEngine(server)) as engine:
        yield engine


def kill_one(engine: PostgresEngine, dice: Dice, witness: psycopg.Connection) -> None:
    """SIGKILL to the server process of some other session."""
    while True:
        pids = [pid for pid in engine.server.backends() if pid != witness.info.backend_pid]
        with suppress(ProcessLookupError):  # its client has just left
            os.kill(pids[dice.below(len(pids))], signal.SIGKILL)
            return


def test_a_killed_server_process_costs_nothing_but_the_time(
    arena: Arena, engine: PostgresEngine, is_full: bool, report: Report
) -> None:
    dice = Dice()
    jobs, strikes = (10_000, 20) if is_full else (200, 2)
    outages: list[float] = []

    def strike(_: object) -> None:
        with engine.connection() as witness:
            kill_one(engine, dice, witness)
            began_s = CLOCK.monotonic()
            with pytest.raises(psycopg.OperationalError):
                witness.execute("SELECT pg_sleep(20)")
        poll(engine.answers, 30, "the server is back")
        outages.append(CLOCK.monotonic() - began_s)

    calls = mixed_calls(arena.app, jobs, dice, seconds=0.02)
    after = weather(arena, calls, strike, strikes=strikes, every_s=0.5, is_outage=True)

    assert checker.check(after.evidence) == []
    assert completed(after.evidence) == len(after.evidence.acked)
    report(
        "a server process killed (SIGKILL), so that all sessions fall",
        injected=strikes,
        figures=figures_of(after.evidence),
        note=f"away for up to {max(outages):.2f} s, {after.told}",
        seed=dice.seed,
    )
