"""Partitions whose holders died: the next one is careful with them, and then suspects what they had in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Exchange
from holdfast.runtime.counts import Counts
from holdfast.runtime.runner import Room, Runner
from holdfast.runtime.streams.marks import PREFIX
from holdfast.runtime.streams.part import Part
from holdfast.runtime.streams.spec import StreamSpec
from holdfast.testing.faulty import Fault
from holdfast.types import Message
from tests.unit.runtime.streams.handlers import Gates
from tests.unit.runtime.streams.stage import TOPIC, Consumer, Stage, WatchedSource, staged

PLACE = (TOPIC, 0)
NEVER = RetryPolicy(max_retries=0)


class Named(Consumer):
    """A consumer of a worker with a name of its own, whose app could be imported."""

    def __init__(self, stage: Stage, spec: StreamSpec, name: str) -> None:
        self.name = name
        super().__init__(stage, spec, 10.0, is_replaceable=True)
        stage.consumers.append(self)

    def _runner(self, spec: StreamSpec, on_settled: Callable[[], None]) -> Runner:
        runner = Runner(
            store=self._stage.store,
            specs={spec.name: spec.task},
            guards=self._guards,
            worker=self.name,
            room=Room(concurrency=spec.in_flight, threads=4, isolates=0),  # where suspects would run, they wait
            clock=self._stage.clock,
            rng=self._stage.chance,
            target="tests.faults.stream_shop:app",
            lease_s=30.0,
            on_settled=on_settled,
            on_values=lambda reply: None,
            is_replaceable=True,
            counts=Counts(),
            asking=asyncio.Lock(),
        )
        runner.set_now(self._stage.clock.now())
        return runner

    async def part(self) -> Part:
        """The partition, once it is open."""
        parts = self.flow.parts
        await self._stage.until(lambda: PLACE in parts and not parts[PLACE].is_waiting)
        return parts[PLACE]


async def _marks(stage: Stage) -> list[str]:
    values = (await stage.store.inner.exchange(Exchange())).values
    return sorted(one.key for one in values if one.key.startswith(PREFIX) and one.data is not None)


def _gated(stage: Stage, count: int, in_flight: int) -> tuple[Gates, StreamSpec]:
    gates = Gates()
    for value in range(count):
        stage.send(value, f"k{value}")
    return gates, stage.stream(gates.handle, in_flight=in_flight, retry=NEVER)


async def test_after_one_death_nothing_far_from_the_position_is_begun_until_all_of_it_is_finished() -> None:
    async with staged() as stage:
        gates, spec = _gated(stage, 8, in_flight=2)
        gates.open(*range(1, 8))
        first = Named(stage, spec, "a")
        await stage.until(lambda: len(gates.began) == 8)  # the first one is not finished, and the others are
        await first.kill()
        gates.began.clear()
        part = await Named(stage, spec, "b").part()
        await stage.wait(1.0)
        assert (gates.began, part.suspects, part.careful_until) == ([0, 1, 2, 3], range(0), 8)
        gates.open(0)
        await stage.rest()
        assert sorted(gates.began) == list(range(8))
        assert part.careful_until in {0, 8}
        assert stage.position() == 8


async def test_after_a_second_death_what_was_in_flight_is_run_elsewhere() -> None:
    async with staged() as stage:
        gates, spec = _gated(stage, 8, in_flight=2)
        for name in "ab":
            consumer = Named(stage, spec, name)
            await stage.until(lambda: len(gates.began) == 2)
            await consumer.kill()
            gates.began.clear()
        last = Named(stage, spec, "c")
        part = await last.part()
        await stage.until(lambda: len(last.pump.runner.runs) == 2)
        assert part.suspects == range(4)
        assert gates.began == []
        assert [run.delivery.is_suspect for run in last.pump.runner.runs.values()] == [True, True]
        await last.kill()


async def test_after_a_death_messages_behind_a_hole_are_near_once_it_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged() as stage:
        gates, spec = _gated(stage, 20, in_flight=2)
        first = Named(stage, spec, "a")
        await stage.until(lambda: len(gates.began) == 2)
        await first.kill()
        gates.began.clear()
        gates.open(*range(20))
        receive = WatchedSource.receive

        async def without(source: WatchedSource, limit: int, wait_s: float) -> Sequence[Message]:
            return [one for one in await receive(source, limit, wait_s) if one.offset >= 10]

        monkeypatch.setattr(WatchedSource, "receive", without)  # the rest was compacted away
        part = await Named(stage, spec, "b").part()
        assert part.careful_until > 0
        await stage.rest()
        assert sorted(gates.began) == list(range(10, 20))
        assert stage.position() == 20


async def test_one_that_stops_in_good_order_is_not_taken_for_dead() -> None:
    async with staged() as stage:
        gates, spec = _gated(stage, 2, in_flight=2)
        for name in "ab":
            consumer = Named(stage, spec, name)
            await stage.until(lambda: len(gates.began) == 2)
            assert await _marks(stage) == [f"{PREFIX}bill/{TOPIC}.billing.retry.0/0", f"{PREFIX}bill/{TOPIC}/0"]
            await consumer.drain(1.0)
            assert await _marks(stage) == []
            gates.began.clear()
        part = await Named(stage, spec, "c").part()
        assert (part.suspects, part.careful_until) == (range(0), 0)
        gates.open(0, 1)
        await stage.rest()


async def test_partitions_that_go_to_another_in_good_order_say_so_before_they_are_handed_over() -> None:
    async with staged(partitions=2) as stage:
        spec = stage.stream(Gates().handle)
        first = Named(stage, spec, "a")
        await first.part()
        progress = await stage.drive(first.pump.revoked([PLACE]))
        assert progress.keys() == {PLACE}
        assert f"{PREFIX}bill/{TOPIC}/0" not in await _marks(stage)
        assert f"{PREFIX}bill/{TOPIC}/1" in await _marks(stage)


async def test_one_that_has_lost_its_partitions_is_not_taken_for_dead() -> None:
    async with staged() as stage:
        first = Named(stage, stage.stream(Gates().handle), "a")
        await first.part()
        first.pump.lost([PLACE])
        await stage.quiet()
        assert f"{PREFIX}bill/{TOPIC}/0" not in await _marks(stage)


@pytest.mark.parametrize(("fault", "after_s"), [("away", 0.0), ("hang", 5.0)])
async def test_a_store_that_is_away_holds_no_message_up_for_long_and_is_told_later(
    fault: Fault, after_s: float
) -> None:
    async with staged() as stage:
        gates, spec = _gated(stage, 1, in_flight=2)
        stage.store.fail("exchange", fault=fault)
        Named(stage, spec, "a")
        began_s = stage.now()
        await stage.until(lambda: gates.began == [0], 60.0)
        assert stage.now() == pytest.approx(began_s + after_s, abs=0.2)
        assert await _marks(stage) == []
        stage.store.mend()
        await stage.wait(2.0)
        assert f"{PREFIX}bill/{TOPIC}/0" in await _marks(stage)
        gates.open(0)
        await stage.rest()


async def test_where_the_app_cannot_be_imported_nothing_is_marked() -> None:
    async with staged() as stage:
        gates, spec = _gated(stage, 1, in_flight=2)
        stage.consumer(spec)
        await stage.until(lambda: gates.began == [0])
        assert await _marks(stage) == []
        gates.open(0)
        await stage.rest()
