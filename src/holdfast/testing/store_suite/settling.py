# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises to workers about what becomes of a settled job."""

from __future__ import annotations

import pytest

from holdfast.clock import new_token
from holdfast.policy.lifecycle import LIFECYCLE
from holdfast.ports import Claim, Exchange, Settlement, Store
from holdfast.testing.store_suite.steps import (
    ENDING,
    HOUR_S,
    RETURNING,
    SETTLING,
    Advance,
    change,
    claim,
    claimed_ids,
    enqueue,
    failed_attempt,
    is_near,
    is_same,
    new_job,
    record_of,
    settle,
    start,
    state_of,
)
from holdfast.types import Attempt, Change, FailureType, JobState, Severity

each_settling = pytest.mark.parametrize("settling", SETTLING)
each_ending = pytest.mark.parametrize("ending", ENDING)
each_returning = pytest.mark.parametrize("returning", RETURNING)


class SettleSuite:
    """What becomes of a job by each settling change."""

    @each_settling
    async def test_each_change_leads_to_the_state_of_the_table(self, store: Store, settling: Change) -> None:
        delivery = await start(store)
        assert await settle(store, delivery, settling) is True
        assert await state_of(store, delivery.id) is LIFECYCLE[settling].after

    @each_ending
    async def test_a_job_that_has_ended_says_when_and_why_and_never_runs_again(
        self, store: Store, advance: Advance, ending: Change
    ) -> None:
        delivery = await start(store)
        advance(90)
        await settle(store, delivery, ending, reason="because", started_at=delivery.claimed_at + 1)
        record = await record_of(store, delivery.id)
        assert is_near(record.ended_at, delivery.claimed_at + 90)
        assert (record.reason, record.worker) == ("because", "w1")
        assert is_same(record.started_at, delivery.claimed_at + 1)
        advance(HOUR_S * 1000)
        assert await claim(store) == []

    async def test_a_completed_job_has_its_result(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.COMPLETE, result=b'"done"')
        assert (await record_of(store, delivery.id)).result == b'"done"'

    async def test_a_completed_attempt_is_in_the_history_without_being_told(
        self, store: Store, advance: Advance
    ) -> None:
        delivery = await start(store)
        advance(5)
        await settle(store, delivery, Change.COMPLETE, started_at=delivery.claimed_at)
        record = await record_of(store, delivery.id)
        (attempt,) = record.attempts
        assert (attempt.number, attempt.worker, attempt.outcome) == (1, "w1", Change.COMPLETE)
        assert attempt.failure_type is None
        assert is_same(attempt.started_at, delivery.claimed_at)
        assert attempt.ended_at == record.ended_at

    async def test_a_completed_attempt_that_is_told_is_in_the_history_once(self, store: Store) -> None:
        delivery = await start(store)
        attempt = Attempt(number=1, started_at=delivery.claimed_at, ended_at=delivery.claimed_at + 3, worker="w1")
        await settle(store, delivery, Change.COMPLETE, attempt=attempt, started_at=attempt.started_at)
        assert (await record_of(store, delivery.id)).attempts == (attempt,)

    @each_returning
    async def test_a_job_that_goes_back_is_due_after_its_delay(
        self, store: Store, advance: Advance, returning: Change
    ) -> None:
        delivery = await start(store)
        advance(30)
        await settle(store, delivery, returning, delay_s=HOUR_S)
        record = await record_of(store, delivery.id)
        assert is_near(record.due_at, delivery.claimed_at + 30 + HOUR_S)
        assert record.ended_at is None
        assert await claim(store) == []
        advance(HOUR_S - 60)
        assert await claim(store) == []
        advance(61)
        assert await claimed_ids(store) == [delivery.id]

    @each_returning
    async def test_a_job_that_goes_back_without_a_delay_is_due_now(self, store: Store, returning: Change) -> None:
        delivery = await start(store)
        await settle(store, delivery, returning)
        (again,) = await claim(store)
        assert again.id == delivery.id
        assert again.token != delivery.token

    @pytest.mark.parametrize("returning", [Change.RETRY, Change.PARK])
    async def test_what_ran_stands_behind_what_was_due_before(self, store: Store, returning: Change) -> None:
        delivery = await start(store)
        others = await enqueue(store, new_job(), new_job())
        await settle(store, delivery, returning)
        assert await claimed_ids(store) == [*others, delivery.id]

    async def test_what_is_released_keeps_its_place(self, store: Store) -> None:
        delivery = await start(store)
        others = await enqueue(store, new_job(), new_job())
        await settle(store, delivery, Change.RELEASE)
        assert await claimed_ids(store) == [delivery.id, *others]

    @each_returning
    async def test_what_goes_back_keeps_its_priority(self, store: Store, returning: Change) -> None:
        delivery = await start(store, priority=3)
        (other,) = await enqueue(store)
        await settle(store, delivery, returning)
        assert await claimed_ids(store) == [delivery.id, other]

    @each_returning
    async def test_the_sum_of_elapsed_time_is_on_the_next_delivery(self, store: Store, returning: Change) -> None:
        delivery = await start(store)
        await settle(store, delivery, returning, elapsed_s=12.5)
        (again,) = await claim(store)
        assert again.elapsed_s == 12.5
        assert again.created_at == delivery.created_at

    async def test_a_job_that_goes_back_unrun_still_says_when_it_ran_last(self, store: Store, advance: Advance) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.RETRY, started_at=delivery.claimed_at)
        (again,) = await claim(store)
        advance(30)
        await settle(store, again, Change.RELEASE)
        assert is_same((await record_of(store, delivery.id)).started_at, delivery.claimed_at)

    async def test_a_parked_job_says_why(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.PARK, reason="breaker open")
        record = await record_of(store, delivery.id)
        assert (record.state, record.reason) == (JobState.WAITING, "breaker open")

    async def test_a_failed_attempt_is_the_latest_failure(self, store: Store) -> None:
        delivery = await start(store)
        attempt = failed_attempt(delivery, delay_s=4.0, breaker="closed")
        await settle(store, delivery, Change.RETRY, attempt=attempt, started_at=attempt.started_at)
        record = await record_of(store, delivery.id)
        assert record.attempts == (attempt,)
        assert (record.failure_type, record.severity) == (FailureType.NETWORK, Severity.MEDIUM)
        assert (record.error_name, record.message) == ("ConnectionError", "the line is dead")
        assert record.fingerprint == "1:dead-line"
        assert is_near(record.first_failed_at, attempt.ended_at)
        assert is_near(record.last_failed_at, attempt.ended_at)

    @pytest.mark.parametrize("ending", [Change.BURY, Change.FAIL])
    async def test_a_job_that_is_given_up_keeps_every_attempt(
        self, store: Store, advance: Advance, ending: Change
    ) -> None:
        delivery = await start(store)
        first = failed_attempt(delivery)
        await settle(store, delivery, Change.RETRY, attempt=first, delay_s=HOUR_S)
        advance(HOUR_S)
        (delivery,) = await claim(store)
        last = failed_attempt(
            delivery,
            outcome=ending,
            failure_type=FailureType.VALIDATION,
            severity=Severity.HIGH,
            error_name="ValueError",
            message="no such field",
            fingerprint="1:other",
        )
        await settle(store, delivery, ending, attempt=last, reason="not retriable")
        record = await record_of(store, delivery.id)
        assert record.attempts == (first, last)
        assert (record.attempt, record.reason) == (2, "not retriable")
        assert (record.failure_type, record.severity) == (FailureType.VALIDATION, Severity.HIGH)
        assert (record.error_name, record.message) == ("ValueError", "no such field")
        assert record.fingerprint == "1:other"
        assert is_near(record.first_failed_at, first.ended_at)
        assert is_near(record.last_failed_at, last.ended_at)

    async def test_an_attempt_without_a_failure_is_remembered_and_is_no_failure(self, store: Store) -> None:
        delivery = await start(store)
        parked = Attempt(number=1, started_at=delivery.claimed_at, ended_at=delivery.claimed_at, outcome=Change.PARK)
        await settle(store, delivery, Change.PARK, attempt=parked, is_refunded=True)
        record = await record_of(store, delivery.id)
        assert record.attempts == (parked,)
        assert (record.failure_type, record.first_failed_at, record.last_failed_at) == (None, None, None)

    async def test_a_job_that_completes_after_a_failure_shows_both(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.RETRY, attempt=failed_attempt(delivery))
        (delivery,) = await claim(store)
        await settle(store, delivery, Change.COMPLETE, started_at=delivery.claimed_at, result=b"1")
        record = await record_of(store, delivery.id)
        assert [attempt.number for attempt in record.attempts] == [1, 2]
        assert [attempt.outcome for attempt in record.attempts] == [Change.RETRY, Change.COMPLETE]
        assert record.failure_type is FailureType.NETWORK

    async def test_a_job_that_was_cancelled_before_it_ran_has_no_attempt(self, store: Store) -> None:
        (job_id,) = await enqueue(store)
        await change(store, Change.CANCEL, job_id)
        record = await record_of(store, job_id)
        assert (record.attempt, record.attempts, record.started_at) == (0, (), None)

    async def test_a_job_may_fail_many_times(self, store: Store) -> None:
        delivery = await start(store)
        for _ in range(30):
            await settle(store, delivery, Change.RETRY, attempt=failed_attempt(delivery))
            (delivery,) = await claim(store)
        assert (delivery.attempt, delivery.retries) == (31, 30)
        record = await record_of(store, delivery.id)
        assert [attempt.number for attempt in record.attempts] == list(range(1, 31))

    async def test_odd_text_of_an_error_comes_back_as_it_was(self, store: Store) -> None:
        delivery = await start(store)
        text = "nul \x00 emoji 🦀 quotes ' \" % \\ \n" * 300
        attempt = failed_attempt(delivery, message=text, traceback=text, error_name="Odd'Error")
        await settle(store, delivery, Change.RETRY, attempt=attempt)
        record = await record_of(store, delivery.id)
        assert record.attempts == (attempt,)
        assert record.message == text

    async def test_settling_and_claiming_in_one_exchange_brings_back_what_was_just_released(self, store: Store) -> None:
        delivery = await start(store)
        settlement = Settlement(id=delivery.id, token=delivery.token, change=Change.RELEASE)
        wish = Claim(worker="w1", token=new_token(), limit=5)
        answer = await store.exchange(Exchange(settlements=[settlement], claim=wish))
        assert list(answer.settled) == [True]
        assert [one.id for one in answer.deliveries] == [delivery.id]
        assert answer.deliveries[0].token == wish.token

    async def test_a_batch_answers_for_each_settlement_in_its_order(self, store: Store) -> None:
        await enqueue(store, *(new_job() for _ in range(len(SETTLING) * 3)))
        deliveries = await claim(store)
        settlements = [
            Settlement(
                id=delivery.id,
                token=new_token() if n % 3 == 1 else delivery.token,
                change=SETTLING[n % len(SETTLING)],
                delay_s=HOUR_S,
            )
            for n, delivery in enumerate(deliveries)
        ]
        answer = await store.exchange(Exchange(settlements=settlements))
        assert list(answer.settled) == [n % 3 != 1 for n in range(len(settlements))]
        for n, settlement in enumerate(settlements):
            expected = JobState.RUNNING if n % 3 == 1 else LIFECYCLE[settlement.change].after
            assert await state_of(store, settlement.id) is expected
