# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises to people: cancel, replay, remove, and records that go when their time is over."""

from __future__ import annotations

import pytest

from holdfast.policy.lifecycle import LIFECYCLE, is_allowed
from holdfast.ports import Changed, Store
from holdfast.testing.store_suite.steps import (
    ENDED,
    ENDING,
    HOUR_S,
    Advance,
    bury,
    change,
    claim,
    claimed_ids,
    dead_letter,
    enqueue,
    failed_attempt,
    is_near,
    job_in,
    new_job,
    now_of,
    record_of,
    settle,
    start,
    state_of,
)
from holdfast.types import Change, FailureType, JobState

each_state = pytest.mark.parametrize("state", list(JobState))


class ChangeSuite:
    """Each operation in each state, as the table of a job's life has it."""

    @each_state
    @pytest.mark.parametrize("operation", [Change.CANCEL, Change.REPLAY, Change.REMOVE])
    async def test_an_operation_does_what_the_table_allows_and_nothing_else(
        self, store: Store, state: JobState, operation: Change
    ) -> None:
        job_id = await job_in(store, state)
        before = await record_of(store, job_id)
        if is_allowed(state, operation):
            expected = LIFECYCLE[operation].after
            assert await change(store, operation, job_id) == [Changed(job_id, is_done=True, state=expected)]
            assert await state_of(store, job_id) is expected
        else:
            assert await change(store, operation, job_id) == [Changed(job_id, is_done=False, state=state)]
            assert await record_of(store, job_id) == before

    @pytest.mark.parametrize("operation", [Change.CANCEL, Change.REPLAY, Change.REMOVE])
    async def test_an_unknown_id_is_said_to_be_unknown(self, store: Store, operation: Change) -> None:
        assert await change(store, operation, "nobody") == [Changed("nobody", is_done=False, state=None)]

    async def test_each_job_is_changed_by_itself_in_the_order_asked_for(self, store: Store) -> None:
        queued, ended = await job_in(store, JobState.COMPLETED), await job_in(store, JobState.QUEUED)
        assert await change(store, Change.CANCEL, queued, "nobody", ended, ended) == [
            Changed(queued, is_done=False, state=JobState.COMPLETED),
            Changed("nobody", is_done=False, state=None),
            Changed(ended, is_done=True, state=JobState.CANCELLED),
            Changed(ended, is_done=False, state=JobState.CANCELLED),
        ]

    async def test_no_ids_are_no_trouble(self, store: Store) -> None:
        assert await change(store, Change.CANCEL) == []

    async def test_many_ids_are_changed_together(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job() for _ in range(1200)))
        assert all(one.is_done for one in await change(store, Change.CANCEL, *ids))
        assert await claim(store) == []

    @pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING, JobState.RETRYING, JobState.WAITING])
    async def test_a_cancelled_job_says_when_and_why_and_never_runs_again(
        self, store: Store, advance: Advance, state: JobState
    ) -> None:
        job_id = await job_in(store, state)
        await change(store, Change.CANCEL, job_id, reason="not needed")
        record = await record_of(store, job_id)
        assert (record.state, record.reason) == (JobState.CANCELLED, "not needed")
        assert is_near(record.ended_at, await now_of(store))
        advance(HOUR_S)
        assert await claim(store) == []

    async def test_a_cancelled_job_is_kept_for_as_long_as_asked(self, store: Store, advance: Advance) -> None:
        job_id = await job_in(store, JobState.QUEUED)
        await change(store, Change.CANCEL, job_id, keep_s=HOUR_S)
        assert await store.prune(10) == 0
        advance(HOUR_S + 60)
        assert await store.prune(10) == 1
        assert await state_of(store, job_id) is None

    async def test_a_removed_job_is_gone_from_everywhere(self, store: Store) -> None:
        job_id = await dead_letter(store)
        await change(store, Change.REMOVE, job_id)
        assert await store.get([job_id]) == [None]
        assert list((await store.stats()).tallies) == []
        assert await change(store, Change.REMOVE, job_id) == [Changed(job_id, is_done=False, state=None)]


