# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises when the end of work comes that it knows: it takes effect once, whoever has the work."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from holdfast.clock import new_token
from holdfast.ports import Enqueued, Note, Query, Store, WorkerRecord
from holdfast.testing.store_suite.ends import BEGUN_AT, STATE_AFTER, each_end, ended, tried, with_end
from holdfast.testing.store_suite.steps import (
    HOUR_S,
    LEASE_S,
    Advance,
    change,
    claim,
    claimed_ids,
    enqueue,
    exchange_claim,
    failed_attempt,
    is_same,
    job_in,
    new_job,
    orphan,
    reclaim,
    record_of,
    settle,
    start,
)
from holdfast.types import Change, JobState

OPEN = (JobState.QUEUED, JobState.RUNNING, JobState.RETRYING, JobState.WAITING)


class KnownEndSuite:
    """Work that is known ends so, once; whoever has it loses it."""

    async def test_what_has_not_ended_ends(self, store: Store, advance: Advance) -> None:
        for state, (end_change, after) in itertools.product(OPEN, STATE_AFTER.items()):
            job_id = await job_in(store, state, payload=b"[1]")
            before = await record_of(store, job_id)
            answers = await store.enqueue([with_end(job_id, end_change, tried(4), reason="so")])
            assert answers == [Enqueued(job_id, is_new=False, state=after)]
            record = await record_of(store, job_id)
            assert (record.state, record.reason, record.payload, record.attempt) == (after, "so", b"[1]", 4)
            assert record.attempts == (*before.attempts, tried(4))
            assert (record.fingerprint, record.created_at) == ("1:n4", before.created_at)
        advance(HOUR_S)
        assert await claim(store, worker="w9") == []
        counted = {one.state: one.n for one in (await store.stats()).tallies}
        assert counted == dict.fromkeys(STATE_AFTER.values(), len(OPEN))

    async def test_attempts_that_the_record_has_are_not_added_again(self, store: Store) -> None:
        delivery = await start(store)
        first = failed_attempt(delivery, fingerprint="1:first")
        await settle(store, delivery, Change.RETRY, attempt=first)
        await store.enqueue([with_end(delivery.id, Change.BURY, first, tried(2))])
        record = await record_of(store, delivery.id)
        assert (record.attempts, record.fingerprint) == ((first, tried(2)), "1:n2")
        assert is_same(record.first_failed_at, first.ended_at)
        assert [group.fingerprint for group in await store.groups(Query())] == ["1:n2"]

    async def test_an_end_with_nothing_new_leaves_the_failure_as_it_was(self, store: Store) -> None:
        delivery = await start(store)
        first, second = failed_attempt(delivery), failed_attempt(delivery, started_at=BEGUN_AT, fingerprint="1:second")
        await settle(store, delivery, Change.RETRY, attempt=first, started_at=first.started_at)
        (again,) = await claim(store)
        await settle(store, again, Change.RETRY, attempt=second, started_at=second.started_at)
        await store.enqueue([with_end(delivery.id, Change.BURY, first)])
        record = await record_of(store, delivery.id)
        assert (record.attempts, record.attempt, record.fingerprint) == ((first, second), 2, "1:second")
        assert is_same(record.started_at, BEGUN_AT)
        assert [group.fingerprint for group in await store.groups(Query())] == ["1:second"]

    @each_end
    async def test_whoever_runs_it_loses_the_lease_and_is_told(self, store: Store, end_change: Change) -> None:
        token = new_token()
        await store.enqueue([new_job(), other := new_job()])
        mine, _ = await claim(store, token=token)
        await store.enqueue([with_end(mine.id, end_change)])
        before = await record_of(store, mine.id)
        assert not await store.note(Note(id=mine.id, token=mine.token, progress=0.5))
        for late in (Change.COMPLETE, Change.BURY, Change.DISCARD, Change.RETRY):
            assert not await settle(store, mine, late)
        assert await record_of(store, mine.id) == before
        assert (await store.heartbeat(WorkerRecord(id="w1", lease_s=LEASE_S))).cancelled == (mine.id,)
        assert (await store.heartbeat(WorkerRecord(id="w1", lease_s=LEASE_S))).cancelled == ()
        assert [one.id for one in (await exchange_claim(store, token=token)).deliveries] == [other.id]

    async def test_a_settlement_of_before_it_ended_is_no_longer_known(self, store: Store) -> None:
        delivery = await start(store)
        assert await settle(store, delivery, Change.RETRY)
        await store.enqueue([with_end(delivery.id, Change.BURY)])
        assert not await settle(store, delivery, Change.RETRY)
        assert not await settle(store, delivery, Change.BURY)

    async def test_an_orphan_that_ended_is_nobodys_to_judge(self, store: Store, advance: Advance) -> None:
        delivery = await orphan(store, advance)
        await store.enqueue([with_end(delivery.id)])
        assert await reclaim(store) == []

    async def test_one_that_is_being_judged_ends_too(self, store: Store, advance: Advance) -> None:
        await orphan(store, advance)
        (judged,) = await reclaim(store)
        await store.enqueue([with_end(judged.id)])
        assert not await settle(store, judged, Change.RELEASE, is_suspect=True)
        await change(store, Change.REPLAY, judged.id)
        (again,) = await claim(store, worker="w3")
        assert (again.id, again.orphaned, again.is_suspect, again.worker) == (judged.id, 0, False, "")

    @pytest.mark.parametrize("delay_s", [0.0, HOUR_S])
    async def test_a_letter_made_of_one_that_stood_in_line_is_replayed_once(
        self, store: Store, advance: Advance, delay_s: float
    ) -> None:
        job_id = (await enqueue(store, new_job(delay_s=delay_s)))[0]
        await store.enqueue([with_end(job_id)])
        await change(store, Change.REPLAY, job_id)
        assert await claimed_ids(store) == [job_id]
        advance(2 * HOUR_S)
        assert await claim(store) == []

    async def test_a_letter_is_counted_when_it_is_replayed_whatever_it_was_before(self, store: Store) -> None:
        ids = []
        for state in OPEN:
            ids.append(await job_in(store, state))
            await store.enqueue([with_end(ids[-1])])
        await change(store, Change.REPLAY, *ids)
        assert [(one.state, one.n) for one in (await store.stats()).tallies] == [(JobState.QUEUED, len(ids))]
        assert await claimed_ids(store, worker="w9") == ids
        assert [(one.state, one.n) for one in (await store.stats()).tallies] == [(JobState.RUNNING, len(ids))]

    async def test_a_letter_that_was_replayed_ends_again(self, store: Store) -> None:
        job = ended(Change.BURY, tried(1))
        await store.enqueue([job])
        await change(store, Change.REPLAY, job.id)
        await store.enqueue([with_end(job.id, Change.COMPLETE, tried(1))])
        record = await record_of(store, job.id)
        assert (record.state, record.attempts, record.replays) == (JobState.COMPLETED, (tried(1),), 1)
        assert await store.groups(Query()) == []
        assert await claim(store) == []

    async def test_it_can_be_sent_twice(self, store: Store) -> None:
        for end_change, state in STATE_AFTER.items():
            job = ended(end_change, tried(1), tried(2), reason="why", keep_s=10.0)
            await store.enqueue([job])
            before, stats = await record_of(store, job.id), await store.stats()
            assert await store.enqueue([job]) == [Enqueued(job.id, is_new=False, state=state)]
            assert await record_of(store, job.id) == before
            assert list((await store.stats()).tallies) == list(stats.tallies)
        assert [group.count for group in await store.groups(Query())] == [1]

    async def test_ends_and_claims_at_once_leave_every_job_with_one_owner(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job() for _ in range(40)))
        claims = asyncio.gather(*(claim(store, limit=5, worker=f"w{n}") for n in range(4)))
        ends = asyncio.gather(*(store.enqueue([with_end(job_id, Change.BURY, tried(1))]) for job_id in ids))
        deliveries = [delivery for some in await claims for delivery in some]
        await ends
        for delivery in deliveries:
            assert not await settle(store, delivery, Change.COMPLETE)
        assert [(one.state, one.n) for one in (await store.stats()).tallies] == [(JobState.DEAD_LETTER, 40)]
        assert [group.count for group in await store.groups(Query())] == [40]
