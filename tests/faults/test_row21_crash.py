"""Row 21: PostgreSQL crashes and starts again. As it is set up by default nothing is lost; else the store says so."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Delivery, Exchange, Settlement, WorkerRecord
from holdfast.types import Change, JobState, NewJob
from holdfast.wiring import open_store
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


def stop_log_writer(server: PostgresServer) -> None:
    """From here on the log is written by whoever waits for it, and by nobody besides."""
    os.kill(server.part("walwriter"), signal.SIGSTOP)


async def test_a_claim_that_came_alone_may_be_lost_in_a_crash_and_none_that_came_with_a_settlement() -> None:
    async def claim(*settlements: Settlement) -> Delivery:
        wish = Claim(worker="w", token=new_token(), limit=1)
        reply = await store.exchange(Exchange(settlements=settlements, claim=wish))
        assert reply.settled == [True] * len(settlements)
        (delivery,) = reply.deliveries
        return delivery

    async def crash() -> dict[JobState, int]:
        server.kill()
        await asyncio.to_thread(server.start)
        records = await store.get([one.id for one in jobs])
        return Counter(one.state for one in records if one is not None)

    jobs = [NewJob(id=new_id(), task="work", payload=b"{}") for _ in range(4)]
    with PostgresServer({"fsync": "on"}) as server, closing(PostgresEngine(server)) as engine:
        store = open_store(engine.url)
        await store.enqueue(jobs)
        await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
        await claim()  # the first one has to look around, and to write that down
        stop_log_writer(server)
        await claim()
        assert await crash() == {JobState.RUNNING: 1, JobState.QUEUED: 3}
        held = await claim()
        stop_log_writer(server)
        await claim(Settlement(id=held.id, token=held.token, change=Change.COMPLETE, result=b"1"))
        assert await crash() == {JobState.COMPLETED: 1, JobState.RUNNING: 2, JobState.QUEUED: 1}
        await store.close()


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
