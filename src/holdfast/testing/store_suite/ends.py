# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises of work that comes with its end: it is like a job that ran here, and can be sent twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.errors import IllegalChange
from holdfast.ports import Enqueued, Query, Store
from holdfast.testing.store_suite.steps import (
    HOUR_S,
    KEY_WINDOW_S,
    Advance,
    change,
    claim,
    claimed_ids,
    dead_letter,
    enqueue,
    failed_attempt,
    found_ids,
    is_near,
    is_same,
    new_job,
    now_of,
    record_of,
    settle,
    start,
    state_of,
)
from holdfast.types import Attempt, Change, End, FailureType, JobState, NewJob, Severity

STATE_AFTER = {
    Change.BURY: JobState.DEAD_LETTER,
    Change.COMPLETE: JobState.COMPLETED,
    Change.DISCARD: JobState.CANCELLED,
}
BEGUN_AT = 1_700_000_000.25
"""When somebody else began to run what ended: long before the test."""
each_end = pytest.mark.parametrize("end_change", sorted(STATE_AFTER))


def tried(number: int, **options: Any) -> Attempt:
    """An attempt that failed somewhere else: one a minute, of two seconds."""
    started_at = BEGUN_AT + 60.0 * number
    facts: dict[str, Any] = {
        "number": number,
        "started_at": started_at,
        "ended_at": started_at + 2.0,
        "worker": "elsewhere",
        "outcome": Change.RETRY,
        "failure_type": FailureType.NETWORK,
        "severity": Severity.MEDIUM,
        "error_name": "ConnectionError",
        "message": f"no answer to {number}",
        "traceback": "Traceback …",
        "fingerprint": f"1:n{number}",
    }
    return Attempt(**(facts | options))


def ended(end_change: Change = Change.BURY, *attempts: Attempt, reason: str = "", **options: Any) -> NewJob:
    """A job that comes with its end."""
    keep_s = options.pop("keep_s", None)
    return new_job(end=End(change=end_change, attempts=attempts, reason=reason, keep_s=keep_s), **options)


def with_end(job_id: str, end_change: Change = Change.BURY, *attempts: Attempt, **options: Any) -> NewJob:
    """The same for a job that is known already."""
    return NewJob(id=job_id, task="greet", payload=b"{}", end=End(change=end_change, attempts=attempts, **options))


async def n_of(store: Store, state: JobState) -> int:
    """How many jobs are counted in this state."""
    return sum(tally.n for tally in (await store.stats()).tallies if tally.state is state)


