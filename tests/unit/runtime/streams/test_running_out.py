"""A stop or a hand-over repeats nothing that has ended: what was overtaken is run first, if it does not last."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast.runtime.runner import Room
from tests.unit.runtime.streams.handlers import Gates
from tests.unit.runtime.streams.stage import TOPIC, Consumer, Stage, staged

ORDERS = [(0, "slow"), (1, "slow"), (2, "slow"), (3, "quick"), (4, "slow")]
"""Number and key: 3 runs beside 0, 1 and 2 are behind 0, and 4 has been overtaken by nobody."""


def consuming(stage: Stage, gates: Gates) -> Consumer:
    for number, key in ORDERS:
        stage.send(number, key)
    gates.open(3)
    return stage.consuming(gates.handle)


async def test_a_stop_runs_what_was_overtaken_so_that_nothing_comes_again() -> None:
    async with staged() as stage:
        gates = Gates()
        consumer = consuming(stage, gates)
        await stage.until(lambda: gates.done[3] == 1)
        draining = asyncio.create_task(consumer.pump.drain(30.0))
        await stage.wait(0.5)
        gates.open(0, 1, 2, 4)
        await stage.until(draining.done)
        assert draining.result() is True
        assert gates.began == [0, 3, 1, 2]  # 4 is left to the next one
        assert stage.position() == 4
        stage.consumer(consumer.pump.spec)
        await stage.rest()
        assert gates.done == Counter(range(5))


async def test_a_hand_over_runs_what_was_overtaken_so_that_nothing_comes_again() -> None:
    async with staged() as stage:
        gates = Gates()
        consumer = consuming(stage, gates)
        await stage.until(lambda: gates.done[3] == 1)
        revoking = asyncio.create_task(consumer.pump.revoked([(TOPIC, 0)]))
        await stage.wait(0.5)
        gates.open(0, 1, 2, 4)
        await stage.until(revoking.done)
        assert revoking.result()[TOPIC, 0].position == 4
        assert (gates.began, consumer.flow.in_flight) == ([0, 3, 1, 2], 0)


@pytest.mark.parametrize("is_stop", [True, False])
async def test_a_long_line_of_overtaken_messages_is_not_waited_for(is_stop: bool) -> None:
    async with staged() as stage:
        gates = Gates()
        consumer = consuming(stage, gates)
        await stage.until(lambda: gates.done[3] == 1)
        work = consumer.pump.drain(30.0) if is_stop else consumer.pump.revoked([(TOPIC, 0)])
        giving_back = asyncio.create_task(work)
        await stage.wait(10.0)
        assert not giving_back.done()  # what runs is waited for
        gates.open(0, 1, 2, 4)
        await stage.until(giving_back.done)
        assert gates.began == [0, 3]
        if is_stop:
            assert (giving_back.result(), stage.position()) == (True, 1)


async def test_what_a_retry_holds_up_is_not_run_by_a_stop() -> None:
    async with staged() as stage:
        began: list[int] = []

        async def handle(value: int) -> None:
            began.append(value)
            if value == 0:
                raise TimeoutError

        for number, key in ORDERS:
            stage.send(number, key)
        consumer = stage.consuming(handle)
        await stage.until(lambda: len(began) == 2)
        assert await consumer.drain()
        assert sorted(began) == [0, 3]
        assert stage.position() == 0


async def test_one_that_was_queued_itself_overtakes_others_too() -> None:
    async with staged() as stage:
        gates = Gates()
        for number, key in [(0, "a"), (1, "b"), (2, "b"), (3, "a")]:
            stage.send(number, key)
        gates.open(0, 3)
        consumer = stage.consuming(gates.handle)
        await stage.until(lambda: gates.done[3] == 1)  # 3 came after 0, and 2 is behind 1
        draining = asyncio.create_task(consumer.pump.drain(30.0))
        await stage.wait(0.5)
        gates.open(1, 2)
        await stage.until(draining.done)
        assert (gates.began, stage.position()) == ([0, 1, 3, 2], 4)


def crowded(stage: Stage, gates: Gates, keys: str) -> Consumer:
    """One that has two places; each letter is the key of a message."""
    for number, key in enumerate(keys):
        stage.send(number, key)
    consumer = stage.consuming(gates.handle)
    consumer.pump.runner.room = Room(concurrency=2, threads=1, isolates=1)
    return consumer


async def given_back(stage: Stage, consumer: Consumer, gates: Gates, *, is_stop: bool, after_s: float = 0.5) -> int:
    """Stop it or take its partition away, and let everything end after a while: how far it came."""

    async def give_back() -> int:
        if is_stop:
            assert await consumer.pump.drain(30.0)
            return stage.position() or 0
        progress = await consumer.pump.revoked([(TOPIC, 0)])
        assert consumer.flow.in_flight == 0
        return progress[TOPIC, 0].position

    giving_back = asyncio.create_task(give_back())
    await stage.wait(after_s)
    assert not giving_back.done()  # what runs is waited for
    gates.open(*range(10))
    await stage.until(giving_back.done)
    return giving_back.result()


@pytest.mark.parametrize("is_stop", [True, False])
async def test_what_has_no_place_yet_is_left_to_others_but_not_what_was_overtaken(is_stop: bool) -> None:
    async with staged() as stage:
        gates = Gates()
        consumer = crowded(stage, gates, "aabcde")
        await stage.until(lambda: gates.began == [0, 2])
        gates.open(2)
        await stage.until(lambda: gates.began == [0, 2, 3])
        gates.open(0)
        await stage.until(lambda: gates.began == [0, 2, 3, 4])  # 1 may run by now, but both places are taken
        assert await given_back(stage, consumer, gates, is_stop=is_stop) == 5
        assert gates.began == [0, 2, 3, 4, 1]


@pytest.mark.parametrize("is_stop", [True, False])
async def test_nothing_is_begun_behind_what_is_left_to_others(is_stop: bool) -> None:
    async with staged() as stage:
        gates = Gates()
        consumer = crowded(stage, gates, "abcad")
        await stage.until(lambda: gates.began == [0, 1])  # 2 and 4 have no place, and 3 is behind 0
        assert await given_back(stage, consumer, gates, is_stop=is_stop) == 2
        assert gates.began == [0, 1]


@pytest.mark.parametrize("is_stop", [True, False])
async def test_what_was_overtaken_and_gets_no_place_is_left_to_others_after_a_while(is_stop: bool) -> None:
    async with staged() as stage:
        gates = Gates()
        consumer = crowded(stage, gates, "aabcd")
        await stage.until(lambda: gates.began == [0, 2])
        gates.open(2)
        await stage.until(lambda: gates.began == [0, 2, 3])
        gates.open(0)
        await stage.until(lambda: gates.began == [0, 2, 3, 4])
        assert await given_back(stage, consumer, gates, is_stop=is_stop, after_s=5.0) == 1
        assert gates.began == [0, 2, 3, 4]


@pytest.mark.parametrize("is_stop", [True, False])
async def test_behind_a_message_that_waits_for_its_retry_nothing_is_begun(is_stop: bool) -> None:
    async with staged() as stage:
        gates = Gates()

        async def handle(value: int) -> None:
            await gates.handle(value)
            if value == 0:
                raise TimeoutError

        for number, key in enumerate("abbc"):
            stage.send(number, key)
        gates.open(0, 3)
        consumer = stage.consuming(handle)
        await stage.until(lambda: gates.done == Counter([0, 3]))  # 2 is behind 1, and 0 waits for its retry
        assert await given_back(stage, consumer, gates, is_stop=is_stop) == 0
        assert gates.began == [0, 1, 3]


async def test_of_a_lost_partition_nothing_more_is_begun_though_its_turn_had_come() -> None:
    async with staged() as stage:
        gates = Gates()
        stage.send(0, "a")
        stage.send(1, "a")
        consumer = stage.consuming(gates.handle)
        await stage.until(lambda: gates.began == [0])
        (delivery,) = consumer.flow.parts[TOPIC, 0].held.values()
        consumer.flow.finish(delivery)  # 1 is next
        consumer.pump.lost([(TOPIC, 0)])
        await stage.wait(1.0)
        assert gates.began == [0]
        assert (consumer.flow.in_flight, consumer.flow.has_ready) == (0, False)
