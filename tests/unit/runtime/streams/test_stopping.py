"""A consumer that is told to stop; and handlers that do not stop by themselves, on threads and beyond their time."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import SourceAway, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.types import FailureType, Message
from tests.unit.runtime.streams.handlers import Gates, send_keyed
from tests.unit.runtime.streams.stage import TOPIC, Stage, staged

FIXED = RetryPolicy(max_retries=5, strategy="fixed", initial_delay=5.0, jitter=False, total_timeout=None)


# ---------------------------------------------------------------- stop


async def test_a_stop_finishes_what_runs_commits_it_and_leaves() -> None:
    async with staged() as stage:
        gates = Gates()
        send_keyed(stage, 10)
        spec = stage.stream(gates.handle, in_flight=4)
        consumer = stage.consumer(spec)
        await stage.until(lambda: len(gates.began) == 4)
        draining = asyncio.create_task(consumer.pump.drain(30.0))
        await stage.wait(3.0)
        assert not draining.done()
        gates.open(*range(10))
        await stage.until(draining.done)
        assert draining.result() is True
        assert gates.began == [0, 1, 2, 3]  # what was only received is left to the next one
        assert stage.position() == 4
        stage.consumer(spec)
        await stage.rest()
        assert gates.done == Counter(range(10))


async def test_a_stop_in_the_moment_in_which_messages_end_commits_them() -> None:
    async with staged() as stage:
        gates = Gates()
        gates.open(0, 1, 2)
        send_keyed(stage, 3)
        consumer = stage.consuming(gates.handle)
        consumer.source.hanging.add("commit")
        await stage.until(lambda: len(gates.done) == 3)
        consumer.source.hanging.clear()
        assert await consumer.drain()
        assert stage.position() == 3


async def test_after_the_grace_time_what_runs_is_stopped_and_comes_again() -> None:
    async with staged() as stage:
        gates = Gates()
        send_keyed(stage, 3)
        gates.open(0, 2)
        spec = stage.stream(gates.handle)
        consumer = stage.consumer(spec)
        await stage.until(lambda: len(gates.done) == 2)
        began_s = stage.now()
        assert not await consumer.drain(grace_s=20.0)
        assert stage.now() == pytest.approx(began_s + 20.0, abs=0.2)
        assert (gates.cancelled, stage.position()) == ([1], 1)
        gates.open(1)
        stage.consumer(spec)
        await stage.rest()
        assert gates.done == Counter([0, 1, 2, 2])  # the one behind it has run again, as it must


async def test_a_stop_does_not_wait_for_retries_and_keeps_their_count() -> None:
    async with staged() as stage:
        retries: list[int] = []

        async def handle(value: int, msg: Message) -> None:
            retries.append(msg.retries)
            if msg.retries < 2:
                raise Transient("busy")

        stage.send(0)
        spec = stage.stream(handle, retry=FIXED)
        consumer = stage.consumer(spec)
        await stage.until(lambda: len(retries) == 2)
        began_s = stage.now()
        assert await consumer.drain()
        assert stage.now() == began_s
        stage.consumer(spec)
        await stage.rest()
        assert retries == [0, 1, 2]


async def test_a_partition_that_comes_during_a_stop_is_not_begun() -> None:
    async with staged(partitions=2) as stage:
        gates = Gates()
        stage.send(0, partition=0)
        consumer = stage.consuming(gates.handle)
        await stage.until(lambda: gates.began == [0])
        draining = asyncio.create_task(consumer.pump.drain(30.0))
        await stage.quiet()
        message = stage.send(1, partition=1)
        consumer.pump.assigned({(TOPIC, 1): 0})
        consumer.flow.receive([message])
        consumer.pump.wake()
        await stage.wait(1.0)
        gates.open(0, 1)
        await stage.until(draining.done)
        assert (gates.began, stage.position(0), stage.position(1)) == ([0], 1, None)


async def test_a_stop_before_the_source_could_be_opened_ends_at_once() -> None:
    async with staged() as stage:
        spec = stage.stream(Gates().handle)
        consumer = stage.consumer(spec)
        consumer.source.faults["open"] = [SourceAway("no broker")] * 1_000
        await stage.wait(30.0)
        began_s = stage.now()
        assert await consumer.drain()
        assert stage.now() == began_s


# ---------------------------------------------------------------- threads and time limits


async def until_real(stage: Stage, is_so: Callable[[], bool]) -> None:
    """Wait for what a thread or the loop's own timer does, of which virtual time knows nothing."""
    async with asyncio.timeout(5):
        while not is_so():
            await stage.wait(0.1)
            await SystemClock().asleep(0.001)


async def test_a_sync_handler_runs_on_threads() -> None:
    async with staged() as stage:
        threads: set[str] = set()
        done: list[int] = []

        def handle(value: int) -> None:
            threads.add(threading.current_thread().name)
            done.append(value)

        send_keyed(stage, 10)
        stage.consuming(handle)
        await until_real(stage, lambda: stage.position() == 10)
        assert sorted(done) == list(range(10))
        assert threading.current_thread().name not in threads


async def test_a_sync_handler_keeps_the_order_of_a_key() -> None:
    async with staged() as stage:
        done: list[int] = []

        def handle(value: int) -> None:
            done.append(value)

        for n in range(50):
            stage.send(n, "same")
        stage.consuming(handle)
        await until_real(stage, lambda: stage.position() == 50)
        assert done == list(range(50))


async def test_an_async_handler_past_its_time_limit_is_stopped_and_retried() -> None:
    async with staged() as stage:
        stopped: list[float] = []
        retries: list[int] = []

        async def handle(value: int, msg: Message) -> None:
            retries.append(msg.retries)
            if msg.retries == 0:
                try:
                    await asyncio.get_running_loop().create_future()
                finally:
                    stopped.append(stage.now())

        stage.send(0)
        stage.consuming(handle, timeout=0.01, retry=FIXED)
        await until_real(stage, lambda: stage.position() == 1)
        assert (retries, len(stopped)) == ([0, 1], 1)
        assert await stage.letters() == []


@pytest.mark.parametrize("is_replaceable", [False, True])
async def test_a_sync_handler_past_its_time_limit_is_buried_and_its_process_replaced(is_replaceable: bool) -> None:
    async with staged() as stage:
        gate = threading.Event()

        def handle(value: int) -> None:
            if value == 0:
                gate.wait(5.0)

        send_keyed(stage, 2)
        # The limit holds for the other message too, whose thread may have to wait for a processor.
        consumer = stage.consumer(stage.stream(handle, timeout=0.5), is_replaceable=is_replaceable)
        await until_real(stage, lambda: stage.position() == 2)
        (letter,) = await stage.letters()
        assert (letter.reason, letter.failure_type) == ("still running after its time limit", FailureType.NETWORK)
        assert consumer.pump.runner.must_be_replaced is is_replaceable
        assert consumer.flow.in_flight == 0
        gate.set()
        await until_real(stage, lambda: not consumer.pump.runner.is_on_threads)
        await stage.rest()
        assert (stage.position(), len(await stage.letters())) == (2, 1)
