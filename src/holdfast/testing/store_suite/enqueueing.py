# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises to those who enqueue."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.clock import new_id
from holdfast.ports import Enqueued, Store
from holdfast.testing.store_suite.steps import (
    ENDED,
    HOUR_S,
    KEY_WINDOW_S,
    Advance,
    beat,
    change,
    claim,
    claimed_ids,
    dead_letter,
    enqueue,
    exchange_claim,
    is_near,
    is_same,
    job_in,
    new_job,
    now_of,
    record_of,
    settle,
    start,
    state_of,
)
from holdfast.types import Change, JobState, NewJob

_ODD_TEXTS = ["nul \x00 inside", "emoji 🦀 and ß", "quotes ' \" `", "%_\\ ; DROP TABLE jobs; --", "new\nline", " "]


class EnqueueSuite:
    """New jobs: stored whole, once, all or none."""

    async def test_a_new_job_is_queued_as_it_was_given(self, store: Store) -> None:
        job = new_job(
            payload=b'{"name": "Ada"}',
            queue="mail",
            priority=7,
            tenant="acme",
            user="ada",
            project="engine",
            idempotency_key="k1",
            trace="00-abc-def-01",
        )
        assert await store.enqueue([job]) == [Enqueued(job.id)]
        record = await record_of(store, job.id)
        assert record.state is JobState.QUEUED
        assert (record.task, record.payload, record.queue, record.priority) == ("greet", b'{"name": "Ada"}', "mail", 7)
        assert (record.tenant, record.user, record.project) == ("acme", "ada", "engine")
        assert (record.idempotency_key, record.trace) == ("k1", "00-abc-def-01")
        assert is_near(record.created_at, await now_of(store))
        assert record.due_at == record.created_at
        assert (record.attempt, record.attempts, record.replays, record.worker) == (0, (), 0, "")
        assert (record.started_at, record.ended_at, record.result, record.progress) == (None, None, None, None)
        assert (record.failure_type, record.first_failed_at, record.original_payload) == (None, None, None)

    async def test_many_jobs_answer_in_their_order(self, store: Store) -> None:
        jobs = [new_job() for _ in range(500)]
        assert await store.enqueue(jobs) == [Enqueued(job.id) for job in jobs]
        assert await claimed_ids(store, limit=1000) == [job.id for job in jobs]

    async def test_no_jobs_are_no_trouble(self, store: Store) -> None:
        assert await store.enqueue([]) == []

    async def test_sync_callers_enqueue_on_their_own_thread(self, store: Store) -> None:
        job = new_job()
        assert store.enqueue_now([job]) == [Enqueued(job.id)]
        assert store.enqueue_now([job]) == [Enqueued(job.id, is_new=False)]
        assert await state_of(store, job.id) is JobState.QUEUED

    async def test_a_job_that_is_sent_twice_is_one_job(self, store: Store) -> None:
        job = new_job()
        await store.enqueue([job])
        assert await store.enqueue([job]) == [Enqueued(job.id, is_new=False)]
        assert await claimed_ids(store) == [job.id]

    async def test_a_job_that_is_sent_twice_in_one_batch_is_one_job(self, store: Store) -> None:
        job = new_job()
        assert await store.enqueue([job, job]) == [Enqueued(job.id), Enqueued(job.id, is_new=False)]
        assert await claimed_ids(store) == [job.id]

    async def test_a_batch_sent_again_with_more_stores_only_what_is_new(self, store: Store) -> None:
        first, second = new_job(), new_job()
        await store.enqueue([first])
        assert [answer.is_new for answer in await store.enqueue([first, second])] == [False, True]
        assert await claimed_ids(store) == [first.id, second.id]

    @pytest.mark.parametrize("state", [JobState.RUNNING, JobState.RETRYING, *ENDED])
    async def test_a_known_id_is_not_new_again_in_any_state(self, store: Store, state: JobState) -> None:
        job_id = await job_in(store, state)
        again = NewJob(id=job_id, task="greet", payload=b"{}")
        assert await store.enqueue([again]) == [Enqueued(job_id, is_new=False, state=state)]
        with_key = new_job(idempotency_key="k")
        assert await store.enqueue([with_key, again]) == [
            Enqueued(with_key.id),
            Enqueued(job_id, is_new=False, state=state),
        ]
        assert await state_of(store, job_id) is state

    async def test_a_job_that_was_removed_may_come_again(self, store: Store) -> None:
        job_id = await job_in(store, JobState.COMPLETED)
        await change(store, Change.REMOVE, job_id)
        assert await store.enqueue([NewJob(id=job_id, task="greet", payload=b"{}")]) == [Enqueued(job_id)]
        assert await claimed_ids(store) == [job_id]

    async def test_a_delayed_job_is_not_claimed_before_it_is_due(self, store: Store, advance: Advance) -> None:
        job = new_job(delay_s=HOUR_S)
        await store.enqueue([job])
        record = await record_of(store, job.id)
        assert record.state is JobState.QUEUED
        assert is_same(record.due_at, record.created_at + HOUR_S)
        assert await claim(store) == []
        advance(HOUR_S - 300)
        assert await claim(store) == []
        advance(301)
        assert await claimed_ids(store) == [job.id]

    async def test_a_huge_payload_comes_back_whole(self, store: Store) -> None:
        payload = b'{"text": "' + bytes(range(97, 123)) * 200_000 + b'"}'
        delivery = await start(store, payload=payload)
        assert delivery.payload == payload
        assert (await record_of(store, delivery.id)).payload == payload

    async def test_a_payload_is_any_bytes(self, store: Store) -> None:
        payload = bytes(range(256))
        delivery = await start(store, payload=payload)
        assert delivery.payload == payload
        assert (await record_of(store, delivery.id)).payload == payload

    @pytest.mark.parametrize("text", _ODD_TEXTS, ids=ascii)
    async def test_odd_text_comes_back_as_it_was(self, store: Store, text: str) -> None:
        job = new_job(task=text, queue=text, tenant=text, user=text, project=text, trace=text, idempotency_key=text)
        await store.enqueue([job])
        record = await record_of(store, job.id)
        assert [record.task, record.queue, record.tenant, record.user, record.project] == [text] * 5
        assert [record.trace, record.idempotency_key] == [text] * 2
        (delivery,) = await claim(store, queues=(text,))
        assert [delivery.task, delivery.queue, delivery.tenant, delivery.trace] == [text] * 4
        assert await settle(store, delivery, Change.PARK, reason=text)
        assert (await record_of(store, job.id)).reason == text

    async def test_an_id_with_odd_text_is_simply_unknown(self, store: Store) -> None:
        await enqueue(store)
        assert await store.get(_ODD_TEXTS) == [None] * len(_ODD_TEXTS)

    async def test_threads_and_event_loops_enqueue_side_by_side(self, store: Store) -> None:
        batches = [[new_job() for _ in range(20)] for _ in range(8)]

        def enqueue_in_a_loop_of_its_own(batch: list[NewJob]) -> list[Enqueued]:
            async def enqueue_them() -> list[Enqueued]:
                return await store.enqueue(batch)

            return asyncio.run(enqueue_them())

        in_threads = [asyncio.to_thread(store.enqueue_now, batch) for batch in batches[:4]]
        in_loops = [asyncio.to_thread(enqueue_in_a_loop_of_its_own, batch) for batch in batches[4:]]
        answers = await asyncio.gather(*in_threads, *in_loops)
        assert answers == [[Enqueued(job.id) for job in batch] for batch in batches]
        assert sorted(await claimed_ids(store, limit=1000)) == sorted(job.id for batch in batches for job in batch)


