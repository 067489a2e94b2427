# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises about itself: news, transactions, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager

import pytest

from holdfast.clock import new_token
from holdfast.errors import LeaseLost, StoreError
from holdfast.ports import Claim, Count, Delivery, Exchange, Note, Settlement, Store, Transaction, ValueChange
from holdfast.testing.store_suite.steps import (
    beat,
    change,
    claim,
    dead_letter,
    enqueue,
    new_job,
    record_of,
    settle,
    start,
    state_of,
)
from holdfast.types import Change, JobState

_PROMPTLY_S = 10.0
_LONG_S = 300.0


def _need_transactions(store: Store) -> None:
    if not store.capabilities.has_transactions:
        pytest.skip("this store has no transactions")


class WaitSuite:
    """Those who wait are told."""

    async def test_an_enqueued_job_is_news(self, store: Store) -> None:
        async def enqueue_one() -> None:
            await enqueue(store)

        await self._check_news(store, enqueue_one)

    async def test_a_job_that_another_thread_enqueues_is_news(self, store: Store) -> None:
        async def enqueue_in_a_thread() -> None:
            await asyncio.to_thread(store.enqueue_now, [new_job()])

        await self._check_news(store, enqueue_in_a_thread)

    async def test_a_released_job_is_news(self, store: Store) -> None:
        delivery = await start(store)

        async def release() -> None:
            await settle(store, delivery, Change.RELEASE)

        await self._check_news(store, release)

    async def test_a_replayed_letter_is_news(self, store: Store) -> None:
        job_id = await dead_letter(store)

        async def replay() -> None:
            await change(store, Change.REPLAY, job_id)

        await self._check_news(store, replay)

    async def test_a_changed_value_is_news(self, store: Store) -> None:
        async def change_a_value() -> None:
            await store.exchange(Exchange(changes=[ValueChange("k", 0, b"1")]))

        await self._check_news(store, change_a_value)

    async def test_everybody_who_waits_is_told(self, store: Store) -> None:
        await claim(store)
        waiting = [asyncio.create_task(store.wait(_LONG_S)) for _ in range(3)]
        await asyncio.sleep(0)  # noqa: TID251 - lets them begin
        await enqueue(store)
        async with asyncio.timeout(_PROMPTLY_S):
            await asyncio.gather(*waiting)

    async def test_news_between_an_idle_claim_and_the_wait_is_not_lost(self, store: Store) -> None:
        assert await claim(store) == []
        await enqueue(store)
        async with asyncio.timeout(_PROMPTLY_S):
            await store.wait(_LONG_S)

    async def test_without_news_the_wait_ends_by_itself(self, store: Store) -> None:
        async with asyncio.timeout(_PROMPTLY_S):
            await store.wait(0.001)
            await store.wait(0.0)

    async def _check_news(self, store: Store, happen: Callable[[], Awaitable[None]]) -> None:
        await claim(store, queues=("idle",))
        waiting = asyncio.create_task(store.wait(_LONG_S))
        await asyncio.sleep(0)  # noqa: TID251 - lets it begin
        await happen()
        async with asyncio.timeout(_PROMPTLY_S):
            await waiting


