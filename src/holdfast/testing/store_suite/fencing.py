# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises to workers that settle: only who holds the lease may, once, and never back from the end."""

from __future__ import annotations

import pytest

from holdfast.clock import new_token
from holdfast.policy.lifecycle import LIFECYCLE
from holdfast.ports import Exchange, Settlement, Store
from holdfast.testing.store_suite.steps import (
    ENDED,
    ENDING,
    HOUR_S,
    LEASE_S,
    RETURNING,
    SETTLING,
    Advance,
    beat,
    bury,
    change,
    claim,
    enqueue,
    exchange_claim,
    failed_attempt,
    is_near,
    new_job,
    now_of,
    record_of,
    settle,
    start,
    state_of,
)
from holdfast.types import Change, JobState

each_settling = pytest.mark.parametrize("settling", SETTLING)
each_returning = pytest.mark.parametrize("returning", RETURNING)


class FenceSuite:
    """Only who holds the lease may settle, and only once."""

    @each_settling
    async def test_a_wrong_token_changes_nothing(self, store: Store, settling: Change) -> None:
        delivery = await start(store)
        before = await record_of(store, delivery.id)
        wrong = Settlement(
            id=delivery.id,
            token=new_token(),
            change=settling,
            reason="stolen",
            result=b"1",
            attempt=failed_attempt(delivery),
        )
        assert list((await store.exchange(Exchange(settlements=[wrong]))).settled) == [False]
        assert await record_of(store, delivery.id) == before
        assert await settle(store, delivery, Change.COMPLETE) is True

    async def test_a_claim_that_comes_after_a_later_one_brings_nothing(self, store: Store) -> None:
        """Twice under one token, a job would be settled by what was said of the first time, and comes late as well."""
        early = new_token()
        await enqueue(store, new_job())
        (first,) = await claim(store, token=early)
        assert await settle(store, first, Change.RETRY) is True
        for _ in range(200):  # what was settled is forgotten some time
            (again,) = await claim(store)
            assert await settle(store, again, Change.RETRY) is True
        assert await claim(store, token=early) == []
        assert await settle(store, first, Change.RETRY) is False
        assert await state_of(store, first.id) is JobState.RETRYING
        assert len(await claim(store)) == 1

    async def test_a_claim_that_was_overtaken_by_a_later_one_brings_nothing(self, store: Store) -> None:
        early = new_token()
        late = await start(store)
        await enqueue(store, new_job())
        assert await claim(store, token=early) == []
        assert await settle(store, late, Change.COMPLETE) is True
        assert await claim(store, token=early) == []
        assert [one.id for one in await claim(store, token=early, worker="w2")] != [], "it is another worker's"

    async def test_a_claim_is_not_late_because_of_what_was_reclaimed(self, store: Store, advance: Advance) -> None:
        orphan = await start(store, worker="w0")
        advance(2 * LEASE_S)
        await beat(store)
        reclaiming, token = b"\0" + new_token()[1:], new_token()
        later = b"\0" + new_token()[1:]
        assert [one.id for one in await store.reclaim("w1", later, 10)] == [orphan.id]
        await enqueue(store, new_job())
        assert len(await claim(store, token=token)) == 1
        assert await store.reclaim("w1", reclaiming, 10) == [], "this one does come late"
        assert [one.id for one in await store.reclaim("w1", later, 10)] == [orphan.id], "it comes again"

    @each_settling
    async def test_a_settlement_for_an_unknown_job_is_refused(self, store: Store, settling: Change) -> None:
        stranger = Settlement(id=new_job().id, token=new_token(), change=settling)
        assert list((await store.exchange(Exchange(settlements=[stranger]))).settled) == [False]

    @each_settling
    async def test_an_empty_token_settles_nothing(self, store: Store, settling: Change) -> None:
        (job_id,) = await enqueue(store)
        empty = Settlement(id=job_id, token=b"", change=settling)
        assert list((await store.exchange(Exchange(settlements=[empty]))).settled) == [False]
        assert await state_of(store, job_id) is JobState.QUEUED

    @each_returning
    async def test_a_claim_that_comes_late_and_again_brings_nothing_that_was_settled_under_it(
        self, store: Store, returning: Change
    ) -> None:
        delivery = await start(store)
        (other,) = await enqueue(store, new_job(priority=1))
        assert await settle(store, delivery, returning, attempt=failed_attempt(delivery, outcome=returning)) is True
        assert [one.id for one in await claim(store, limit=1)] == [other]
        await store.prune(100)  # a time at which claims are forgotten
        before = await record_of(store, delivery.id)
        brought = [one.id for one in await claim(store, token=delivery.token)]
        assert delivery.id not in brought
        assert await record_of(store, delivery.id) == before

    @each_settling
    async def test_a_settlement_that_is_sent_twice_takes_effect_once(
        self, store: Store, advance: Advance, settling: Change
    ) -> None:
        delivery = await start(store)
        attempt = None if settling is Change.COMPLETE else failed_attempt(delivery, outcome=settling)
        facts = {"attempt": attempt, "delay_s": HOUR_S, "elapsed_s": 3.0, "started_at": delivery.claimed_at}
        assert await settle(store, delivery, settling, **facts) is True
        before = await record_of(store, delivery.id)
        advance(60)
        assert await settle(store, delivery, settling, **facts) is True
        assert await record_of(store, delivery.id) == before
        assert len(before.attempts) == 1

    @each_settling
    async def test_a_settlement_that_is_twice_in_one_batch_takes_effect_once(
        self, store: Store, settling: Change
    ) -> None:
        delivery = await start(store)
        attempt = None if settling is Change.COMPLETE else failed_attempt(delivery, outcome=settling)
        one = Settlement(id=delivery.id, token=delivery.token, change=settling, attempt=attempt)
        assert list((await store.exchange(Exchange(settlements=[one, one]))).settled) == [True, True]
        assert len((await record_of(store, delivery.id)).attempts) == 1

    @each_returning
    async def test_a_settlement_sent_again_after_the_next_claim_leaves_that_one_alone(
        self, store: Store, returning: Change
    ) -> None:
        delivery = await start(store)
        await settle(store, delivery, returning)
        (again,) = await claim(store, worker="w2")
        assert await settle(store, delivery, returning) is True, "it has taken effect"
        record = await record_of(store, delivery.id)
        assert (record.state, record.worker) == (JobState.RUNNING, "w2")
        assert await settle(store, again, Change.COMPLETE) is True

    @pytest.mark.parametrize(
        ("returning", "settling"), [(one, other) for one in RETURNING for other in SETTLING if other is not one]
    )
    async def test_an_old_token_cannot_settle_the_next_attempt(
        self, store: Store, returning: Change, settling: Change
    ) -> None:
        delivery = await start(store)
        await settle(store, delivery, returning)
        await claim(store, worker="w2")
        assert await settle(store, delivery, settling) is False
        record = await record_of(store, delivery.id)
        assert (record.state, record.worker, record.attempt) == (JobState.RUNNING, "w2", 2)

    @each_settling
    async def test_a_settlement_after_a_cancellation_is_refused(self, store: Store, settling: Change) -> None:
        delivery = await start(store)
        await change(store, Change.CANCEL, delivery.id, reason="enough")
        before = await record_of(store, delivery.id)
        assert await settle(store, delivery, settling, result=b"1", reason="late") is False
        assert await record_of(store, delivery.id) == before
        assert await claim(store) == []

    @each_returning
    async def test_a_cancelled_attempt_is_not_taken_for_the_one_before_it(
        self, store: Store, returning: Change
    ) -> None:
        delivery = await start(store)
        await settle(store, delivery, returning)
        (again,) = await claim(store)
        await change(store, Change.CANCEL, delivery.id)
        assert await settle(store, again, returning) is False
        assert await state_of(store, delivery.id) is JobState.CANCELLED

    @each_settling
    async def test_an_old_token_is_not_told_that_a_newer_attempts_settlement_was_its_own(
        self, store: Store, settling: Change
    ) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.PARK if settling is not Change.PARK else Change.RETRY)
        (again,) = await claim(store, worker="w2")
        assert await settle(store, again, settling) is True
        assert await settle(store, delivery, settling) is False

    @pytest.mark.parametrize("state", ENDED)
    @each_settling
    async def test_what_has_ended_never_goes_back(self, store: Store, state: JobState, settling: Change) -> None:
        delivery = await start(store)
        ended_by = next(one for one in ENDING if LIFECYCLE[one].after is state)
        await settle(store, delivery, ended_by, result=b"1")
        before = await record_of(store, delivery.id)
        assert before.state is state
        with_token = Settlement(id=delivery.id, token=delivery.token, change=settling, result=b"2", reason="late")
        stranger = Settlement(id=delivery.id, token=new_token(), change=settling, result=b"2", reason="late")
        answer = await store.exchange(Exchange(settlements=[with_token, stranger]))
        assert list(answer.settled) == [settling is ended_by, False]
        assert await record_of(store, delivery.id) == before
        assert await claim(store) == []

    async def test_a_buried_job_is_told_from_a_completed_one(self, store: Store) -> None:
        delivery = await start(store)
        await bury(store, delivery)
        assert await settle(store, delivery, Change.COMPLETE) is False
        assert await state_of(store, delivery.id) is JobState.DEAD_LETTER

    async def test_the_answer_carries_the_stores_clock(self, store: Store, advance: Advance) -> None:
        before = await now_of(store)
        advance(HOUR_S)
        assert is_near(await now_of(store), before + HOUR_S)

    async def test_an_exchange_of_nothing_does_nothing(self, store: Store) -> None:
        await beat(store)
        answer = await store.exchange(Exchange())
        assert (list(answer.settled), list(answer.changed), list(answer.deliveries)) == ([], [], [])
        assert list((await exchange_claim(store)).deliveries) == []
