"""Row 22: somebody holds a row's lock and does nothing. Other jobs go on, and no worker ever does that itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import psycopg
from msgspec.structs import replace

from holdfast.clock import new_id, new_token
from holdfast.errors import StoreError
from holdfast.ports import Claim, Delivery, Exchange, Settlement, ValueChange, WorkerRecord
from holdfast.runtime.runner import Room
from holdfast.stores.postgres.connection import Line
from holdfast.types import Change, NewJob
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import full_only, on, waits
from tests.faults.engines import PostgresEngine
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, LEASE_S, SETTINGS, SWEEP_S, poll, recovery_bound

pytestmark = waits
JOBS = 40
LONG_JOBS = 8
MOST_REPLIES = 8
LIMIT_S = 1.0
FREE_WITHIN_S = 6.0
AGAIN_WITHIN_S = recovery_bound()
LOCKED_S = 0.9 * Line.answer_s
"""A session that waits so long for the rest of a request, with what it has locked, is ended by whoever looks for
orphans; a lease of two seconds is over before."""
ROOM = replace(SETTINGS, room=Room(concurrency=8, threads=2, isolates=1))


@on("postgres")
def test_a_locked_row_is_passed_over_and_runs_as_soon_as_it_is_free(arena: Arena, report: Report) -> None:
    engine = arena.engine
    assert isinstance(engine, PostgresEngine)
    ids = arena.enqueue([arena.call("work", n, seconds=0.01) for n in range(JOBS)])
    with engine.connection() as stalled, arena.fleet() as fleet:
        stalled.execute("BEGIN")
        stalled.execute("SELECT 1 FROM holdfast_jobs WHERE id = %s FOR UPDATE", (ids[0],))
        fleet.start(ROOM)
        poll(lambda: arena.unfinished() == 1, 20, "all others end")
        assert arena.states(ids[:1]) == {"queued": 1}
        stalled.execute("ROLLBACK")
        freed_s = CLOCK.monotonic()
        arena.quiesce(20)
        hidden_s = CLOCK.monotonic() - freed_s
        fleet.stop()
        evidence = arena.evidence(fleet)

    assert checker.check(evidence) == []
    assert completed(evidence) == len(evidence.acked), arena.states(evidence.acked)
    assert hidden_s <= AGAIN_WITHIN_S
    report(
        "a stranger locks the row of a job and does nothing",
        injected=1,
        figures=figures_of(evidence),
        note=f"{JOBS - 1} others ran; it did {hidden_s:.2f} s after it was free (bound {AGAIN_WITHIN_S:.1f} s)",
    )


@on("postgres")
def test_no_transaction_is_open_while_jobs_run(arena: Arena, report: Report) -> None:
    engine = arena.engine
    assert isinstance(engine, PostgresEngine)
    arena.enqueue([arena.call("work", n, seconds=1.0) for n in range(LONG_JOBS)])
    looks, open_ones = 0, []
    with arena.fleet() as fleet:
        fleet.start(ROOM)
        poll(lambda: arena.started() == LONG_JOBS, 20, "all jobs run")
        CLOCK.sleep(0.1)  # the claim has been answered, but may not have been put away
        while all(one.what == "start" for one in arena.effects()):
            open_ones += engine.sql(
                "SELECT state, query FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
                " AND state_change < clock_timestamp() - interval '50 ms'"
            )
            looks += 1
        arena.quiesce(20)
        fleet.stop()
        evidence = arena.evidence(fleet)
    assert checker.check(evidence) == []
    assert completed(evidence) == len(evidence.acked), arena.states(evidence.acked)
    assert open_ones == []
    assert looks > 5
    report(
        "jobs that run for long, and a look at every open transaction",
        injected=LONG_JOBS,
        figures=figures_of(evidence),
        note=f"transactions that were open while jobs ran {len(open_ones)}, at {looks} looks",
    )


@on("postgres")
def test_a_worker_that_is_cut_off_within_a_transaction_keeps_no_job_from_the_others(
    arena: Arena, report: Report
) -> None:
    """Its requests are swallowed from some instant on: wherever it stands then, its locks must not last."""
    hold = arena.engine.hold()
    # One in eight is long at first, so that some run when it is cut off.
    calls = [arena.call("work", n, seconds=0.02) if n % 8 else arena.call("once", 0.3) for n in range(400)]
    with arena.fleet() as fleet:
        cut_off = fleet.start(ROOM, url=hold.url)
        fleet.start(ROOM)
        start_s = poll(lambda: len(arena.stats().workers) == 2, 20, "both workers are there")
        arena.enqueue(calls)
        poll(lambda: arena.started(cut_off) >= 50, 20, "the first worker is busy")
        hold.begin()
        began_s = CLOCK.monotonic()
        fleet.pause(cut_off)
        arena.quiesce(60)
        last = max(one.at for one in arena.effects() if one.what == "end")
        fleet.resume(cut_off)
        hold.end()
        fleet.stop()
        evidence = arena.evidence(fleet)

    evidence = replace(evidence, recovery_s=recovery_bound(max(LEASE_S, LOCKED_S), start_s=start_s))
    assert checker.check(evidence) == []
    # The long ones have no second attempt to lose, and the one worker that they lose is held against none.
    assert completed(evidence) == len(evidence.acked), arena.states(evidence.acked)
    assert list(checker.recoveries(evidence)), "no job was cut off: this run shows nothing"
    report(
        "a worker cut off from the store under load, wherever it stands",
        injected=1,
        figures=figures_of(evidence),
        note=f"all had run elsewhere {last - began_s:.1f} s later (lease {LEASE_S:g} s, sweep {SWEEP_S:g} s)"
        f"{checker.told_bound(evidence)}",
    )


@on("postgres")
async def test_what_a_silent_client_has_locked_is_free_again_within_its_limit(
    engine: PostgresEngine, report: Report
) -> None:
    """Each reply of a claim is lost in turn, and nothing passes on that connection any more, not even its end."""
    tried = await asyncio.gather(*(_claim_past_a_silence(engine, number) for number in range(1, MOST_REPLIES)))
    took = [took_s for took_s in tried if took_s is not None]

    assert took, "no reply was lost: this run shows nothing"
    assert max(took) < FREE_WITHIN_S
    report(
        "silence from the n-th reply of a claim on",
        injected=len(took),
        note=f"had by the next claim after at most {max(took):.1f} s (limit {LIMIT_S:g} s)",
    )


async def _claim_past_a_silence(engine: PostgresEngine, number: int) -> float | None:
    """Claim under the same token until all jobs are there; how long that took, None where it has fewer replies."""
    queue = worker = f"silent {number}"
    proxy = engine.proxy()
    store = engine.impatient(proxy, LIMIT_S)
    await store.enqueue([NewJob(id=new_id(), task="work", payload=b"{}", queue=queue) for _ in range(4)])
    await store.heartbeat(WorkerRecord(id=worker, lease_s=60.0))
    await store.exchange(Exchange())
    wish = Claim(worker=worker, token=new_token(), limit=4, queues=(queue,))
    proxy.drop_reply(number, then="silence")
    began_s = CLOCK.monotonic()
    got = 0
    while got < 4 and CLOCK.monotonic() - began_s < 2 * FREE_WITHIN_S:
        try:
            got = len((await store.exchange(Exchange(claim=wish))).deliveries)
        except StoreError:
            continue
    took_s = CLOCK.monotonic() - began_s
    was_lost = proxy.traffic.replies_dropped > 0
    proxy.heal()
    await store.close()
    return took_s if was_lost else None


@full_only
@on("postgres")
async def test_half_of_a_request_keeps_its_locks_no_longer_than_the_limit(
    engine: PostgresEngine, report: Report
) -> None:
    """A worker freezes while it sends: the server has begun, and waits for the rest."""
    proxy = engine.proxy()
    far, near = engine.impatient(proxy, 60.0), engine.impatient(engine.proxy(), 2.0)
    await near.enqueue([NewJob(id=new_id(), task="work", payload=b"{}") for _ in range(50)])
    await near.heartbeat(WorkerRecord(id="frozen", lease_s=60.0))
    wish = Claim(worker="frozen", token=new_token(), limit=50)
    held = (await far.exchange(Exchange(claim=wish))).deliveries
    done = [Settlement(id=one.id, token=one.token, change=Change.COMPLETE) for one in held]
    proxy.bytes_per_second = 8_000
    long = ValueChange("long", 0, bytes(80_000))  # it goes behind the settlements
    sending = asyncio.create_task(far.exchange(Exchange(settlements=done, changes=[long])))
    with engine.connection() as watcher:
        while not await asyncio.to_thread(_writers, watcher):
            assert not sending.done(), "it was too quick: this run shows nothing"
    proxy.blackhole("requests")

    await near.heartbeat(WorkerRecord(id="frozen", lease_s=0.0))
    await near.heartbeat(WorkerRecord(id="heir", lease_s=600.0))
    began_s = CLOCK.monotonic()
    taken: list[Delivery] = []
    token = new_token()  # until it is answered, as a worker does
    while not taken and CLOCK.monotonic() - began_s < 30.0:
        with suppress(StoreError):
            taken = await near.reclaim("heir", token, 100)
    took_s = CLOCK.monotonic() - began_s
    proxy.heal()
    with suppress(StoreError):
        await sending
    await far.close()
    await near.close()
    assert len(taken) == len(held)
    assert took_s < FREE_WITHIN_S
    report(
        "a worker frozen within a request, which the server has half of",
        injected=1,
        note=f"all {len(taken)} jobs that it held were taken over after {took_s:.1f} s",
    )


def _writers(watcher: psycopg.Connection) -> list[Any]:
    """Sessions that have written, and wait for their client within a transaction."""
    query = "SELECT pid FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND wait_event = 'ClientRead'"
    return watcher.execute(query).fetchall()
