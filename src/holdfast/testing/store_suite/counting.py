# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises about counts: they add up, and those with a name are added once."""

from __future__ import annotations

import asyncio

from holdfast.ports import Count, Exchange, Settlement, Store
from holdfast.testing.store_suite.steps import HOUR_S, Advance, beat, enqueue, start
from holdfast.types import Change


class CountSuite:
    """Counts by the minute add up, and so do totals."""

    async def test_counts_add_up(self, store: Store) -> None:
        await store.exchange(Exchange(counts=[Count(100, "greet", "completed", 2), Count(100, "greet", "failed", 1)]))
        await store.exchange(
            Exchange(counts=[Count(100, "greet", "completed", 3), Count(100, "leave", "completed", 1)])
        )
        counts = (await store.stats(since_minute=0)).counts
        sums = {(count.minute, count.task, count.name): count.n for count in counts}
        assert len(sums) == len(counts)
        assert sums == {(100, "greet", "completed"): 5, (100, "greet", "failed"): 1, (100, "leave", "completed"): 1}

    async def test_counts_come_from_the_asked_minute_on_oldest_first(self, store: Store) -> None:
        minutes = [103, 101, 102, 104]
        await store.exchange(Exchange(counts=[Count(minute, "greet", "completed", minute) for minute in minutes]))
        got = [(count.minute, count.n) for count in (await store.stats(since_minute=102)).counts]
        assert got == [(102, 102), (103, 103), (104, 104)]
        assert list((await store.stats()).counts) == []

    async def test_one_of_a_batch_counted_twice_is_two(self, store: Store) -> None:
        await enqueue(store)
        await store.exchange(Exchange(counts=[Count(7, "greet", "retried", 1), Count(7, "greet", "retried", 1)]))
        assert [count.n for count in (await store.stats(since_minute=7)).counts] == [2]

    async def test_totals_add_up_beside_the_minutes_and_are_always_told(self, store: Store) -> None:
        await store.exchange(Exchange(counts=[Count(0, "leave", "completed", 1), Count(0, "greet", "run_le:3", 2)]))
        await store.exchange(Exchange(counts=[Count(0, "greet", "run_le:3", 5), Count(9, "greet", "completed", 4)]))
        totals = [Count(0, "greet", "run_le:3", 7), Count(0, "leave", "completed", 1)]
        for since in (None, 0, 9, 10):
            stats = await store.stats(since_minute=since)
            assert list(stats.totals) == totals
            assert [one.minute for one in stats.counts] == ([9] if since in (0, 9) else [])

    async def test_totals_outlive_the_minutes(self, store: Store, advance: Advance) -> None:
        minute = int((await store.exchange(Exchange())).now // 60)
        await store.exchange(Exchange(counts=[Count(0, "greet", "completed", 1), Count(minute, "greet", "failed", 1)]))
        advance(9 * 24 * HOUR_S)
        await store.prune(100)
        stats = await store.stats(since_minute=0)
        assert (list(stats.counts), list(stats.totals)) == ([], [Count(0, "greet", "completed", 1)])


class CountOnceSuite:
    """Counts with a name are added once, however often they are sent."""

    async def test_what_is_sent_twice_under_one_name_counts_once(self, store: Store) -> None:
        await beat(store)
        for _ in range(3):
            await _count(store, ("w1", 1), 2)
        assert await _counted(store) == (2, 2)

    async def test_the_next_number_counts_and_so_does_one_after_a_gap(self, store: Store) -> None:
        await beat(store)
        for number in (1, 2, 2, 7, 8):
            await _count(store, ("w1", number), 1)
        assert await _counted(store) == (4, 4)

    async def test_an_earlier_number_that_comes_late_counts_no_more(self, store: Store) -> None:
        await beat(store)
        for number in (1, 2, 1, 2):
            await _count(store, ("w1", number), 1)
        assert await _counted(store) == (2, 2)

    async def test_the_same_number_of_another_worker_counts(self, store: Store) -> None:
        for worker in ("w1", "w2", "w' \U0001f980 %s"):
            await beat(store, worker)
            await _count(store, (worker, 2**40), 1)
            await _count(store, (worker, 2**40), 1)
        assert await _counted(store) == (3, 3)

    async def test_without_a_name_all_that_is_sent_counts(self, store: Store) -> None:
        await beat(store)
        await _count(store, ("w1", 5), 1)
        for _ in range(2):
            await _count(store, None, 1)
        assert await _counted(store) == (3, 3)

    async def test_what_was_counted_can_be_taken_back(self, store: Store) -> None:
        await beat(store)
        await _count(store, ("w1", 1), 3)
        await _count(store, ("w1", 2), -1)
        await _count(store, ("w1", 2), -1)
        assert await _counted(store) == (2, 2)

    async def test_only_the_counts_are_held_back_and_not_what_they_come_with(self, store: Store) -> None:
        first, second = await start(store), await start(store)
        for delivery in (first, second):
            done = Settlement(id=delivery.id, token=delivery.token, change=Change.COMPLETE)
            counts = [Count(0, "greet", "completed", 1)]
            reply = await store.exchange(Exchange(settlements=[done], counts=counts, counted=("w1", 1)))
            assert list(reply.settled) == [True]
        assert [count.n for count in (await store.stats()).totals] == [1]

    async def test_one_that_is_sent_twice_at_the_same_time_counts_once(self, store: Store) -> None:
        await beat(store)
        await asyncio.gather(*(_count(store, ("w1", 1), 1) for _ in range(8)))
        assert await _counted(store) == (1, 1)

    async def test_a_worker_that_is_gone_is_remembered_for_a_while(self, store: Store, advance: Advance) -> None:
        await beat(store)
        await _count(store, ("w1", 1), 1)
        await beat(store, lease_s=0.0)
        for _ in range(3):
            advance(HOUR_S)
            await store.prune(100)
            await _count(store, ("w1", 1), 1)
        assert [one.n for one in (await store.stats()).totals] == [1]


async def _count(store: Store, name: tuple[str, int] | None, n: int) -> None:
    counts = [Count(0, "greet", "completed", n), Count(100, "greet", "completed", n)]
    await store.exchange(Exchange(counts=counts, counted=name))


async def _counted(store: Store) -> tuple[int, int]:
    """In all, and in the one minute."""
    stats = await store.stats(since_minute=100)
    ((total,), (minute,)) = ([one.n for one in stats.totals], [one.n for one in stats.counts])
    return total, minute
