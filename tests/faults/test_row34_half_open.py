"""Row 34: the network swallows everything without a word. Every call notices within its time limit; workers let go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.clock import new_id, new_token
from holdfast.errors import StoreError
from holdfast.ports import Claim, Exchange, Store, WorkerRecord
from holdfast.types import NewJob
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.checker import Fault
from tests.faults.conftest import on, waits
from tests.faults.engines import PostgresEngine, RedisEngine
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, LEASE_S, SWEEP_S, poll

pytestmark = waits
LIMIT_S = 1.0
NOTICED_WITHIN_S = 5.0
"""The limit, a new connection and the limit again, and a second."""

CALLS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "enqueue": lambda store: asyncio.to_thread(store.enqueue_now, [NewJob(id=new_id(), task="work", payload=b"{}")]),
    "exchange": lambda store: store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=1))),
    "heartbeat": lambda store: store.heartbeat(WorkerRecord(id="w", lease_s=1.0)),
}
"""Each on a connection of its own, so that none waits for another."""


@on("postgres", "redis")
async def test_every_call_notices_a_black_hole_within_its_limit_and_works_when_it_is_healed(
    engine: PostgresEngine | RedisEngine, report: Report
) -> None:
    proxy = engine.proxy()
    store = engine.impatient(proxy, LIMIT_S)
    for call in CALLS.values():
        await call(store)
    proxy.blackhole()
    hangs = dict(zip(CALLS, await asyncio.gather(*(_hang_s(call, store) for call in CALLS.values())), strict=True))
    proxy.heal()
    for call in CALLS.values():
        await call(store)
    await store.close()

    assert max(hangs.values()) < NOTICED_WITHIN_S
    noticed = ", ".join(f"{name} {hang:.1f} s" for name, hang in hangs.items())
    report(
        "the network swallows everything, amid each kind of call",
        injected=len(hangs),
        note=f"with a limit of {LIMIT_S:g} s noticed after: {noticed}",
    )


async def _hang_s(call: Callable[[Store], Awaitable[Any]], store: Store) -> float:
    began_s = CLOCK.monotonic()
    with pytest.raises(StoreError):
        await call(store)
    return CLOCK.monotonic() - began_s


@on("postgres", "redis")
def test_a_worker_in_a_black_hole_stops_and_its_jobs_run_elsewhere(
    arena: Arena, engine: PostgresEngine | RedisEngine, report: Report
) -> None:
    proxy = engine.proxy()
    ids = arena.enqueue([arena.call("once", 60.0) for _ in range(4)])
    with arena.fleet() as fleet:
        cut_off = fleet.start(url=engine.url_by(proxy))
        poll(lambda: arena.started(cut_off) == 4, 20, "all jobs run")
        fleet.start()
        poll(lambda: len(arena.stats().workers) == 2, 20, "the other worker is there")
        proxy.blackhole()
        began_s = CLOCK.monotonic()
        poll(lambda: sum(one.what == "stop" for one in arena.effects()) == 4, 20, "it stops its jobs by itself")
        stopped_s = CLOCK.monotonic() - began_s
        poll(lambda: arena.unfinished() == 0, 20, "they run elsewhere")
        proxy.heal()
        fleet.stop()
        evidence = replace(arena.evidence(fleet), faults=[Fault("black hole", cut_off, began_s, began_s)])

    assert stopped_s <= LEASE_S + 1.0
    assert checker.check(evidence) == []
    again_s = max(one.at for one in evidence.effects if one.what == "start") - began_s
    assert again_s <= LEASE_S + SWEEP_S + 2.0
    assert arena.states(ids) == {"completed": 4}
    report(
        "the network swallows everything of one worker",
        injected=1,
        figures=figures_of(evidence),
        note=f"it stopped its {len(ids)} jobs after {stopped_s:.1f} s; they ran elsewhere at {again_s:.1f} s",
    )
