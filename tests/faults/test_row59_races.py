"""Row 59: a person and a worker change one job at the same instant. One of them wins, and both are told who."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Delivery, Exchange, Operation, Settlement, Store, WorkerRecord
from holdfast.types import Change, JobState, NewJob
from holdfast.wiring import open_store
from tests.faults.arena import Arena
from tests.faults.checker import Evidence, one_terminal
from tests.faults.conftest import busy, every_store
from tests.faults.report import Report

pytestmark = busy


@pytest.fixture
def pairs(is_full: bool) -> int:
    return 10_000 if is_full else 300


@pytest.fixture
async def person(arena: Arena) -> AsyncIterator[Store]:
    """The same store, opened a second time: connections and a writer of its own, as in another process."""
    store = open_store(arena.engine.url)
    yield store
    await store.close()


async def enqueue(store: Store, count: int) -> None:
    await store.enqueue([NewJob(id=new_id(), task="work", payload=b"{}") for _ in range(count)])


async def claim(store: Store, worker: str, limit: int) -> list[Delivery]:
    await store.heartbeat(WorkerRecord(id=worker, lease_s=60.0))
    reply = await store.exchange(Exchange(claim=Claim(worker=worker, token=new_token(), limit=limit)))
    return list(reply.deliveries)


def told(won: Counter[str]) -> str:
    return ", ".join(f"{who} {n:,}" for who, n in sorted(won.items()))


def assert_changes_were_legal(arena: Arena) -> None:
    assert one_terminal(Evidence(transitions=arena.engine.transitions())) == []


@every_store
async def test_cancel_races_complete(arena: Arena, person: Store, pairs: int, report: Report) -> None:
    worker = arena.app.store
    await enqueue(worker, pairs)
    deliveries = [one for _ in range(0, pairs, 500) for one in await claim(worker, "w", 500)]
    assert len(deliveries) == pairs
    won: Counter[str] = Counter()

    async def race(n: int, delivery: Delivery) -> None:
        settlement = Settlement(id=delivery.id, token=delivery.token, change=Change.COMPLETE, result=b"1")
        complete = worker.exchange(Exchange(settlements=[settlement]))
        cancel = person.change(Operation(change=Change.CANCEL, ids=[delivery.id], reason="by hand"))
        if n % 2:
            reply, (changed,) = await asyncio.gather(complete, cancel)
        else:
            (changed,), reply = await asyncio.gather(cancel, complete)
        (record,) = await person.get([delivery.id])
        assert record is not None
        assert reply.settled[0] != changed.is_done, "both won, or nobody did"
        assert changed.state is record.state, "the person was told something else than what is there"
        assert record.state is (JobState.COMPLETED if reply.settled[0] else JobState.CANCELLED)
        won[record.state.value] += 1

    for n, delivery in enumerate(deliveries):
        await race(n, delivery)
    await asyncio.to_thread(assert_changes_were_legal, arena)
    assert len(won) == 2, f"one side always won: {won}"
    report(
        "a job cancelled in the instant in which it completes",
        injected=pairs,
        note=f"both or neither won {pairs - won.total()}, won by {told(won)}",
    )


@every_store
async def test_remove_races_replay_and_claim(arena: Arena, person: Store, pairs: int, report: Report) -> None:
    worker = arena.app.store
    await enqueue(worker, pairs)
    deliveries = [one for _ in range(0, pairs, 500) for one in await claim(worker, "w", 500)]
    buried = [Settlement(id=one.id, token=one.token, change=Change.BURY, reason="x") for one in deliveries]
    await worker.exchange(Exchange(settlements=buried))
    won: Counter[str] = Counter()

    async def replay_and_claim(id: str) -> tuple[bool, list[Delivery]]:  # noqa: A002
        (changed,) = await worker.change(Operation(change=Change.REPLAY, ids=[id]))
        return changed.is_done, await claim(worker, "w", 1)

    async def race(n: int, id: str) -> None:  # noqa: A002
        remove = person.change(Operation(change=Change.REMOVE, ids=[id]))
        if n % 2:
            (removed,), (replayed, claimed) = await asyncio.gather(remove, replay_and_claim(id))
        else:
            (replayed, claimed), (removed,) = await asyncio.gather(replay_and_claim(id), remove)
        if replayed and not claimed:  # a claim passes over what another has locked, who is done with it by now
            claimed = await claim(worker, "w", 1)
        (record,) = await person.get([id])
        assert removed.is_done != replayed, "both won, or nobody did"
        assert [one.id for one in claimed] == ([id] if replayed else [])
        assert (record is None) == removed.is_done
        if replayed:
            assert removed.state in {JobState.QUEUED, JobState.RUNNING}
            assert record is not None
            assert record.state is JobState.RUNNING
        won["replay" if replayed else "remove"] += 1

    for n, delivery in enumerate(deliveries):
        await race(n, delivery.id)
    await asyncio.to_thread(assert_changes_were_legal, arena)
    assert len(won) == 2, f"one side always won: {won}"
    report(
        "a dead letter removed while another replays it",
        injected=pairs,
        note=f"both or neither won {pairs - won.total()}, won by {told(won)}",
    )