class NewEndSuite:
    """Work that nobody knew appears as it ended."""

    async def test_it_is_there_as_it_ended_and_never_runs(self, store: Store, advance: Advance) -> None:
        for end_change, state in STATE_AFTER.items():
            job = ended(end_change, tried(1), reason="why", payload=b"[1]", delay_s=5.0)
            assert await store.enqueue([job]) == [Enqueued(job.id, is_new=True, state=state)]
            record = await record_of(store, job.id)
            assert (record.state, record.reason, record.payload) == (state, "why", b"[1]")
            assert record.result == (b"null" if end_change is Change.COMPLETE else None)
            assert is_near(record.ended_at, await now_of(store))
        advance(HOUR_S)
        assert await claim(store) == []
        assert {one.state: one.n for one in (await store.stats()).tallies} == dict.fromkeys(STATE_AFTER.values(), 1)
        assert (await store.stats()).oldest_ready_at == {}

    async def test_its_history_is_whole_and_its_failure_is_the_last_one(self, store: Store) -> None:
        last = tried(3, outcome=Change.DISCARD, failure_type=None, severity=None, error_name="", message="")
        job = ended(Change.DISCARD, tried(1), tried(2), last)
        await store.enqueue([job])
        record = await record_of(store, job.id)
        assert record.attempts == (tried(1), tried(2), last)
        assert (record.attempt, record.worker) == (3, "elsewhere")
        assert (record.failure_type, record.severity) == (FailureType.NETWORK, Severity.MEDIUM)
        assert (record.error_name, record.message) == ("ConnectionError", "no answer to 2")
        assert record.fingerprint == "1:n2"
        assert is_same(record.first_failed_at, tried(1).ended_at)
        assert is_same(record.last_failed_at, tried(2).ended_at)
        assert is_same(record.started_at, last.started_at)

    async def test_without_attempts_it_has_none(self, store: Store) -> None:
        jobs = [ended(end_change) for end_change in STATE_AFTER]
        await store.enqueue(jobs)
        for job in jobs:
            record = await record_of(store, job.id)
            assert (record.attempts, record.attempt, record.started_at) == ((), 0, None)
            assert (record.failure_type, record.fingerprint, record.first_failed_at) == (None, "", None)

    async def test_a_completion_shows_the_attempts_that_came_with_it_and_no_other(self, store: Store) -> None:
        done = tried(2, outcome=Change.COMPLETE, failure_type=None, severity=None, fingerprint="")
        jobs = [ended(Change.COMPLETE, tried(1), done), ended(Change.COMPLETE, tried(1))]
        await store.enqueue(jobs)
        assert [(await record_of(store, job.id)).attempts for job in jobs] == [(tried(1), done), (tried(1),)]

    async def test_the_same_attempt_twice_is_one(self, store: Store) -> None:
        job = ended(Change.BURY, tried(1), tried(2), tried(1, message="again"))
        await store.enqueue([job])
        assert (await record_of(store, job.id)).attempts == (tried(1), tried(2))

    async def test_a_letter_is_found_and_counted_beside_those_of_jobs(self, store: Store) -> None:
        of_job = await dead_letter(store, tenant="acme")
        same = {"fingerprint": "1:dead-line", "message": "the line is dead"}
        job = ended(Change.BURY, tried(1, **same), reason="given up", tenant="acme", queue="mail")
        await store.enqueue([job])
        (group,) = await store.groups(Query())
        assert (group.fingerprint, group.count, group.tenants, sum(group.hours)) == ("1:dead-line", 2, ("acme",), 2)
        assert [one.count for one in await store.groups(Query(queue="mail"))] == [1]
        letters = (JobState.DEAD_LETTER,)
        assert await found_ids(store, states=letters) == [job.id, of_job]
        assert await found_ids(store, states=letters, tenant="acme", fingerprint="1:dead-line") == [job.id, of_job]
        assert await found_ids(store, queue="mail", failure_type=FailureType.NETWORK) == [job.id]
        assert await found_ids(store, text="given up") == [job.id]
        await change(store, Change.REMOVE, job.id)
        assert [one.count for one in await store.groups(Query())] == [1]

    async def test_a_replayed_letter_runs_as_any_other(self, store: Store) -> None:
        low = ended(Change.BURY, tried(1), tried(2), gates=("g",), tenant="acme", payload=b"[1]")
        high = ended(Change.BURY, tried(7), priority=9)
        await store.enqueue([low, high])
        await change(store, Change.REPLAY, low.id, high.id)
        assert await claimed_ids(store, caps={"g": 0}) == [high.id]
        (delivery,) = await claim(store)
        assert (delivery.id, delivery.payload, delivery.tenant) == (low.id, b"[1]", "acme")
        assert (delivery.attempt, delivery.retries, delivery.elapsed_s) == (3, 0, 0.0)
        assert (delivery.orphaned, delivery.is_suspect) == (0, False)
        assert await store.groups(Query()) == []
        await settle(store, delivery, Change.RETRY, attempt=failed_attempt(delivery))
        record = await record_of(store, low.id)
        assert [one.number for one in record.attempts] == [1, 2, 3]
        assert is_same(record.first_failed_at, tried(1).ended_at)
        assert await n_of(store, JobState.RETRYING) == 1

    async def test_it_is_kept_for_as_long_as_asked_and_for_as_long_as_its_key_holds(
        self, store: Store, advance: Advance
    ) -> None:
        short, keyed, kept = ended(keep_s=10.0), ended(keep_s=10.0, idempotency_key="k"), ended()
        await store.enqueue([short, keyed, kept])
        advance(60.0)
        assert await store.prune(10) == 1
        assert await state_of(store, short.id) is None
        advance(KEY_WINDOW_S)
        assert await store.prune(10) == 1
        assert await found_ids(store) == [kept.id]

    async def test_many_are_stored_together(self, store: Store) -> None:
        jobs = [ended(Change.BURY, tried(1), tried(2, fingerprint=f"1:{n % 3}")) for n in range(600)]
        assert all(answer.is_new for answer in await store.enqueue(jobs))
        assert sorted(group.count for group in await store.groups(Query())) == [200, 200, 200]
        assert await n_of(store, JobState.DEAD_LETTER) == 600
        assert await claim(store) == []

    async def test_a_change_that_is_no_end_is_refused_and_nothing_is_stored(self, store: Store) -> None:
        for no_end in set(Change) - set(STATE_AFTER):
            with pytest.raises(IllegalChange, match=no_end):
                await store.enqueue([new_job(), ended(no_end)])
        assert await found_ids(store) == []


