# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises about the jobs of workers that die."""

from __future__ import annotations

import pytest

from holdfast.clock import new_token
from holdfast.ports import Note, Store, WorkerRecord
from holdfast.testing.store_suite.steps import (
    LEASE_S,
    SETTLING,
    Advance,
    beat,
    change,
    claim,
    claimed_ids,
    enqueue,
    found_ids,
    is_same,
    new_job,
    orphan,
    reclaim,
    record_of,
    settle,
    start,
    state_of,
)
from holdfast.types import Change, JobState


class ReclaimSuite:
    """The jobs of the dead are judged by the living, and each death is counted once."""

    async def test_nothing_is_reclaimed_while_the_lease_lasts(self, store: Store, advance: Advance) -> None:
        delivery = await start(store)
        advance(LEASE_S - 30)
        assert await reclaim(store) == []
        assert await settle(store, delivery, Change.COMPLETE) is True

    async def test_whose_own_lease_is_over_gives_nobody_up(self, store: Store, advance: Advance) -> None:
        delivery = await start(store)
        await beat(store, "w2")
        advance(LEASE_S + 30)  # the store stood still for both, and what w2 had asked before comes first
        assert await store.reclaim("w2", new_token(), 10) == []
        assert await settle(store, delivery, Change.COMPLETE) is True
        assert await beat(store, "w1"), "it was given up"

    async def test_whose_own_lease_is_over_still_takes_the_jobs_of_those_who_left(
        self, store: Store, advance: Advance
    ) -> None:
        delivery = await start(store)
        await beat(store, "w2")
        await beat(store, "w1", lease_s=0)
        advance(LEASE_S + 30)
        assert [one.id for one in await store.reclaim("w2", new_token(), 10)] == [delivery.id]

    async def test_whose_own_lease_is_over_gives_up_the_silent_once_it_is_renewed(
        self, store: Store, advance: Advance
    ) -> None:
        delivery = await start(store)
        await beat(store, "w2")
        advance(LEASE_S + 30)
        assert await store.reclaim("w2", new_token(), 10) == []
        assert [one.id for one in await reclaim(store, "w2")] == [delivery.id]

    async def test_an_orphan_says_all_about_its_attempt(self, store: Store, advance: Advance) -> None:
        delivery = await start(store, payload=b"[1]", tenant="acme", trace="t")
        await settle(store, delivery, Change.RETRY, elapsed_s=4.0)
        (delivery,) = await claim(store)
        advance(LEASE_S + 30)
        token = new_token()
        await beat(store, "w2")
        (orphan_,) = await store.reclaim("w2", token, 10)
        assert (orphan_.id, orphan_.token, orphan_.payload) == (delivery.id, token, b"[1]")
        assert (orphan_.attempt, orphan_.retries, orphan_.elapsed_s) == (2, 1, 4.0)
        assert (orphan_.tenant, orphan_.trace) == ("acme", "t")
        assert (orphan_.worker, orphan_.orphaned, orphan_.is_alone, orphan_.blame) == ("w1", 1, False, "")
        assert is_same(orphan_.claimed_at, delivery.claimed_at)

    async def test_a_reclaimed_job_is_still_running_and_nothing_was_counted(
        self, store: Store, advance: Advance
    ) -> None:
        await orphan(store, advance)
        (orphan_,) = await reclaim(store)
        record = await record_of(store, orphan_.id)
        assert (record.state, record.attempt, record.attempts) == (JobState.RUNNING, 1, ())
        assert await claim(store, worker="w3") == []

    @pytest.mark.parametrize("settling", SETTLING)
    async def test_the_old_token_is_fenced_off(self, store: Store, advance: Advance, settling: Change) -> None:
        delivery = await orphan(store, advance)
        (orphan_,) = await reclaim(store)
        assert await settle(store, delivery, settling) is False
        assert await state_of(store, delivery.id) is JobState.RUNNING
        assert await settle(store, orphan_, settling) is True

    async def test_the_old_token_cannot_note(self, store: Store, advance: Advance) -> None:
        delivery = await orphan(store, advance)
        await reclaim(store)
        assert await store.note(Note(id=delivery.id, token=delivery.token, progress=0.5)) is False

    async def test_a_job_that_was_claimed_alone_says_so(self, store: Store, advance: Advance) -> None:
        await orphan(store, advance, is_alone=True)
        (orphan_,) = await reclaim(store)
        assert orphan_.is_alone

    async def test_a_job_that_was_blamed_counts_as_alone(self, store: Store, advance: Advance) -> None:
        delivery = await start(store)
        await store.note(Note(id=delivery.id, token=delivery.token, blame="out of memory"))
        advance(LEASE_S + 30)
        (orphan_,) = await reclaim(store)
        assert (orphan_.is_alone, orphan_.blame) == (True, "out of memory")

    async def test_blame_is_for_one_attempt(self, store: Store, advance: Advance) -> None:
        delivery = await start(store)
        await store.note(Note(id=delivery.id, token=delivery.token, blame="out of memory"))
        await settle(store, delivery, Change.RETRY)
        (again,) = await claim(store)
        assert (again.is_alone, again.blame) == (False, "")
        advance(LEASE_S + 30)
        (orphan_,) = await reclaim(store)
        assert (orphan_.is_alone, orphan_.blame) == (False, "")

    async def test_having_run_alone_is_for_one_attempt(self, store: Store, advance: Advance) -> None:
        delivery = await start(store, is_alone=True)
        assert not delivery.is_alone, "it is no orphan"
        await settle(store, delivery, Change.RETRY)
        await claim(store)
        advance(LEASE_S + 30)
        (orphan_,) = await reclaim(store)
        assert not orphan_.is_alone

    async def test_the_death_of_the_reclaimer_leaves_an_orphan_as_it_was(self, store: Store, advance: Advance) -> None:
        delivery = await start(store)
        await store.note(Note(id=delivery.id, token=delivery.token, blame="segfault"))
        advance(LEASE_S + 30)
        (first,) = await reclaim(store, "w2")
        advance(LEASE_S + 30)
        (second,) = await reclaim(store, "w3")
        assert second.token != first.token
        assert (second.worker, second.orphaned) == ("w1", 1), "w1 died while it ran, w2 only judged"
        assert (second.is_alone, second.blame) == (True, "segfault")
        assert (second.attempt, second.retries) == (first.attempt, first.retries)
        assert is_same(second.claimed_at, first.claimed_at)
        assert await settle(store, first, Change.COMPLETE) is False
        assert await settle(store, second, Change.COMPLETE) is True

    async def test_every_death_of_a_worker_that_ran_it_is_counted(self, store: Store, advance: Advance) -> None:
        await orphan(store, advance)
        for n in range(1, 4):
            (orphan_,) = await reclaim(store, f"judge-{n}")
            assert orphan_.orphaned == n
            await settle(store, orphan_, Change.RELEASE, is_refunded=True, is_suspect=True)
            (again,) = await claim(store, worker=f"runner-{n}", is_alone=True)
            assert (again.orphaned, again.retries, again.is_suspect) == (n, 0, True)
            advance(LEASE_S + 30)

    @pytest.mark.parametrize("settling", [Change.RETRY, Change.PARK])
    async def test_an_attempt_that_ends_by_itself_clears_the_count_of_deaths(
        self, store: Store, advance: Advance, settling: Change
    ) -> None:
        await orphan(store, advance)
        (orphan_,) = await reclaim(store)
        await settle(store, orphan_, Change.RELEASE, is_refunded=True, is_suspect=True)
        (again,) = await claim(store, worker="w3")
        await settle(store, again, settling)
        (again,) = await claim(store, worker="w3")
        assert (again.orphaned, again.is_suspect) == (0, False)

    async def test_a_replay_clears_the_count_of_deaths(self, store: Store, advance: Advance) -> None:
        await orphan(store, advance)
        (orphan_,) = await reclaim(store)
        await settle(store, orphan_, Change.BURY)
        await change(store, Change.REPLAY, orphan_.id)
        (again,) = await claim(store, worker="w3")
        assert (again.orphaned, again.is_suspect, again.worker) == (0, False, "")

    async def test_a_released_suspect_says_so_until_it_is_settled(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.RELEASE, is_suspect=True)
        (suspect,) = await claim(store)
        assert suspect.is_suspect
        await settle(store, suspect, Change.RETRY)
        (again,) = await claim(store)
        assert not again.is_suspect

    async def test_a_suspect_that_fails_may_stay_one(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.RETRY, is_suspect=True)
        (again,) = await claim(store)
        assert again.is_suspect

    async def test_a_parked_job_is_no_suspect(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.PARK, is_suspect=True)
        (again,) = await claim(store)
        assert not again.is_suspect

    async def test_a_plain_release_makes_no_suspect(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.RELEASE)
        (again,) = await claim(store)
        assert not again.is_suspect

    async def test_reclaiming_keeps_to_its_limit_and_leaves_the_rest(self, store: Store, advance: Advance) -> None:
        ids = await enqueue(store, *(new_job() for _ in range(5)))
        await claim(store)
        advance(LEASE_S + 30)
        first = await reclaim(store, "w2", limit=2)
        rest = await reclaim(store, "w2", limit=10)
        assert (len(first), len(rest)) == (2, 3)
        assert sorted(one.id for one in [*first, *rest]) == sorted(ids)
        assert await reclaim(store, "w2") == []

    async def test_a_reclaim_that_is_sent_again_answers_the_same(self, store: Store, advance: Advance) -> None:
        await orphan(store, advance)
        await beat(store, "w2")
        token = new_token()
        first = await store.reclaim("w2", token, 10)
        assert len(first) == 1
        assert await store.reclaim("w2", token, 10) == first

    async def test_a_stranger_reclaims_nothing(self, store: Store, advance: Advance) -> None:
        await orphan(store, advance)
        assert await store.reclaim("stranger", new_token(), 10) == []
        assert len(await reclaim(store)) == 1

    async def test_a_worker_does_not_reclaim_its_own_jobs(self, store: Store, advance: Advance) -> None:
        delivery = await orphan(store, advance)
        assert await reclaim(store, "w1") == []
        assert await settle(store, delivery, Change.COMPLETE) is True

    async def test_a_settled_job_is_nobodys_orphan(self, store: Store, advance: Advance) -> None:
        await enqueue(store, *(new_job() for _ in range(len(SETTLING))))
        for delivery, settling in zip(await claim(store), SETTLING, strict=True):
            await settle(store, delivery, settling, delay_s=1000)
        advance(LEASE_S + 30)
        assert await reclaim(store) == []

    async def test_a_cancelled_job_is_nobodys_orphan(self, store: Store, advance: Advance) -> None:
        delivery = await orphan(store, advance)
        await change(store, Change.CANCEL, delivery.id)
        assert await reclaim(store) == []

    async def test_an_orphan_that_is_cancelled_before_anybody_judged_it_is_nobodys(
        self, store: Store, advance: Advance
    ) -> None:
        await enqueue(store, new_job(), new_job())
        await claim(store)
        advance(LEASE_S + 30)
        (judged,) = await reclaim(store, limit=1)
        (other,) = [job_id for job_id in await found_ids(store) if job_id != judged.id]
        assert (await change(store, Change.CANCEL, other))[0].is_done
        assert await reclaim(store) == []
        assert await state_of(store, other) is JobState.CANCELLED

    async def test_a_reclaimed_job_that_is_cancelled_is_told_to_the_reclaimer(
        self, store: Store, advance: Advance
    ) -> None:
        delivery = await orphan(store, advance)
        (orphan_,) = await reclaim(store, "w2")
        await change(store, Change.CANCEL, delivery.id)
        assert await settle(store, orphan_, Change.RELEASE) is False
        assert (await store.heartbeat(WorkerRecord(id="w2", lease_s=LEASE_S))).cancelled == (delivery.id,)

    async def test_an_orphan_goes_back_and_runs_again(self, store: Store, advance: Advance) -> None:
        delivery = await orphan(store, advance)
        (orphan_,) = await reclaim(store)
        await settle(store, orphan_, Change.RELEASE, is_refunded=True, is_suspect=True)
        assert await claimed_ids(store, worker="w2") == [delivery.id]
