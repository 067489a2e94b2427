"""What holds up one message, batch or partition holds up no other."""

from __future__ import annotations

import asyncio

from holdfast.errors import Permanent, SourceError, StoreAway
from holdfast.ports import Outputs
from holdfast.types import Outgoing
from tests.unit.runtime.streams.stage import staged


async def test_a_batch_that_hangs_stops_its_own_partition_alone() -> None:
    async with staged(partitions=2) as stage:
        free = asyncio.Event()
        handled: list[int] = []

        async def batches(values: list[int]) -> None:
            if values[0] < 1_000_000:
                await free.wait()
            handled.extend(values)

        for n in range(1_500):
            stage.send(n, partition=0)
        for n in range(1_500):
            stage.send(1_000_000 + n, partition=1)
        stage.consuming(batches, batch=10)
        await stage.until(lambda: len(handled) == 1_500)
        assert min(handled) == 1_000_000
        assert stage.position(0) is None or stage.position(0) == 0
        free.set()
        await stage.rest()
        assert (stage.position(0), stage.position(1)) == (1_500, 1_500)


async def test_what_waits_behind_a_batch_is_bounded_and_goes_on_afterwards() -> None:
    async with staged() as stage:
        free = asyncio.Event()
        handled: list[int] = []

        async def batches(values: list[int]) -> None:
            await free.wait()
            handled.extend(values)

        for n in range(12_000):
            stage.send(n)
        consumer = stage.consuming(batches, batch=10, max_gap=100_000)
        await stage.until(lambda: bool(consumer.source.pauses))
        (part,) = [one for one in consumer.flow.parts.values() if one.place[0] == "orders"]
        assert len(part.buffer) <= 6_000
        assert part.pausing.endswith("messages wait for the batch before them")
        free.set()
        await stage.rest()
        assert handled == list(range(12_000))


async def test_an_output_that_cannot_be_written_is_put_off_by_itself() -> None:
    async with staged() as stage:
        is_missing = True

        async def forward(value: int, out: Outputs) -> None:
            out.send("nowhere" if value == 3 else "billed", value)

        def check(message: Outgoing) -> None:
            if message.topic == "nowhere" and is_missing:
                raise SourceError("topic nowhere does not exist")

        for n in range(20):
            stage.send(n)
        consumer = stage.consuming(forward)
        consumer.source.check = check
        await stage.until(lambda: len(stage.messages("billed")) == 19)
        await stage.wait(60.0)
        assert len(stage.messages("billed")) == 19  # none of them again
        assert stage.position() == 3
        assert consumer.pump.report.last_error == "topic nowhere does not exist"
        is_missing = False
        await stage.rest()
        assert (len(stage.messages("nowhere")), len(stage.messages("billed")), stage.position()) == (1, 19, 20)


async def test_a_letter_that_waits_for_the_store_keeps_no_output() -> None:
    async with staged() as stage:
        is_away = True

        async def forward(value: int, out: Outputs) -> None:
            if value == 0:
                raise Permanent("no")
            out.send("billed", value)

        def check(jobs: object) -> None:
            if is_away:
                raise StoreAway("locked")

        stage.store.check = check
        for n in range(50):
            stage.send(n)
        stage.consuming(forward)
        await stage.until(lambda: len(stage.messages("billed")) == 49)
        assert stage.position() in {None, 0}
        is_away = False
        await stage.rest()
        assert (len(await stage.letters()), stage.position()) == (1, 50)


async def test_what_is_finished_is_committed_while_a_worker_drains() -> None:
    async with staged(partitions=2) as stage:
        free = asyncio.Event()
        handled: list[int] = []

        async def slow(value: int) -> None:
            if value == 0:
                await free.wait()
            handled.append(value)

        stage.send(0, partition=0)
        for n in range(1, 31):
            stage.send(n, partition=1)
        consumer = stage.consuming(slow)
        await stage.until(lambda: len(handled) == 30)
        draining = asyncio.create_task(consumer.pump.drain(30.0))
        await stage.until(lambda: stage.position(1) == 30, 5.0)
        assert not draining.done()
        free.set()
        await stage.until(draining.done)
        assert stage.position(0) == 1
