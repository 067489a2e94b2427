"""Row 21: PostgreSQL crashes and starts again. As it is set up by default nothing is lost; else the store says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.engines import PostgresEngine
from tests.faults.load import Dice, mixed_calls
from tests.faults.report import Report, figures_of
from tests.faults.shop import open_shop
from tests.faults.storm import Producer, weather
from tests.faults.workers import poll
from tests.servers import PostgresServer

STORE = "postgres"


@pytest.fixture
def engine() -> Iterator[PostgresEngine]:
    """A server of its own, which waits for the disk."""
    with PostgresServer({"fsync": "on"}) as server, closing(PostgresEngine(server)) as engine:
        yield engine


def test_a_crash_loses_nothing(arena: Arena, engine: PostgresEngine, is_full: bool, report: Report) -> None:
    jobs, strikes = (10_000, 20) if is_full else (200, 2)

    def strike(_: object) -> None:
        engine.server.kill()
        engine.server.start()

    dice = Dice()
    after = weather(
        arena,
        mixed_calls(arena.app, jobs, dice, seconds=0.02),
        strike,
        strikes=strikes,
        every_s=0.5,
        is_outage=True,
    )

    assert arena.app.store.capabilities.is_durable
    assert checker.check(after.evidence) == []
    assert completed(after.evidence) == len(after.evidence.acked)
    report(
        "the server crashes and is started again, synchronous_commit=on",
        injected=strikes,
        figures=figures_of(after.evidence),
        note=after.told,
        seed=dice.seed,
    )


def test_a_store_that_may_lose_what_it_has_said_yes_to_is_labelled(
    tmp_path: Path, engine: PostgresEngine, is_full: bool, report: Report
) -> None:
    arena = Arena(tmp_path, engine)
    hasty = open_shop(f"{engine.url}&synchronous_commit=off", tmp_path / "effects")
    jobs = 20_000 if is_full else 1_000
    producer = Producer(hasty, arena.client, [arena.call("work", n) for n in range(jobs)], at_once=1)
    with closing(arena), closing(hasty):
        assert not hasty.store.capabilities.is_durable
        assert hasty.store.capabilities.warnings
        producer.end()  # with these
        producer.start()
        poll(lambda: len(arena.client.acked) >= jobs // 2, 60, "half of the jobs are acked")
        engine.server.kill()
        # What it was told yes for before the crash is in the ledger once it is told no.
        poll(lambda: bool(producer.refusals), 20, "the producer hears of the crash")
        acked = frozenset(arena.client.acked)
        engine.server.start()
        producer.join(60)
        assert producer.failure is None
        assert len(arena.client.acked) == jobs
        with arena.fleet() as fleet:
            fleet.start()
            arena.quiesce(60)
            fleet.stop()
            evidence = arena.evidence(fleet)

    lost = frozenset(evidence.acked) - evidence.jobs.keys()
    assert lost <= acked, "a job was lost that was acked after the crash"
    assert checker.check(replace(evidence, removed=lost)) == []
    report(
        "the server crashes and is started again, synchronous_commit=off",
        injected=1,
        figures=figures_of(evidence, forfeited=lost),
        note=f"{len(acked):,} were acked before it; the store is labelled as not durable",
    )
