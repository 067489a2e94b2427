# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises about ids that are not made of the time: any UUID will do, in any order."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final
from uuid import UUID

from msgspec import structs

from holdfast.ports import Store
from holdfast.testing.store_suite.steps import (
    bury,
    change,
    claim,
    claimed_ids,
    complete,
    found_ids,
    new_job,
    pages,
    record_of,
    settle,
    state_of,
)
from holdfast.types import Change, JobState, NewJob

_SEED: Final = "pages"
_FIRST: Final = "00000000-0000-8000-8000-000000000000"
_LAST: Final = "ffffffff-ffff-8fff-bfff-ffffffffffff"


def digest_id(name: str) -> str:
    """A UUID of version 8, made of a name: of two names, either may come first."""
    bits = int.from_bytes(blake2b(f"{_SEED} {name}".encode(), digest_size=16).digest())
    bits = bits & ~(0xF << 76) & ~(0x3 << 62) | 8 << 76 | 2 << 62
    return str(UUID(int=bits))


def digest_jobs(first: int, last: int, **options: object) -> list[NewJob]:
    """Jobs of these numbers, each with the id that is its own."""
    return [structs.replace(new_job(), id=digest_id(str(n)), **options) for n in range(first, last)]


class AnyIdSuite:
    """The id says nothing about the order."""

    async def test_jobs_are_claimed_and_found_by_when_they_were_enqueued(self, store: Store) -> None:
        jobs = [*digest_jobs(0, 40), new_job(), *digest_jobs(40, 60)]
        ids = [job.id for job in jobs]
        assert ids != sorted(ids)
        for start in range(0, len(jobs), 7):
            await store.enqueue(jobs[start : start + 7])
        assert await found_ids(store) == ids[::-1]
        assert await found_ids(store, limit=4) == ids[::-1]
        assert await claimed_ids(store) == ids

    async def test_the_first_and_the_last_of_all_ids_are_ids(self, store: Store) -> None:
        await store.enqueue([structs.replace(new_job(), id=one) for one in (_LAST, _FIRST)])
        assert await found_ids(store) == [_FIRST, _LAST]
        delivery, other = await claim(store)
        assert (delivery.id, other.id) == (_LAST, _FIRST)
        await settle(store, delivery, Change.COMPLETE, result=b"1")
        assert (await record_of(store, _LAST)).result == b"1"
        assert await state_of(store, _FIRST) is JobState.RUNNING

    async def test_a_search_by_owner_state_and_queue_walks_by_age(self, store: Store) -> None:
        jobs = digest_jobs(0, 30, queue="pages", project="example.org")
        others = digest_jobs(30, 60, project="example.com")
        for pair in zip(jobs, others, strict=True):
            await store.enqueue(pair)
        newest = [job.id for job in reversed(jobs)]
        assert await found_ids(store, project="example.org", limit=8) == newest
        assert await found_ids(store, queue="pages", limit=8) == newest
        assert await found_ids(store, queue="pages", states=(JobState.QUEUED,), limit=8) == newest
        cut = await pages(store, project="example.org", limit=8)
        assert [len(page.items) for page in cut][:3] == [8, 8, 8]

    async def test_one_that_is_known_is_not_new_and_its_state_is_told(self, store: Store) -> None:
        jobs = digest_jobs(0, 6)
        await store.enqueue(jobs[:5])
        done, letter, running = await claim(store, limit=3)
        await complete(store, [done])
        await bury(store, letter)
        await change(store, Change.CANCEL, jobs[3].id)
        assert running.id == jobs[2].id
        answers = await store.enqueue([structs.replace(job, payload=b'{"again":1}') for job in reversed(jobs)])
        assert [(one.id, one.is_new, one.state) for one in answers] == [
            (jobs[5].id, True, JobState.QUEUED),
            (jobs[4].id, False, JobState.QUEUED),
            (jobs[3].id, False, JobState.CANCELLED),
            (jobs[2].id, False, JobState.RUNNING),
            (jobs[1].id, False, JobState.DEAD_LETTER),
            (jobs[0].id, False, JobState.COMPLETED),
        ]
        assert [(await record_of(store, job.id)).payload for job in jobs] == [*[b"{}"] * 5, b'{"again":1}']
        assert await claimed_ids(store) == [jobs[4].id, jobs[5].id]

    async def test_one_that_comes_twice_in_a_batch_is_new_once(self, store: Store) -> None:
        one, two = digest_jobs(0, 2)
        answers = await store.enqueue([one, two, one, structs.replace(two, payload=b"[]"), one])
        assert [answer.is_new for answer in answers] == [True, True, False, False, False]
        assert await claimed_ids(store) == [one.id, two.id]

    async def test_batches_of_which_most_are_known_add_the_others_in_order(self, store: Store) -> None:
        jobs = digest_jobs(0, 120)
        for end in range(20, 121, 10):
            batch = jobs[end - 20 : end]
            answers = await store.enqueue(batch)
            new = batch if end == 20 else batch[10:]
            assert [job.id for job, answer in zip(batch, answers, strict=True) if answer.is_new] == [
                job.id for job in new
            ]
        assert [answer.is_new for answer in await store.enqueue(jobs)] == [False] * 120
        tallies = (await store.stats()).tallies
        assert [(tally.state, tally.n) for tally in tallies] == [(JobState.QUEUED, 120)]
        assert await found_ids(store) == [job.id for job in reversed(jobs)]
        assert await claimed_ids(store, limit=200) == [job.id for job in jobs]

    async def test_one_that_was_removed_is_new_again_and_the_newest(self, store: Store) -> None:
        jobs = digest_jobs(0, 3)
        ids = [job.id for job in jobs]
        await store.enqueue(jobs)
        await change(store, Change.CANCEL, ids[0])
        await change(store, Change.REMOVE, ids[0])
        (answer,) = await store.enqueue(jobs[:1])
        assert answer.is_new
        assert await found_ids(store) == [ids[0], ids[2], ids[1]]
        assert await claimed_ids(store) == [ids[1], ids[2], ids[0]]
