"""Row 34: the network swallows everything without a word. Every call notices within its time limit; workers let go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.clock import new_id, new_token
from holdfast.errors import LeaseLost, StoreAway
from holdfast.ports import Claim, Exchange, Note, Operation, Query, Settlement, Store, WorkerRecord
from holdfast.types import Change, NewJob
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.checker import Fault
from tests.faults.conftest import on, waits
from tests.faults.engines import PostgresEngine, RedisEngine
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, LEASE_S, SETTINGS, poll, recovery_bound

pytestmark = waits
LIMIT_S = 1.0
"""How long these stores wait for an answer: 10 s (PostgreSQL) and 5 s (Redis) where nothing else is set."""
SLOW_S = 1.5
"""The same for pruning and a job's own statements on PostgreSQL: a minute where it is not made shorter for a test."""
HELD_S = 3 * LEASE_S
"""A lease of which a tenth is more than a busy machine is late: so much is left when a worker stops its jobs."""
SLACK_S = 0.8
"""For a machine that is busy, and for the pieces in which psycopg waits."""
LASTING = replace(SETTINGS, lease_s=HELD_S)

Verb = Callable[[Store], Awaitable[Any]]
CALLS: Sequence[Mapping[str, Verb]] = (
    {
        "enqueue_now": lambda store: asyncio.to_thread(store.enqueue_now, [_job()]),
        "exchange": lambda store: store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=1))),
        "heartbeat": lambda store: store.heartbeat(WorkerRecord(id="w", lease_s=60.0)),
        "get": lambda store: store.get([new_id()]),
        "find": lambda store: store.find(Query()),
        "change": lambda store: store.change(Operation(change=Change.CANCEL, ids=[new_id()])),
    },
    {
        "enqueue": lambda store: store.enqueue([_job()]),
        "note": lambda store: store.note(Note(id=new_id(), token=new_token(), progress=0.5)),
        "groups": lambda store: store.groups(Query()),
        "stats": lambda store: store.stats(),
        "prune": lambda store: store.prune(10),
        "transaction": lambda store: asyncio.to_thread(_write, store),
    },
    {"reclaim": lambda store: store.reclaim("w", new_token(), 1)},
)
"""Every verb of a store that waits for an answer: in each round those that wait for no other's connection."""


def _job() -> NewJob:
    return NewJob(id=new_id(), task="work", payload=b"{}")


def _write(store: Store) -> None:
    """A job's own transaction, on a lease that nobody has: all but its end is done."""
    nobodys = Settlement(id=new_id(), token=new_token(), change=Change.COMPLETE)
    with suppress(LeaseLost), store.transaction(nobodys, 600.0) as transaction:
        transaction.execute("SELECT 1")


def bound_s(verb: str, engine: PostgresEngine | RedisEngine) -> float:
    """How long a call may take: its limit, and once more on a new connection, which has a limit of its own."""
    if isinstance(engine, RedisEngine):
        return LIMIT_S + LIMIT_S
    connect_s = max(2.0, LIMIT_S)  # libpq knows no less
    if verb in {"get", "find", "groups", "stats"}:
        return LIMIT_S  # whoever looks is told at once
    return (SLOW_S if verb in {"prune", "transaction"} else LIMIT_S) + connect_s


@on("postgres", "redis")
async def test_every_call_notices_a_black_hole_within_its_limit_and_works_when_it_is_healed(
    engine: PostgresEngine | RedisEngine, is_full: bool, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    monkeypatch.setattr("holdfast.stores.postgres.opened._SLOW_S", SLOW_S)
    proxy = engine.proxy()
    store = engine.impatient(proxy, LIMIT_S)
    has_transactions = (await asyncio.to_thread(lambda: store.capabilities)).has_transactions
    hangs: dict[str, float] = {}
    for verbs in CALLS if is_full else CALLS[:1]:
        calls = {name: call for name, call in verbs.items() if name != "transaction" or has_transactions}
        await _all_work(calls, store)
        proxy.blackhole()
        took = await asyncio.gather(*(_hang_s(call, store) for call in calls.values()))
        hangs.update(zip(calls, took, strict=True))
        proxy.heal()
        await _all_work(calls, store)
    await store.close()

    late = {name: took_s for name, took_s in hangs.items() if took_s > bound_s(name, engine) + SLACK_S}
    assert late == {}
    noticed = ", ".join(f"{name} {hang:.1f} s" for name, hang in hangs.items())
    report(
        "the network swallows everything, amid each kind of call",
        injected=len(hangs),
        note=f"with a limit of {LIMIT_S:g} s (on PostgreSQL {SLOW_S:g} s for prune and transaction) "
        f"noticed after: {noticed}",
    )


async def _all_work(calls: Mapping[str, Verb], store: Store) -> None:
    for call in calls.values():
        await call(store)


async def _hang_s(call: Verb, store: Store) -> float:
    began_s = CLOCK.monotonic()
    with pytest.raises(StoreAway):
        await call(store)
    return CLOCK.monotonic() - began_s


@on("postgres", "redis")
def test_a_worker_in_a_black_hole_stops_and_its_jobs_run_elsewhere(
    arena: Arena, engine: PostgresEngine | RedisEngine, report: Report
) -> None:
    proxy = engine.proxy()
    ids = arena.enqueue([arena.call("once", 60.0) for _ in range(4)])
    with arena.fleet() as fleet:
        cut_off = fleet.start(LASTING, url=engine.url_by(proxy))
        poll(lambda: arena.started(cut_off) == 4, 20, "all jobs run")
        fleet.start(LASTING)
        start_s = poll(lambda: len(arena.stats().workers) == 2, 20, "the other worker is there")
        proxy.blackhole()
        began_s = CLOCK.monotonic()
        poll(lambda: sum(one.what == "stop" for one in arena.effects()) == 4, 20, "it stops its jobs by itself")
        stopped_s = max(one.at for one in arena.effects() if one.what == "stop") - began_s
        poll(lambda: arena.unfinished() == 0, 20, "they run elsewhere")
        proxy.heal()
        fleet.stop()
        faults = [Fault("black hole", cut_off, began_s, began_s)]
        bound_s = recovery_bound(HELD_S, start_s=start_s)
        evidence = replace(arena.evidence(fleet), faults=faults, recovery_s=bound_s)

    assert stopped_s < HELD_S, "its jobs ran on when their lease was over"
    assert checker.check(evidence) == []
    again_s = max(one.at for one in evidence.effects if one.what == "start") - began_s
    assert again_s <= bound_s
    assert arena.states(ids) == {"completed": 4}
    report(
        "the network swallows everything of one worker",
        injected=1,
        figures=figures_of(evidence),
        note=f"it stopped its {len(ids)} jobs after {stopped_s:.1f} s; they ran elsewhere at {again_s:.1f} s "
        f"(bound {bound_s:.1f} s)",
    )
