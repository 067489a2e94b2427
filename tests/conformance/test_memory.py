"""The memory store keeps every promise."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ConfigError, IllegalChange
from holdfast.policy.lifecycle import SETTLING
from holdfast.ports import Exchange, Operation, Query, Settlement
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.store_suite import Advance, StoreSuite, enqueue, new_job
from holdfast.types import Change


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def advance(store: MemoryStore) -> Advance:
    def move(seconds: float) -> None:
        store.clock_offset_s += seconds

    return move


class TestMemoryStore(StoreSuite):
    """Everything that a store promises, asked of this one."""


async def test_its_clock_is_the_given_one_and_does_not_jump_with_the_wall(clock: ManualClock) -> None:
    store = MemoryStore(clock)
    begun_at = (await store.exchange(Exchange())).now
    assert begun_at == clock.now()
    clock.advance(30)
    store.clock_offset_s += 12
    assert (await store.exchange(Exchange())).now == begun_at + 42


async def test_its_key_window_can_be_set(clock: ManualClock) -> None:
    store = MemoryStore(clock, key_window_s=10)
    (first,) = await enqueue(store, new_job(idempotency_key="k"))
    await store.change(Operation(change=Change.CANCEL, ids=[first]))
    clock.advance(9)
    assert (await enqueue(store, new_job(idempotency_key="k"))) == [first]
    clock.advance(1)
    assert (await enqueue(store, new_job(idempotency_key="k"))) != [first]


async def test_a_wait_lasts_for_as_long_as_asked_on_the_given_clock(clock: ManualClock) -> None:
    store = MemoryStore(clock)
    waiting = asyncio.create_task(store.wait(5.0))
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin
    clock.advance(4.9)
    await asyncio.sleep(0)  # noqa: TID251 - lets it end, if it is wrong
    assert not waiting.done()
    clock.advance(0.1)
    await waiting


async def test_an_event_loop_that_was_closed_while_it_waited_is_no_trouble(store: MemoryStore) -> None:
    def wait_and_be_gone() -> None:
        loop = asyncio.new_event_loop()
        waiting = store.wait(1000)
        loop.call_soon(waiting.send, None)
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        kept.append(waiting)

    kept: list[object] = []
    await asyncio.to_thread(wait_and_be_gone)
    assert await enqueue(store, new_job())


@pytest.mark.parametrize("change", [Change.CLAIM, Change.CANCEL, Change.REPLAY, Change.REMOVE])
async def test_a_change_that_is_no_settlement_is_refused(store: MemoryStore, change: Change) -> None:
    (job_id,) = await enqueue(store, new_job())
    with pytest.raises(IllegalChange, match=change):
        await store.exchange(Exchange(settlements=[Settlement(id=job_id, token=b"", change=change)]))


@pytest.mark.parametrize("change", sorted({Change.CLAIM, *SETTLING}))
async def test_a_change_that_is_not_for_people_is_refused(store: MemoryStore, change: Change) -> None:
    with pytest.raises(IllegalChange, match=change):
        await store.change(Operation(change=change, ids=await enqueue(store, new_job())))


async def test_a_cursor_that_no_page_gave_is_refused(store: MemoryStore) -> None:
    with pytest.raises(ConfigError, match="cursor"):
        await store.find(Query(cursor="; --"))
