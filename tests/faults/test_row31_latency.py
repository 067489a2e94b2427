"""Row 31: the way to the store is slow, or as slow as it likes, or narrow. No lease is lost for it."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from holdfast.clock import new_token
from holdfast.ports import Claim, Exchange, Store, WorkerRecord
from holdfast.runtime.runner import Room
from holdfast.runtime.worker import WorkerSettings
from holdfast.testing import FaultProxy
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import full_only, on, waits
from tests.faults.engines import PostgresEngine, RedisEngine
from tests.faults.load import Dice
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, LEASE_S, SETTINGS, poll

pytestmark = [full_only, waits]
ROOM = Room(concurrency=4, threads=2, isolates=1)
LATENCY_S, JITTER_S = 0.2, 1.0
"""How late everything is, each way; a heartbeat whose answer takes longer than 3 s is taken as lost."""
USUAL_LEASE_S = WorkerSettings().lease_s
"""What workers have unless they are told otherwise."""
CLAIMS = 20
LINK_BYTES_S = 2_000
BALLAST = "x" * int(2 * LEASE_S * LINK_BYTES_S)
"""On the narrow link it is under way for two leases."""
Server = PostgresEngine | RedisEngine


@on("postgres", "redis")
def test_answers_that_take_seconds_cost_no_lease(arena: Arena, engine: Server, report: Report) -> None:
    dice = Dice()
    proxy = engine.proxy(dice.draw)
    settings = replace(SETTINGS, room=ROOM, lease_s=USUAL_LEASE_S, heartbeat_s=None)
    with arena.fleet(url=engine.url_by(proxy)) as fleet:
        for _ in range(2):
            fleet.start(settings)
        poll(lambda: len(arena.stats().workers) == 2, 20, "all workers register")
        lasting = [arena.call("work", n, seconds=1.5 * USUAL_LEASE_S) for n in range(2)]
        short = [arena.call("work", n, seconds=0.1) for n in range(10)]
        arena.enqueue(lasting + short)
        took = asyncio.run(_claims(engine.impatient(proxy, 3 * USUAL_LEASE_S), proxy))
        arena.quiesce(120)
        proxy.heal()
        fleet.stop()
        evidence = arena.evidence(fleet)
        log = fleet.log()

    assert checker.check(evidence) == []
    assert checker.duplicates(evidence) == 0
    assert completed(evidence) == len(lasting) + len(short)
    taken = log.count("took back")
    assert taken == 0, log
    assert "stops its work" not in log
    assert max(took) > LATENCY_S + JITTER_S, "nothing was late: this run shows nothing"
    report(
        f"everything on its way is late by {LATENCY_S:g} s and up to {JITTER_S:g} s more, both ways",
        injected=len(took),
        figures=figures_of(evidence),
        note=(
            f"claims p50 {checker.quantile(took, 0.5):.2f} s, p99 {checker.quantile(took, 0.99):.2f} s; taken from the "
            f"living, under a lease of {USUAL_LEASE_S:g} s: {taken}"
        ),
        seed=dice.seed,
    )


@on("postgres", "redis")
def test_a_job_that_is_under_way_for_longer_than_a_lease_keeps_no_heartbeat_back(
    arena: Arena, engine: Server, report: Report
) -> None:
    proxy = engine.proxy()
    slow = replace(SETTINGS, room=ROOM, queues=("heavy",))
    with arena.fleet() as fleet:
        fleet.start(slow, url=engine.url_by(proxy))
        fleet.start(replace(SETTINGS, queues=("default",)))
        poll(lambda: len(arena.stats().workers) == 2, 20, "all workers register")
        first = arena.enqueue([arena.app.tasks["work"].options(queue="heavy").bind(0)])
        poll(lambda: arena.states(first)["completed"] == 1, 20, "the way is known")
        proxy.bytes_per_second = LINK_BYTES_S
        asked_s = CLOCK.monotonic()
        (job,) = arena.enqueue([arena.app.tasks["work"].options(queue="heavy").bind(1, ballast=BALLAST)])
        arena.quiesce(60)
        proxy.heal()
        fleet.stop()
        evidence = arena.evidence(fleet)
        log = fleet.log()

    came_s = next(one.at for one in evidence.effects if one.job == job) - asked_s
    assert came_s > 1.5 * LEASE_S, "it came too soon: this run shows nothing"
    assert checker.check(evidence) == []
    assert checker.duplicates(evidence) == 0
    assert "took back" not in log
    assert "stops its work" not in log
    report(
        f"a link of {LINK_BYTES_S:,} bytes a second, and a job of {len(BALLAST):,} bytes",
        injected=1,
        figures=figures_of(evidence),
        note=f"it was under way for {came_s:.1f} s, under a lease of {LEASE_S:g} s, and the lease was kept",
    )


async def _claims(store: Store, proxy: FaultProxy) -> list[float]:
    """Let everything be late, and see how long claims take then, which bring nothing."""
    took = []
    claim = Claim(worker="probe", token=new_token(), limit=1, queues=("nobody's",))
    await store.heartbeat(WorkerRecord(id="probe", lease_s=600.0))
    await store.exchange(Exchange(claim=claim))
    proxy.latency_s, proxy.jitter_s = LATENCY_S, JITTER_S
    for _ in range(CLAIMS):
        began_s = CLOCK.monotonic()
        await store.exchange(Exchange(claim=replace(claim, token=new_token())))
        took.append(CLOCK.monotonic() - began_s)
    await store.close()
    return took