class TransactionSuite:
    """Writes of a job that commit with it, where the store has a database of its own."""

    async def test_a_store_without_transactions_says_so(self, store: Store) -> None:
        if store.capabilities.has_transactions:
            pytest.skip("this store has transactions")
        delivery = await start(store)
        with pytest.raises(StoreError), self._transaction(store, delivery):
            pass
        assert await state_of(store, delivery.id) is JobState.RUNNING

    async def test_leaving_the_block_completes_the_job_with_its_writes(self, store: Store) -> None:
        _need_transactions(store)
        delivery = await start(store)
        await store.note(Note(id=delivery.id, token=delivery.token, checkpoint=b"1"))
        await asyncio.to_thread(self._write, store, delivery)
        record = await record_of(store, delivery.id)
        assert (record.state, record.result, record.notes) == (JobState.COMPLETED, b'"written"', None)
        assert await self._rows(store) == [(1,)]

    async def test_a_block_without_a_write_completes_the_job(self, store: Store) -> None:
        _need_transactions(store)
        assert await self._rows_of(store, "SELECT 1") == [(1,)]

    async def test_an_error_in_the_block_undoes_everything(self, store: Store) -> None:
        _need_transactions(store)
        await asyncio.to_thread(self._write, store, await start(store))
        delivery = await start(store)

        def fail() -> None:
            with self._transaction(store, delivery) as tx:
                tx.execute("INSERT INTO written VALUES (2)")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(fail)
        assert await state_of(store, delivery.id) is JobState.RUNNING
        assert await settle(store, delivery, Change.RETRY, delay_s=1000)
        assert await self._rows(store) == [(1,)]

    async def test_a_lost_lease_undoes_everything(self, store: Store) -> None:
        _need_transactions(store)
        await asyncio.to_thread(self._write, store, await start(store))
        delivery = await start(store)
        await change(store, Change.CANCEL, delivery.id)

        def write_late() -> None:
            with self._transaction(store, delivery) as tx:
                tx.executemany("INSERT INTO written VALUES (2)", [(), ()])

        with pytest.raises(LeaseLost):
            await asyncio.to_thread(write_late)
        assert await state_of(store, delivery.id) is JobState.CANCELLED
        assert await self._rows(store) == [(1,)]

    async def test_what_a_block_counts_is_counted_when_it_completes_the_job_and_only_then(self, store: Store) -> None:
        _need_transactions(store)
        done, failed, lost = await start(store), await start(store), await start(store)
        await change(store, Change.CANCEL, lost.id)
        counts = [Count(0, "greet", "completed", 1), Count(7, "greet", "completed", 1)]

        def complete(delivery: Delivery, error: Exception | None = None) -> None:
            with self._transaction(store, delivery, counts):
                if error is not None:
                    raise error

        await asyncio.to_thread(complete, done)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(complete, failed, ZeroDivisionError())
        for delivery in (lost, done):  # taken from it, and completed before
            with pytest.raises(LeaseLost):
                await asyncio.to_thread(complete, delivery)
        stats = await store.stats(since_minute=0)
        assert [*stats.totals, *stats.counts] == counts

    def _transaction(
        self, store: Store, delivery: Delivery, counts: Sequence[Count] = ()
    ) -> AbstractContextManager[Transaction]:
        settlement = Settlement(id=delivery.id, token=delivery.token, change=Change.COMPLETE, result=b'"written"')
        return store.transaction(settlement, 15.0, counts)

    def _write(self, store: Store, delivery: Delivery) -> None:
        with self._transaction(store, delivery) as tx:
            tx.execute("CREATE TABLE written (n INTEGER)")
            tx.execute("INSERT INTO written VALUES (1)")

    async def _rows(self, store: Store) -> list[tuple[object, ...]]:
        return await self._rows_of(store, "SELECT n FROM written ORDER BY n")

    async def _rows_of(self, store: Store, sql: str) -> list[tuple[object, ...]]:
        delivery = await start(store)

        def read() -> list[tuple[object, ...]]:
            with self._transaction(store, delivery) as tx:
                return list(tx.execute(sql))

        rows = await asyncio.to_thread(read)
        assert await state_of(store, delivery.id) is JobState.COMPLETED
        return rows


class LifeSuite:
    """What it is, and its end."""

    async def test_a_store_says_what_it_is(self, store: Store) -> None:
        capabilities = store.capabilities
        assert capabilities.name
        assert capabilities.location
        assert capabilities == store.capabilities

    async def test_a_store_may_be_closed_twice(self, store: Store) -> None:
        await enqueue(store)
        await store.close()
        await store.close()

    async def test_a_store_that_was_never_used_may_be_closed(self, store: Store) -> None:
        await store.close()

    async def test_producers_and_workers_side_by_side_run_each_job_once(self, store: Store) -> None:
        jobs = [new_job() for _ in range(200)]
        done: list[str] = []

        async def produce() -> None:
            for n in range(0, len(jobs), 10):
                await asyncio.to_thread(store.enqueue_now, jobs[n : n + 10])

        async def work(worker: str) -> None:
            settlements: list[Settlement] = []
            await beat(store, worker)
            while len(done) < len(jobs):
                token = new_token()
                wish = Claim(worker=worker, token=token, limit=7)
                answer = await store.exchange(Exchange(settlements=settlements, claim=wish))
                assert all(answer.settled)
                done.extend(settlement.id for settlement in settlements)
                settlements = [
                    Settlement(id=one.id, token=token, change=Change.COMPLETE, started_at=one.claimed_at)
                    for one in answer.deliveries
                ]
                await asyncio.sleep(0)  # noqa: TID251 - lets the others run

        async with asyncio.timeout(60):
            await asyncio.gather(produce(), work("w1"), work("w2"), work("w3"))
        assert sorted(done) == sorted(job.id for job in jobs)
        (tally,) = (await store.stats()).tallies
        assert (tally.state, tally.n) == (JobState.COMPLETED, 200)
        records = await store.get([job.id for job in jobs])
        assert {record.attempt for record in records if record} == {1}
