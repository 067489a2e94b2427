"""Messages between the consumer's thread and whoever receives them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from holdfast.streams.kafka.handover import Handover
from holdfast.testing import ManualClock
from holdfast.types import Message


def batch(partition: int, offsets: Iterable[int]) -> list[Message]:
    return [Message("orders", partition, offset) for offset in offsets]


def all_of(handover: Handover, limit: int = 100) -> list[tuple[int, int]]:
    found = []
    while messages := handover.take(limit):
        assert len(messages) <= limit
        found += [(message.partition, message.offset) for message in messages]
    return found


def test_batches_are_taken_in_order_and_in_parts() -> None:
    handover = Handover(ManualClock())
    handover.put(batch(0, range(5)))
    handover.put(batch(0, range(5, 7)))
    assert all_of(handover, 2) == [(0, offset) for offset in range(7)]
    assert handover.is_empty


def test_what_is_here_of_a_paused_partition_is_held_back_and_comes_first_afterwards() -> None:
    handover = Handover(ManualClock())
    handover.put(batch(0, [1, 2]) + batch(1, [7]))
    handover.put(batch(0, [3]))
    handover.pause([("orders", 0)])
    handover.put(batch(0, [4]) + batch(1, [8]))
    assert all_of(handover) == [(1, 7), (1, 8)]
    handover.put(batch(1, [9]))
    handover.resume([("orders", 0)])
    handover.put(batch(0, [5]))
    assert all_of(handover) == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 9), (0, 5)]


def test_paused_in_the_middle_of_a_batch() -> None:
    handover = Handover(ManualClock())
    handover.put(batch(0, range(4)))
    assert len(handover.take(1)) == 1
    handover.pause([("orders", 0)])
    assert handover.is_empty
    handover.resume([("orders", 0)])
    assert all_of(handover) == [(0, 1), (0, 2), (0, 3)]


def test_what_goes_to_somebody_else_is_dropped_held_back_or_not_and_comes_back_unpaused() -> None:
    handover = Handover(ManualClock())
    handover.put(batch(0, [1]) + batch(1, [1]) + batch(2, [1]))
    handover.pause([("orders", 0)])
    handover.drop([("orders", 0), ("orders", 1)])
    assert all_of(handover) == [(2, 1)]
    handover.put(batch(0, [1]))
    assert all_of(handover) == [(0, 1)]


async def test_a_wait_ends_with_the_first_message_and_not_with_one_that_is_held_back() -> None:
    handover = Handover(ManualClock())
    handover.pause([("orders", 0)])
    waiting = asyncio.create_task(handover.wait(5.0))
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin
    handover.put(batch(0, [1]))
    await asyncio.sleep(0)  # noqa: TID251 - would let it end
    assert not waiting.done()
    handover.put(batch(1, [1]))
    await waiting


async def test_a_wait_ends_when_its_time_is_over() -> None:
    clock = ManualClock(auto=False)
    handover = Handover(clock)
    waiting = asyncio.create_task(handover.wait(5.0))
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin
    clock.advance(5.0)
    await waiting
    assert handover.is_empty