class IdempotencySuite:
    """One job for one idempotency key."""

    async def test_the_same_key_and_payload_is_the_same_job(self, store: Store) -> None:
        first, second = new_job(idempotency_key="k"), new_job(idempotency_key="k")
        await store.enqueue([first])
        assert await store.enqueue([second]) == [Enqueued(first.id, is_new=False)]
        assert await store.get([second.id]) == [None]
        assert await claimed_ids(store) == [first.id]

    async def test_the_same_key_twice_in_one_batch_is_one_job(self, store: Store) -> None:
        first, second = new_job(idempotency_key="k"), new_job(idempotency_key="k")
        assert await store.enqueue([first, second]) == [Enqueued(first.id), Enqueued(first.id, is_new=False)]
        assert await claimed_ids(store) == [first.id]

    async def test_the_same_key_with_another_payload_is_a_conflict(self, store: Store) -> None:
        first, second = new_job(idempotency_key="k"), new_job(payload=b'{"n": 2}', idempotency_key="k")
        await store.enqueue([first])
        assert await store.enqueue([second]) == [Enqueued(first.id, is_new=False, is_conflict=True)]
        assert await claimed_ids(store) == [first.id]

    async def test_a_conflict_leaves_nothing_of_its_batch(self, store: Store) -> None:
        taken = new_job(idempotency_key="k")
        await store.enqueue([taken])
        before, clash, after = new_job(), new_job(payload=b"[]", idempotency_key="k"), new_job(idempotency_key="free")
        answers = await store.enqueue([before, clash, after])
        assert [answer.is_conflict for answer in answers] == [False, True, False]
        assert not any(answer.is_new for answer in answers)
        assert await store.get([before.id, clash.id, after.id]) == [None, None, None]
        free = new_job(payload=b"[1]", idempotency_key="free")
        assert await store.enqueue([free]) == [Enqueued(free.id)], "a key of the refused batch was kept"

    async def test_a_conflict_within_a_batch_leaves_nothing_of_it(self, store: Store) -> None:
        first, second = new_job(idempotency_key="k"), new_job(payload=b"[]", idempotency_key="k")
        assert [answer.is_conflict for answer in await store.enqueue([first, second])] == [False, True]
        assert await claim(store) == []

    async def test_a_key_holds_within_its_tenant_and_task(self, store: Store) -> None:
        jobs = [
            new_job(idempotency_key="k"),
            new_job(idempotency_key="k", tenant="acme"),
            new_job(task="leave", idempotency_key="k"),
            new_job(idempotency_key="K"),
        ]
        assert [answer.is_new for answer in await store.enqueue(jobs)] == [True] * 4

    async def test_an_empty_key_is_a_key(self, store: Store) -> None:
        first, second = new_job(idempotency_key=""), new_job(idempotency_key="")
        await store.enqueue([first])
        assert await store.enqueue([second]) == [Enqueued(first.id, is_new=False)]

    async def test_jobs_without_a_key_are_each_their_own(self, store: Store) -> None:
        assert [answer.is_new for answer in await store.enqueue([new_job(), new_job()])] == [True, True]

    async def test_a_known_id_comes_before_its_key(self, store: Store) -> None:
        job = new_job(idempotency_key="k")
        await store.enqueue([job])
        edited = NewJob(id=job.id, task=job.task, payload=b"[]", idempotency_key="k")
        assert await store.enqueue([edited]) == [Enqueued(job.id, is_new=False)]

    @pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING, JobState.RETRYING, JobState.WAITING])
    async def test_a_key_holds_for_as_long_as_its_job_has_not_ended(
        self, store: Store, advance: Advance, state: JobState
    ) -> None:
        job_id = await job_in(store, state, idempotency_key="k")
        advance(KEY_WINDOW_S * 3)
        assert await store.enqueue([new_job(idempotency_key="k")]) == [Enqueued(job_id, is_new=False, state=state)]

    @pytest.mark.parametrize("state", ENDED)
    async def test_a_key_holds_for_its_window_after_the_end_and_is_free_afterwards(
        self, store: Store, advance: Advance, state: JobState
    ) -> None:
        job_id = await job_in(store, state, idempotency_key="k")
        advance(KEY_WINDOW_S - HOUR_S)
        other = new_job(payload=b"[]", idempotency_key="k")
        assert await store.enqueue([new_job(idempotency_key="k")]) == [Enqueued(job_id, is_new=False, state=state)]
        assert await store.enqueue([other]) == [Enqueued(job_id, is_new=False, is_conflict=True, state=state)]
        advance(HOUR_S + 1)
        assert await store.enqueue([other]) == [Enqueued(other.id)]
        assert await state_of(store, job_id) is state
        assert (await store.enqueue([new_job(idempotency_key="k")]))[0].id == other.id

    async def test_the_window_begins_at_the_end_and_not_at_the_start(self, store: Store, advance: Advance) -> None:
        delivery = await start(store, idempotency_key="k")
        advance(KEY_WINDOW_S - HOUR_S)
        assert await settle(store, delivery, Change.COMPLETE)
        advance(HOUR_S * 2)
        assert (await store.enqueue([new_job(idempotency_key="k")]))[0].id == delivery.id

    async def test_a_replayed_letter_holds_its_key_as_a_new_job_does(self, store: Store, advance: Advance) -> None:
        job_id = await dead_letter(store, idempotency_key="k")
        await change(store, Change.REPLAY, job_id)
        advance(KEY_WINDOW_S * 2)
        assert (await store.enqueue([new_job(idempotency_key="k")]))[0].id == job_id

    @pytest.mark.parametrize("n_beside", [0, 2])
    async def test_a_job_that_comes_again_keeps_its_key_though_its_window_is_over(
        self, store: Store, advance: Advance, n_beside: int
    ) -> None:
        """It is another's once another job takes it, and that has not happened."""
        job_id = await dead_letter(store, idempotency_key="k")
        advance(KEY_WINDOW_S + HOUR_S)
        again = NewJob(id=job_id, task="greet", payload=b"{}", idempotency_key="k")
        beside = [new_job(), new_job(idempotency_key="another")][:n_beside]
        assert [one.is_new for one in await store.enqueue([again, *beside])] == [False, *[True] * n_beside]
        await change(store, Change.REPLAY, job_id)
        assert (await store.enqueue([new_job(idempotency_key="k")]))[0].id == job_id

    async def test_a_key_is_for_the_payload_that_was_enqueued_and_not_for_an_edited_one(self, store: Store) -> None:
        job_id = await dead_letter(store, idempotency_key="k")
        await change(store, Change.REPLAY, job_id, payload=b'{"edited": 1}')
        assert await store.enqueue([new_job(idempotency_key="k")]) == [Enqueued(job_id, is_new=False)]

    async def test_the_key_of_a_removed_job_is_free(self, store: Store) -> None:
        job_id = await job_in(store, JobState.COMPLETED, idempotency_key="k")
        await change(store, Change.REMOVE, job_id)
        job = new_job(payload=b"[]", idempotency_key="k")
        assert await store.enqueue([job]) == [Enqueued(job.id)]

    async def test_a_removed_job_takes_no_key_with_it_that_is_anothers_by_now(
        self, store: Store, advance: Advance
    ) -> None:
        job_id = await job_in(store, JobState.COMPLETED, idempotency_key="k")
        advance(KEY_WINDOW_S + 1)
        (heir,) = await enqueue(store, new_job(idempotency_key="k"))
        await change(store, Change.REMOVE, job_id)
        assert await store.enqueue([new_job(idempotency_key="k")]) == [Enqueued(heir, is_new=False)]

    async def test_a_job_is_kept_as_long_as_its_key_holds_and_no_longer(self, store: Store, advance: Advance) -> None:
        delivery = await start(store, idempotency_key="k")
        await settle(store, delivery, Change.COMPLETE, keep_s=10)
        advance(KEY_WINDOW_S - 5)
        assert await store.prune(10) == 0
        advance(10)
        assert await store.prune(10) == 1
        job = new_job(payload=b"[]", idempotency_key="k")
        assert await store.enqueue([job]) == [Enqueued(job.id)]

    async def test_racing_threads_make_one_job_of_one_key(self, store: Store) -> None:
        jobs = [new_job(idempotency_key="k") for _ in range(8)]
        answers = await asyncio.gather(*(asyncio.to_thread(store.enqueue_now, [job]) for job in jobs))
        assert len({answer.id for (answer,) in answers}) == 1
        assert sum(answer.is_new for (answer,) in answers) == 1
        await beat(store)
        assert len((await exchange_claim(store)).deliveries) == 1

    async def test_an_unknown_id_is_none(self, store: Store) -> None:
        assert await store.get([new_id()]) == [None]
