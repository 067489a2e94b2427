"""Row 55: a forged worker, with guessed and replayed tokens, other people's jobs and leases without an end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import pytest

from holdfast.clock import new_id, new_token
from holdfast.errors import ConfigError, LeaseLost
from holdfast.policy.lifecycle import SETTLING
from holdfast.ports import Claim, Delivery, Exchange, Note, Settlement, Store, WorkerRecord
from holdfast.runtime.worker import WorkerSettings
from holdfast.types import Change, JobRecord, JobState, NewJob
from tests.faults.arena import Arena
from tests.faults.conftest import busy, every_store
from tests.faults.report import Report

pytestmark = busy

OWNER: Final = "owner"
FORGER: Final = "forger"


async def claimed(store: Store, count: int = 2) -> Sequence[Delivery]:
    """So many jobs, running by their owner; the forger is a worker too."""
    for worker in (OWNER, FORGER):
        assert (await store.heartbeat(WorkerRecord(id=worker, lease_s=600.0))).is_alive
    await store.enqueue([NewJob(id=new_id(), task="work", queue="default", payload=b"{}") for _ in range(count)])
    reply = await store.exchange(Exchange(claim=Claim(worker=OWNER, token=new_token(), limit=count)))
    assert len(reply.deliveries) == count
    return reply.deliveries


async def record(store: Store, job: str) -> JobRecord:
    (found,) = await store.get([job])
    assert found is not None
    return found


def forged(token: bytes) -> dict[str, bytes]:
    """What somebody may try who does not know the token."""
    return {
        "guessed": new_token(),
        "empty": b"",
        "zeros": bytes(16),
        "beginning": token[:8],
        "one bit off": token[:-1] + bytes([token[-1] ^ 1]),
        "longer": token + b"\x00",
        "in hexadecimal": token.hex().encode(),
        "pattern": b"%",
        "star": b"*",
    }


@every_store
async def test_no_forged_token_settles_or_notes_anything(arena: Arena, report: Report) -> None:
    store = arena.app.store
    delivery, _ = await claimed(store)
    before = await record(store, delivery.id)
    tried = accepted = 0
    for token in forged(delivery.token).values():
        changes = [Settlement(id=delivery.id, token=token, change=change, keep_s=0.0) for change in SETTLING]
        reply = await store.exchange(Exchange(settlements=changes))
        assert list(reply.settled) == [False] * len(changes)
        is_noted = await store.note(Note(id=delivery.id, token=token, checkpoint=b"1", progress=1.0))
        assert not is_noted
        tried += len(changes) + 1
        accepted += sum(reply.settled) + is_noted
    assert await record(store, delivery.id) == before
    report("settlements and notes with forged tokens", injected=tried, note=f"accepted {accepted}")


@every_store
async def test_the_token_of_one_job_does_not_settle_another(arena: Arena) -> None:
    store = arena.app.store
    (theirs,) = await claimed(store, 1)
    await store.enqueue([NewJob(id=new_id(), task="work", queue="default", payload=b"{}")])
    own = new_token()
    reply = await store.exchange(Exchange(claim=Claim(worker=FORGER, token=own, limit=1)))
    assert len(reply.deliveries) == 1
    reply = await store.exchange(Exchange(settlements=[Settlement(id=theirs.id, token=own, change=Change.COMPLETE)]))
    assert list(reply.settled) == [False]
    assert (await record(store, theirs.id)).state is JobState.RUNNING


@every_store
async def test_a_token_that_was_given_back_is_worth_nothing(arena: Arena) -> None:
    store = arena.app.store
    (first,) = await claimed(store, 1)
    release = Settlement(id=first.id, token=first.token, change=Change.RELEASE)
    assert list((await store.exchange(Exchange(settlements=[release]))).settled) == [True]
    claim = Claim(worker=FORGER, token=new_token(), limit=1)
    (second,) = (await store.exchange(Exchange(claim=claim))).deliveries
    for change in (Change.COMPLETE, Change.RETRY, Change.BURY):
        replayed = Settlement(id=first.id, token=first.token, change=change)
        assert list((await store.exchange(Exchange(settlements=[replayed]))).settled) == [False]
    found = await record(store, first.id)
    assert (found.state, found.worker) == (JobState.RUNNING, FORGER)
    done = Settlement(id=second.id, token=second.token, change=Change.COMPLETE)
    assert list((await store.exchange(Exchange(settlements=[done]))).settled) == [True]


@every_store
async def test_another_workers_claim_under_the_same_token_gets_none_of_its_jobs(arena: Arena) -> None:
    store = arena.app.store
    delivery, _ = await claimed(store)
    reply = await store.exchange(Exchange(claim=Claim(worker=FORGER, token=delivery.token, limit=10)))
    assert delivery.id not in [one.id for one in reply.deliveries]
    assert (await record(store, delivery.id)).worker == OWNER


@every_store
async def test_whoever_never_registered_gets_no_work(arena: Arena) -> None:
    store = arena.app.store
    await store.enqueue([NewJob(id=new_id(), task="work", queue="default", payload=b"{}")])
    reply = await store.exchange(Exchange(claim=Claim(worker="stranger", token=new_token(), limit=10)))
    assert list(reply.deliveries) == []
    assert await store.reclaim("stranger", new_token(), 10) == []


@every_store
async def test_no_heartbeat_holds_jobs_until_the_year_9999(arena: Arena, report: Report) -> None:
    store = arena.app.store
    (delivery,) = await claimed(store, 1)
    endless = (86_401.0, 1e12, 1e308, math.inf, math.nan)
    for lease_s in endless:
        with pytest.raises(ConfigError, match="lease_s"):
            await store.heartbeat(WorkerRecord(id=OWNER, lease_s=lease_s))
    (owner,) = [one for one in (await store.stats()).workers if one.id == OWNER]
    assert owner.lease_s == 600.0
    assert (await record(store, delivery.id)).state is JobState.RUNNING
    report(
        "heartbeats for leases without an end",
        injected=len(endless),
        note=f"refused: {', '.join(f'{lease_s:g} s' for lease_s in endless)}; the lease is still {owner.lease_s:g} s",
    )


def test_a_worker_is_not_set_up_with_such_a_lease() -> None:
    with pytest.raises(ConfigError, match="lease_s"):
        WorkerSettings(lease_s=1e12)


async def test_a_forged_token_commits_no_transaction(arena: Arena) -> None:
    store = arena.app.store
    (delivery,) = await claimed(store, 1)
    forgery = Settlement(id=delivery.id, token=new_token(), change=Change.COMPLETE)

    with pytest.raises(LeaseLost), store.transaction(forgery, 1.0) as transaction:
        transaction.execute("CREATE TABLE forged (x)")

    assert (await record(store, delivery.id)).state is JobState.RUNNING


def test_a_token_has_128_bits_that_are_never_the_same() -> None:
    made = [new_token() for _ in range(1000)]
    assert made == sorted(made)
    assert {len(token) for token in made} == {25}
    assert len({token[9:] for token in made}) == 1000