class ReplaySuite:
    """A dead letter goes back to the queue with its history, and with new attempts."""

    async def test_a_replayed_letter_runs_again_with_new_attempts(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.RETRY, attempt=failed_attempt(delivery), elapsed_s=50)
        (delivery,) = await claim(store)
        await settle(store, delivery, Change.BURY, attempt=failed_attempt(delivery), elapsed_s=60, reason="hopeless")
        await change(store, Change.REPLAY, delivery.id)
        record = await record_of(store, delivery.id)
        assert (record.state, record.replays, record.ended_at, record.reason) == (JobState.QUEUED, 1, None, "")
        (again,) = await claim(store)
        assert (again.id, again.attempt, again.retries, again.elapsed_s) == (delivery.id, 3, 0, 0.0)

    async def test_the_history_goes_on(self, store: Store) -> None:
        delivery = await start(store)
        await bury(store, delivery)
        await change(store, Change.REPLAY, delivery.id)
        record = await record_of(store, delivery.id)
        assert [attempt.number for attempt in record.attempts] == [1]
        assert record.failure_type is FailureType.NETWORK
        (again,) = await claim(store)
        await bury(store, again, fingerprint="1:another")
        record = await record_of(store, delivery.id)
        assert [attempt.number for attempt in record.attempts] == [1, 2]
        assert (record.state, record.fingerprint) == (JobState.DEAD_LETTER, "1:another")

    async def test_letters_are_replayed_in_the_order_of_the_ids(self, store: Store) -> None:
        letters = [await dead_letter(store) for _ in range(4)]
        wanted = [letters[place] for place in (2, 0, 3, 1)]
        await change(store, Change.REPLAY, *wanted)
        assert [one.id for one in await claim(store, limit=10)] == wanted

    async def test_a_replay_may_wait(self, store: Store, advance: Advance) -> None:
        job_id = await dead_letter(store)
        await change(store, Change.REPLAY, job_id, delay_s=HOUR_S)
        assert is_near((await record_of(store, job_id)).due_at, await now_of(store) + HOUR_S)
        assert await claim(store) == []
        advance(HOUR_S + 1)
        assert await claimed_ids(store) == [job_id]

    async def test_a_letter_is_replayed_as_it_is_unless_it_is_edited(self, store: Store) -> None:
        job_id = await dead_letter(store, payload=b'{"n": 1}')
        await change(store, Change.REPLAY, job_id)
        record = await record_of(store, job_id)
        assert (record.payload, record.original_payload) == (b'{"n": 1}', None)

    async def test_an_edited_letter_keeps_what_it_was_enqueued_with(self, store: Store) -> None:
        job_id = await dead_letter(store, payload=b'{"n": 1}')
        await change(store, Change.REPLAY, job_id, payload=b'{"n": 2}')
        (again,) = await claim(store)
        assert again.payload == b'{"n": 2}'
        await bury(store, again)
        await change(store, Change.REPLAY, job_id, payload=b'{"n": 3}')
        record = await record_of(store, job_id)
        assert (record.payload, record.original_payload, record.replays) == (b'{"n": 3}', b'{"n": 1}', 2)

    async def test_each_letter_may_have_a_payload_of_its_own(self, store: Store) -> None:
        first = await dead_letter(store)
        second = await dead_letter(store)
        third = await dead_letter(store)
        await change(store, Change.REPLAY, first, second, payloads={first: b"[1]", second: b"[2]", third: b"[3]"})
        assert [(await record_of(store, one)).payload for one in (first, second, third)] == [b"[1]", b"[2]", b"{}"]

    async def test_a_letter_goes_once_under_one_replay_id(self, store: Store) -> None:
        job_id = await dead_letter(store)
        for replay in ("r1", "r2"):
            assert (await change(store, Change.REPLAY, job_id, replay=replay))[0].is_done
            (again,) = await claim(store)
            await bury(store, again)
        for replay in ("r1", "r2"):
            dead = Changed(job_id, is_done=False, state=JobState.DEAD_LETTER)
            assert await change(store, Change.REPLAY, job_id, replay=replay) == [dead]
        assert (await record_of(store, job_id)).replays == 2
        assert (await change(store, Change.REPLAY, job_id))[0].is_done, "without an id it goes again"

    async def test_a_replay_that_is_sent_twice_sends_a_letter_once(self, store: Store) -> None:
        job_id = await dead_letter(store)
        await change(store, Change.REPLAY, job_id, replay="r1")
        again = await change(store, Change.REPLAY, job_id, replay="r1")
        assert again == [Changed(job_id, is_done=False, state=JobState.QUEUED)]
        assert await claimed_ids(store) == [job_id]
        assert (await record_of(store, job_id)).replays == 1

    async def test_a_replayed_letter_is_not_pruned(self, store: Store, advance: Advance) -> None:
        job_id = await dead_letter(store, keep_s=HOUR_S)
        await change(store, Change.REPLAY, job_id)
        advance(HOUR_S * 2)
        assert await store.prune(10) == 0
        assert await claimed_ids(store) == [job_id]

    async def test_a_replayed_letter_may_complete(self, store: Store) -> None:
        job_id = await dead_letter(store)
        await change(store, Change.REPLAY, job_id)
        (again,) = await claim(store)
        assert await settle(store, again, Change.COMPLETE, result=b"1", started_at=again.claimed_at)
        record = await record_of(store, job_id)
        assert (record.state, record.result, record.reason) == (JobState.COMPLETED, b"1", "")
        assert [attempt.outcome for attempt in record.attempts] == [Change.BURY, Change.COMPLETE]