class EndBatchSuite:
    """Jobs with and without their end, in one call."""

    async def test_a_batch_is_as_if_it_came_one_after_the_other(self, store: Store) -> None:
        plain, dead, done = new_job(), ended(Change.BURY), ended(Change.COMPLETE)
        job = new_job()
        known = await dead_letter(store)
        answers = await store.enqueue(
            [plain, job, dead, with_end(job.id), done, with_end(known, Change.COMPLETE), dead, job]
        )
        assert [(one.is_new, one.state) for one in answers] == [
            (True, JobState.QUEUED),
            (True, JobState.QUEUED),
            (True, JobState.DEAD_LETTER),
            (False, JobState.DEAD_LETTER),
            (True, JobState.COMPLETED),
            (False, JobState.DEAD_LETTER),
            (False, JobState.DEAD_LETTER),
            (False, JobState.DEAD_LETTER),
        ]
        assert await claimed_ids(store) == [plain.id]

    async def test_of_two_ends_of_one_job_the_first_counts(self, store: Store) -> None:
        job = ended(Change.COMPLETE, tried(1))
        answers = await store.enqueue([job, with_end(job.id, Change.BURY, tried(2))])
        assert [one.state for one in answers] == [JobState.COMPLETED] * 2
        assert (await record_of(store, job.id)).attempts == (tried(1),)

    async def test_a_key_that_is_held_answers_for_the_one_that_holds_it(self, store: Store) -> None:
        job = ended(Change.COMPLETE, idempotency_key="k")
        again = ended(Change.BURY, idempotency_key="k")
        held = Enqueued(job.id, is_new=False, state=JobState.COMPLETED)
        assert await store.enqueue([job, again]) == [Enqueued(job.id, state=JobState.COMPLETED), held]
        assert await store.enqueue([again]) == [held]
        assert await found_ids(store) == [job.id]

    async def test_a_job_whose_key_another_holds_does_not_end_that_one(self, store: Store) -> None:
        (holder,) = await enqueue(store, new_job(idempotency_key="k"))
        answers = await store.enqueue([ended(Change.BURY, idempotency_key="k")])
        assert answers == [Enqueued(holder, is_new=False)]
        assert await claimed_ids(store) == [holder]

    async def test_a_conflict_of_keys_stores_and_ends_nothing(self, store: Store) -> None:
        delivery = await start(store)
        await enqueue(store, new_job(idempotency_key="k", delay_s=HOUR_S))
        other = ended(Change.BURY, tried(1))
        conflict = new_job(idempotency_key="k", payload=b"[2]")
        answers = await store.enqueue([with_end(delivery.id, Change.BURY), other, conflict])
        assert [(one.is_new, one.is_conflict, one.state) for one in answers] == [
            (False, False, JobState.RUNNING),
            (False, False, JobState.QUEUED),
            (False, True, JobState.QUEUED),
        ]
        assert await state_of(store, other.id) is None
        assert await settle(store, delivery, Change.COMPLETE)

    async def test_sync_callers_get_the_same(self, store: Store) -> None:
        plain, dead = new_job(), ended(Change.BURY, tried(1))
        answers = await asyncio.to_thread(store.enqueue_now, [plain, dead, with_end(plain.id, Change.DISCARD)])
        assert [(one.is_new, one.state) for one in answers] == [
            (True, JobState.QUEUED),
            (True, JobState.DEAD_LETTER),
            (False, JobState.CANCELLED),
        ]
        assert (await record_of(store, dead.id)).attempts == (tried(1),)
        assert await claim(store) == []
