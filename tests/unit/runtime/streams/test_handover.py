"""Partitions that go to somebody else: in good order, too late, or without a word."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast.errors import Permanent, SourceAway, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Progress
from holdfast.types import Message
from tests.unit.runtime.streams.handlers import Gates, send_keyed
from tests.unit.runtime.streams.stage import TOPIC, staged

FIXED = RetryPolicy(max_retries=5, strategy="fixed", initial_delay=5.0, jitter=False, total_timeout=None)


async def test_what_runs_is_finished_before_its_partition_is_handed_over() -> None:
    async with staged(partitions=2) as stage:
        gates = Gates()
        send_keyed(stage, 8, partitions=2)
        spec = stage.stream(gates.handle, in_flight=4)
        first = stage.consumer(spec)
        await stage.until(lambda: len(gates.began) == 4)
        others = [stage.consumer(spec) for _ in range(3)]  # two of them get the retry topic
        await stage.wait(3.0)
        assert len(gates.began) == 4
        assert not any(place[0] == TOPIC for one in others for place in one.flow.parts)
        gates.open(*range(8))
        await stage.wait(1.0)
        assert len(first.flow.parts) == 1
        assert [len(one.flow.parts) for one in others] == [1, 1, 1]
        await stage.rest()
        assert gates.done == Counter(range(8))  # each of them once
        assert gates.cancelled == []


async def test_a_retry_that_waits_is_handed_over_with_its_count() -> None:
    async with staged() as stage:
        seen: list[tuple[float, int]] = []

        async def handle(value: int, msg: Message) -> None:
            seen.append((stage.now(), msg.retries))
            raise Transient("busy")

        stage.send(0)
        spec = stage.stream(handle, retry=FIXED)
        first = stage.consumer(spec)
        await stage.until(lambda: len(seen) == 2)
        progress = await stage.drive(first.pump.revoked([(TOPIC, 0)]))
        assert progress == {(TOPIC, 0): Progress(position=0, retries={0: 2})}
        assert first.flow.in_flight == 0


async def test_a_message_that_fails_while_it_is_handed_over_is_not_retried_here() -> None:
    async with staged() as stage:
        gate = asyncio.Event()
        runs: list[int] = []

        async def handle(value: int) -> None:
            runs.append(value)
            await gate.wait()
            raise Transient("busy")

        stage.send(0)
        consumer = stage.consuming(handle, retry=FIXED)
        await stage.until(lambda: runs == [0])
        began_s = stage.now()
        revoking = asyncio.create_task(consumer.pump.revoked([(TOPIC, 0)]))
        await stage.quiet()
        gate.set()
        await stage.until(revoking.done)
        assert revoking.result() == {(TOPIC, 0): Progress(position=0, retries={0: 1})}
        await stage.wait(20.0)
        assert (runs, revoking.done(), consumer.flow.in_flight) == ([0], True, 0)
        assert stage.now() == began_s + 20.0


async def test_a_handler_that_takes_too_long_is_stopped_and_nothing_of_it_is_committed() -> None:
    async with staged(partitions=2) as stage:
        gates = Gates()
        send_keyed(stage, 2, partitions=2)
        spec = stage.stream(gates.handle)
        first = stage.consumer(spec, handover_s=5.0)
        await stage.until(lambda: len(gates.began) == 2)
        began_s = stage.now()
        others = [stage.consumer(spec) for _ in range(3)]  # two of them get the retry topic
        await stage.until(lambda: len(gates.began) == 3)
        assert stage.now() == pytest.approx(began_s + 5.0)
        assert len(gates.cancelled) == 1
        assert (first.flow.in_flight, sum(one.flow.in_flight for one in others)) == (1, 1)
        assert (stage.position(0), stage.position(1)) == (None, None)
        gates.open(0, 1)
        await stage.rest()
        assert gates.done == Counter([0, 1])


async def test_what_is_finished_before_a_hand_over_takes_too_long_is_not_done_again() -> None:
    async with staged(partitions=2) as stage:
        gates = Gates()
        send_keyed(stage, 6, partitions=2)
        spec = stage.stream(gates.handle)
        first = stage.consumer(spec, handover_s=5.0)
        await stage.until(lambda: len(gates.began) == 6)
        revoking = asyncio.create_task(first.pump.revoked([(TOPIC, 0), (TOPIC, 1)]))
        await stage.wait(1.0)
        gates.open(0, 1, 3, 4, 5)  # 2 is stuck, and 4 is behind it
        await stage.wait(4.0)
        assert not revoking.done()
        revoking.cancel()
        await stage.quiet()
        assert (stage.position(0), stage.position(1)) == (1, 3)
        assert (gates.cancelled, first.flow.in_flight) == ([2], 0)


@pytest.mark.parametrize("error", [None, SourceAway("no answer")])
async def test_the_answer_waits_for_the_commit_that_is_under_way_and_has_what_that_could_not_commit(
    error: SourceAway | None,
) -> None:
    async with staged() as stage:
        gates, gate = Gates(), asyncio.Event()
        stage.on_source = lambda source: setattr(source, "has_positions", False)
        send_keyed(stage, 2)
        first = stage.consuming(gates.handle)
        first.source.gates["commit"] = gate
        gates.open(0)
        await stage.until(lambda: first.source.calls["commit"] == 1)
        revoking = asyncio.create_task(first.pump.revoked([(TOPIC, 0)]))
        gates.open(1)
        await stage.wait(0.5)
        assert (gates.done, revoking.done()) == (Counter([0, 1]), False)
        first.source.faults["commit"] = [error] if error else []
        gate.set()
        await stage.quiet()
        progress = revoking.result()[TOPIC, 0]
        assert (progress.position, sorted(progress.finished)) == (2, [0, 1] if error else [1])


async def test_a_commit_that_hangs_does_not_keep_the_answer_until_it_is_too_late() -> None:
    async with staged() as stage:
        gates = Gates()
        send_keyed(stage, 2)
        first = stage.consuming(gates.handle)
        first.source.hanging.add("commit")
        gates.open(0)
        await stage.until(lambda: first.source.calls["commit"] == 1)
        revoking = asyncio.create_task(first.pump.revoked([(TOPIC, 0)]))
        gates.open(1)
        await stage.wait(2.0)
        assert revoking.result() == {(TOPIC, 0): Progress(position=2)}


async def test_of_a_lost_partition_runs_are_stopped_and_late_results_ignored() -> None:
    async with staged() as stage:
        stopped: list[int] = []
        runs: list[int] = []
        gates = [asyncio.Event(), asyncio.Event()]

        async def handle(value: int) -> None:
            run = len(runs)
            runs.append(value)
            try:
                await gates[run].wait()
            except asyncio.CancelledError:
                stopped.append(run)
                await gates[run].wait()  # it goes on all the same, for a while

        send_keyed(stage, 1)
        consumer = stage.consuming(handle)
        await stage.until(lambda: len(runs) == 1)
        stage.broker.expel(consumer.source.inner)
        assert consumer.flow.in_flight == 0
        await stage.until(lambda: len(runs) == 2)  # it has joined again, and begun it again beside the old run
        assert stopped == [0]
        gates[0].set()
        await stage.wait(1.0)
        assert not stage.position()  # what comes of the old run is not the end of the new one
        draining = asyncio.create_task(consumer.pump.drain(30.0))
        await stage.wait(1.0)
        assert not draining.done()
        gates[1].set()
        await stage.until(draining.done)
        assert (draining.result(), stopped, stage.position()) == (True, [0], 1)


async def test_a_result_that_comes_in_the_moment_of_the_loss_is_ignored() -> None:
    async with staged() as stage:
        gates = Gates()
        send_keyed(stage, 1)
        consumer = stage.consuming(gates.handle)
        await stage.until(lambda: gates.began == [0])
        settle = consumer.pump._settle

        def lose_first() -> None:
            if consumer.pump.runner.settlements and gates.began == [0]:
                stage.broker.expel(consumer.source.inner)
            settle()

        consumer.pump._settle = lose_first  # type: ignore[method-assign]
        gates.open(0)
        await stage.rest()
        assert (gates.done[0], stage.position(), consumer.flow.in_flight) == (2, 1, 0)


async def test_of_a_lost_partition_nothing_is_begun_whose_turn_had_just_come() -> None:
    async with staged() as stage:
        began: list[int] = []

        async def handle(value: int) -> None:
            began.append(value)
            raise Permanent("no")

        stage.send(0, "same")
        stage.send(1, "same")
        consumer = stage.consuming(handle)
        consumer.source.hanging.add("send")
        await stage.until(lambda: consumer.source.calls["send"] == 1)
        (delivery,) = consumer.flow._held.values()
        consumer.flow.finish(delivery)  # now it is the turn of the next one of its key
        assert consumer.flow.has_ready
        consumer.pump.lost([(TOPIC, 0)])
        await stage.wait(1.0)
        assert (began, consumer.flow.in_flight, consumer.flow.has_ready) == ([0], 0, False)
        await consumer.drain(grace_s=0.0)


async def test_of_a_lost_partition_no_retry_is_run_and_no_letter_finished() -> None:
    async with staged() as stage:
        runs: list[int] = []

        async def handle(value: int) -> None:
            runs.append(value)
            raise Transient("busy") if value == 0 else Permanent("no")

        send_keyed(stage, 2)
        consumer = stage.consuming(handle, retry=FIXED)
        stage.store.fail("enqueue")
        await stage.until(lambda: len(runs) == 2)
        assert consumer.flow.in_flight == 2
        consumer.pump.lost([(TOPIC, 0)])
        stage.store.mend()
        await stage.wait(20.0)
        assert (runs, consumer.flow.in_flight, stage.position()) == ([0, 1], 0, 0)
        assert len(await stage.letters()) == 1  # it was on its way; whoever has the partition next writes the same one