class PruneSuite:
    """Records go when their time is over, and not before."""

    @pytest.mark.parametrize("ending", ENDING)
    async def test_a_record_is_pruned_when_its_time_is_over(
        self, store: Store, advance: Advance, ending: Change
    ) -> None:
        delivery = await start(store)
        await settle(store, delivery, ending, keep_s=HOUR_S)
        advance(HOUR_S - 60)
        assert await store.prune(10) == 0
        assert await state_of(store, delivery.id) is not None
        advance(61)
        assert await store.prune(10) == 1
        assert await state_of(store, delivery.id) is None
        assert await store.prune(10) == 0

    @pytest.mark.parametrize("state", ENDED)
    async def test_a_record_without_a_time_is_kept(self, store: Store, advance: Advance, state: JobState) -> None:
        job_id = await job_in(store, state)
        advance(HOUR_S * 24 * 4000)
        assert await store.prune(10) == 0
        assert await state_of(store, job_id) is state

    @pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING, JobState.RETRYING, JobState.WAITING])
    async def test_what_has_not_ended_is_never_pruned(self, store: Store, advance: Advance, state: JobState) -> None:
        job_id = await job_in(store, state)
        advance(HOUR_S * 24 * 4000)
        assert await store.prune(10) == 0
        assert await state_of(store, job_id) is state

    async def test_keep_s_of_a_change_that_ends_nothing_does_not_matter(self, store: Store, advance: Advance) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.RETRY, keep_s=1.0)
        advance(HOUR_S)
        assert await store.prune(10) == 0

    async def test_pruning_keeps_to_its_limit(self, store: Store, advance: Advance) -> None:
        await enqueue(store, *(new_job() for _ in range(5)))
        for delivery in await claim(store):
            await settle(store, delivery, Change.COMPLETE, keep_s=10)
        advance(60)
        assert [await store.prune(2) for _ in range(4)] == [2, 2, 1, 0]
        assert list((await store.stats()).tallies) == []

    async def test_a_time_of_zero_is_over_at_once(self, store: Store, advance: Advance) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.COMPLETE, keep_s=0.0)
        assert await state_of(store, delivery.id) is JobState.COMPLETED
        advance(1)
        assert await store.prune(10) == 1
