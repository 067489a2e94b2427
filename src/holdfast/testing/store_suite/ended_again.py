# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises of work that is handled again after it has ended: given up again, it is a dead letter again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.ports import Enqueued, Query, Store
from holdfast.testing.store_suite.ends import ended, n_of, tried, with_end
from holdfast.testing.store_suite.steps import (
    ENDED,
    HOUR_S,
    KEY_WINDOW_S,
    Advance,
    change,
    claim,
    dead_letter,
    enqueue,
    found_ids,
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
from holdfast.types import Attempt, Change, FailureType, JobState

_LETTER = JobState.DEAD_LETTER


async def tried_since(store: Store, number: int = 9, **options: Any) -> Attempt:
    """An attempt elsewhere that begins now, and fails two seconds later."""
    now = await now_of(store)
    return tried(number, **({"started_at": now, "ended_at": now + 2.0} | options))


class EndedAgainSuite:
    """What has ended is buried once more after a new attempt, and otherwise stays as it is."""

    async def test_whatever_has_ended_and_fails_again_is_a_dead_letter_again(self, store: Store) -> None:
        ids = [await job_in(store, state, payload=b"[1]") for state in ENDED]
        before = [await record_of(store, job_id) for job_id in ids]
        again = await tried_since(store, 9)
        ends = [with_end(job_id, Change.BURY, again, reason="failed again") for job_id in ids]
        assert await store.enqueue(ends) == [Enqueued(job_id, is_new=False, state=_LETTER) for job_id in ids]
        for job_id, old in zip(ids, before, strict=True):
            record = await record_of(store, job_id)
            assert (record.state, record.reason, record.result) == (_LETTER, "failed again", None)
            assert (record.attempts, record.attempt, record.worker) == ((*old.attempts, again), 9, "elsewhere")
            assert (record.fingerprint, record.message) == ("1:n9", "no answer to 9")
            assert (record.payload, record.created_at) == (b"[1]", old.created_at)
            assert is_same(record.started_at, again.started_at)
            assert is_same(record.last_failed_at, again.ended_at)
            assert is_near(record.ended_at, await now_of(store))
        assert [(one.state, one.n) for one in (await store.stats()).tallies] == [(_LETTER, len(ids))]
        assert [(group.fingerprint, group.count) for group in await store.groups(Query())] == [("1:n9", len(ids))]
        assert {state: await found_ids(store, states=(state,)) for state in ENDED} == {
            state: ids[::-1] if state is _LETTER else [] for state in ENDED
        }
        assert await claim(store) == []

    async def test_the_attempt_that_had_completed_it_stays_in_its_history(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.COMPLETE, started_at=delivery.claimed_at, result=b"7")
        (done,) = (await record_of(store, delivery.id)).attempts
        assert done.outcome is Change.COMPLETE
        again = await tried_since(store, 1)
        await store.enqueue([with_end(delivery.id, Change.BURY, again)])
        assert (await record_of(store, delivery.id)).attempts == (done, again)
        await change(store, Change.REPLAY, delivery.id)
        (replayed,) = await claim(store)
        await settle(store, replayed, Change.COMPLETE)
        assert [one.number for one in (await record_of(store, delivery.id)).attempts] == [1, 1, 2]

    async def test_an_attempt_in_the_last_second_before_it_ended_counts_as_clocks_are_not_quite_the_same(
        self, store: Store
    ) -> None:
        job_id = await job_in(store, JobState.CANCELLED)
        ended_at = (await record_of(store, job_id)).ended_at or 0.0
        await store.enqueue([with_end(job_id, Change.BURY, tried(1, ended_at=ended_at - 1.5))])
        assert await state_of(store, job_id) is JobState.CANCELLED
        await store.enqueue([with_end(job_id, Change.BURY, tried(2, ended_at=ended_at - 0.5))])
        assert await state_of(store, job_id) is _LETTER

    async def test_only_a_bury_with_something_new_does_it(self, store: Store) -> None:
        letter = await dead_letter(store)  # its attempt ends two seconds after it did
        ids = [letter, *[await job_in(store, state) for state in ENDED]]
        before, groups = await store.get(ids), await store.groups(Query())
        again = await tried_since(store)
        for job_id, old in zip(ids, before, strict=True):
            assert old is not None
            ends = [
                with_end(job_id, Change.COMPLETE, again),
                with_end(job_id, Change.DISCARD, again),
                with_end(job_id, Change.BURY),
                with_end(job_id, Change.BURY, tried(1), reason="too late"),
                with_end(job_id, Change.BURY, *old.attempts),
            ]
            assert await store.enqueue(ends) == [Enqueued(job_id, is_new=False, state=old.state)] * len(ends)
        assert await store.get(ids) == before
        assert await store.groups(Query()) == groups

    async def test_an_end_that_made_a_letter_again_can_be_sent_twice(self, store: Store) -> None:
        ids = [await job_in(store, state) for state in ENDED]
        again = await tried_since(store)
        ends = [with_end(job_id, Change.BURY, again, reason="so", keep_s=10.0) for job_id in ids]
        first = await store.enqueue(ends)
        before, stats, groups = await store.get(ids), await store.stats(), await store.groups(Query())
        assert await asyncio.to_thread(store.enqueue_now, ends) == first
        await asyncio.gather(*(store.enqueue([one, one]) for one in ends for _ in range(2)))
        assert await store.get(ids) == before
        assert list((await store.stats()).tallies) == list(stats.tallies)
        assert await store.groups(Query()) == groups

    async def test_those_who_send_it_at_once_make_one_letter_of_it(self, store: Store) -> None:
        job_id = await job_in(store, JobState.CANCELLED)
        attempts = [await tried_since(store, number, fingerprint="1:same") for number in range(1, 9)]
        ends = [with_end(job_id, Change.BURY, one) for one in attempts for _ in range(2)]
        answers = await asyncio.gather(*(store.enqueue([one]) for one in ends))
        assert {one.state for some in answers for one in some} == {_LETTER}
        record = await record_of(store, job_id)
        assert sorted(one.number for one in record.attempts) == list(range(1, 9))
        assert [(one.state, one.n) for one in (await store.stats()).tallies] == [(_LETTER, 1)]
        assert [group.count for group in await store.groups(Query())] == [1]

    async def test_a_dead_letter_with_another_failure_goes_to_its_group(self, store: Store, advance: Advance) -> None:
        stays, goes = await dead_letter(store, tenant="acme"), await dead_letter(store, tenant="acme")
        advance(HOUR_S)
        again = await tried_since(store, failure_type=FailureType.SYSTEM)
        await store.enqueue([with_end(goes, Change.BURY, again, keep_s=10.0)])
        groups = {group.fingerprint: group for group in await store.groups(Query())}
        assert {name: (group.count, sum(group.hours)) for name, group in groups.items()} == {
            "1:dead-line": (1, 1),
            "1:n9": (1, 1),
        }
        assert groups["1:n9"].last_at - groups["1:dead-line"].last_at >= HOUR_S
        assert groups["1:n9"].failure_type is FailureType.SYSTEM
        letters = {"states": (_LETTER,), "tenant": "acme"}
        assert await found_ids(store, **letters, fingerprint="1:n9") == [goes]
        assert await found_ids(store, **letters, failure_type=FailureType.NETWORK) == [stays]
        assert await n_of(store, _LETTER) == 2
        await change(store, Change.REPLAY, goes)
        assert [group.fingerprint for group in await store.groups(Query())] == ["1:dead-line"]
        advance(60.0)
        assert await store.prune(10) == 0

    async def test_it_is_kept_for_as_long_as_the_last_end_says(self, store: Store, advance: Advance) -> None:
        short, kept = ended(Change.COMPLETE, keep_s=10.0), ended(Change.COMPLETE)
        await store.enqueue([short, kept])
        again = await tried_since(store)
        await store.enqueue(
            [with_end(short.id, Change.BURY, again), with_end(kept.id, Change.BURY, again, keep_s=30.0)]
        )
        advance(20.0)
        assert await store.prune(10) == 0
        advance(20.0)
        assert await store.prune(10) == 1
        assert await state_of(store, short.id) is _LETTER
        assert [group.count for group in await store.groups(Query())] == [1]

    async def test_a_key_that_is_anothers_by_now_does_not_keep_it(self, store: Store, advance: Advance) -> None:
        lost, held = (ended(Change.COMPLETE, idempotency_key=key) for key in "lh")
        await store.enqueue([lost, held])
        advance(KEY_WINDOW_S + 10.0)
        (holder,) = await store.enqueue([new_job(idempotency_key="l")])
        again = await tried_since(store)
        await store.enqueue([with_end(one.id, Change.BURY, again, keep_s=10.0) for one in (lost, held)])
        assert [one.is_new for one in await store.enqueue([new_job(idempotency_key=key) for key in "lh"])] == [
            False
        ] * 2
        advance(60.0)
        assert await store.prune(10) == 1
        assert await state_of(store, lost.id) is None
        assert (await store.enqueue([new_job(idempotency_key="l")]))[0].id == holder.id

    async def test_what_has_ended_more_than_once_is_pruned_once(self, store: Store, advance: Advance) -> None:
        again = await tried_since(store)
        ends = [ended(Change.COMPLETE, keep_s=10.0) for _ in range(3)]
        buried = [with_end(one.id, Change.BURY, again, keep_s=10.0) for one in ends]
        await store.enqueue([ends[0], buried[0], *ends[1:]])
        await store.enqueue(buried)
        await change(store, Change.REPLAY, ends[2].id)
        await store.enqueue([with_end(ends[2].id, Change.DISCARD, keep_s=10.0)])
        advance(60.0)
        assert await store.prune(100) == 3
        assert await store.prune(100) == 0
        assert [one for one in (await store.stats()).tallies if one.n] == []
        assert await store.groups(Query()) == []

    async def test_it_is_replayed_as_any_other_letter_but_not_twice_by_one_replay(self, store: Store) -> None:
        job_id = await dead_letter(store)
        await change(store, Change.REPLAY, job_id, replay="r1")
        (delivery,) = await claim(store)
        await settle(store, delivery, Change.COMPLETE)
        await store.enqueue([with_end(job_id, Change.BURY, await tried_since(store))])
        assert not await settle(store, delivery, Change.COMPLETE)
        assert [one.is_done for one in await change(store, Change.REPLAY, job_id, replay="r1")] == [False]
        assert [one.is_done for one in await change(store, Change.REPLAY, job_id, replay="r2")] == [True]
        (again,) = await claim(store)
        assert (again.id, again.attempt, again.retries, again.is_suspect) == (job_id, 10, 0, False)
        assert (await record_of(store, job_id)).replays == 2

    @pytest.mark.parametrize("delay_s", [0.0, 60.0])
    async def test_what_was_cancelled_in_its_place_stands_in_line_once_when_it_comes_back(
        self, store: Store, advance: Advance, delay_s: float
    ) -> None:
        (job_id,) = await enqueue(store, new_job(delay_s=delay_s))
        await change(store, Change.CANCEL, job_id)
        await store.enqueue([with_end(job_id, Change.BURY, await tried_since(store))])
        await change(store, Change.REPLAY, job_id, delay_s=HOUR_S)
        advance(2 * delay_s)
        assert await claim(store) == []
        advance(HOUR_S)
        (delivery,) = await claim(store)
        await settle(store, delivery, Change.RETRY, delay_s=HOUR_S)
        assert await claim(store) == []

    async def test_a_batch_is_as_if_its_ends_came_one_after_the_other(self, store: Store) -> None:
        job = ended(Change.COMPLETE, tried(1))
        first, second = await tried_since(store, 2), await tried_since(store, 3)
        ends = [
            job,
            with_end(job.id, Change.BURY, tried(2)),
            with_end(job.id, Change.BURY, tried(1), first),
            with_end(job.id, Change.COMPLETE, second),
            with_end(job.id, Change.BURY, first, second),
            job,
        ]
        answers = await store.enqueue(ends)
        assert [(one.is_new, one.state) for one in answers] == [
            (True, JobState.COMPLETED),
            (False, JobState.COMPLETED),
            *[(False, _LETTER)] * 4,
        ]
        record = await record_of(store, job.id)
        assert (record.state, record.attempts) == (_LETTER, (tried(1), first, second))
        assert [(one.state, one.n) for one in (await store.stats()).tallies] == [(_LETTER, 1)]
        assert [(group.fingerprint, group.count) for group in await store.groups(Query())] == [("1:n3", 1)]
