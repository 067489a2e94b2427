"""Batches: their sizes, poison among five hundred, and transactions over what is read and sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.errors import Invalid, LeaseLost, NotSent, Permanent, SourceAway, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Outputs
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.types import Message, Outgoing, Snooze
from tests.unit.runtime.streams.stage import DLQ, TOPIC, Stage, staged

FIXED = RetryPolicy(max_retries=2, strategy="fixed", initial_delay=5.0, jitter=False, total_timeout=None)
POISON = -1
Batch = Callable[[list[int]], Coroutine[Any, Any, object]]


def poisoned(runs: list[list[int]], handled: list[int], error: Exception) -> Batch:
    """A handler of batches that fails with this error where poison is among them."""

    async def handle(values: list[int]) -> object:
        runs.append(values)
        if POISON in values:
            raise error
        handled.extend(values)
        return None

    return handle


def send_many(stage: Stage, n: int, poison: int | None = None) -> None:
    for value in range(n):
        stage.send(POISON if value == poison else value, f"k{value % 7}")


# ---------------------------------------------------------------- sizes


async def test_a_batch_has_what_is_there_and_no_more_than_its_size() -> None:
    async with staged() as stage:
        runs: list[list[int]] = []
        send_many(stage, 25)
        stage.consuming(poisoned(runs, [], Permanent("no")), batch=10)
        await stage.rest()
        send_many(stage, 3)
        await stage.rest()
        assert [len(one) for one in runs] == [10, 10, 5, 3]
        assert [value for one in runs for value in one] == [*range(25), *range(3)]
        assert stage.position() == 28


async def test_one_batch_of_a_partition_runs_at_a_time_and_partitions_side_by_side() -> None:
    async with staged(partitions=3) as stage:
        running: dict[int, int] = {}
        most = 0
        spans: list[tuple[int, float]] = []

        async def handle(values: list[int], msgs: list[Message]) -> None:
            nonlocal most
            (partition,) = {one.partition for one in msgs}
            assert partition not in running
            running[partition] = len(values)
            spans.append((partition, stage.now()))
            most = max(most, sum(running.values()))
            await stage.clock.asleep(1.0)
            del running[partition]

        for n in range(60):
            stage.send(n, partition=n % 3)
        stage.consuming(handle, batch=10, in_flight=25)
        await stage.rest()
        assert most == 20
        assert len(spans) == 6
        assert sorted(partition for partition, _ in spans) == [0, 0, 1, 1, 2, 2]


async def test_a_batch_that_fails_is_retried_as_a_whole_and_then_all_of_it_is_given_up() -> None:
    async with staged() as stage:
        runs: list[list[int]] = []
        send_many(stage, 500, poison=123)
        stage.consuming(poisoned(runs, [], Transient("busy")), batch=500, retry=FIXED)
        await stage.rest()
        assert [len(one) for one in runs] == [500, 500, 500]
        letters = await stage.letters()
        assert len(letters) == len(stage.messages(DLQ)) == 500
        assert {len(one.attempts) for one in letters} == {3}
        assert stage.position() == 500


# ---------------------------------------------------------------- poison


@pytest.mark.parametrize("place", [0, 123, 499])
@pytest.mark.parametrize("error", [Permanent("no"), Transient("busy")])
async def test_one_poison_message_in_five_hundred_is_found_and_the_others_are_handled(
    place: int, error: Exception
) -> None:
    async with staged() as stage:
        runs: list[list[int]] = []
        handled: list[int] = []
        send_many(stage, 500, poison=place)
        stage.consuming(poisoned(runs, handled, error), batch=500, bisect=True, retry=FIXED)
        await stage.rest()
        assert handled == [n for n in range(500) if n != place]
        (letter,) = await stage.letters()
        (copy,) = stage.messages(DLQ)
        assert copy.header("original-offset") == str(place).encode()
        whole = 3 if isinstance(error, Transient) else 1
        assert [len(one) for one in runs[:whole]] == [500] * whole
        halvings = math.ceil(math.log2(500))
        assert len(runs) <= whole + 2 * halvings
        assert whole + halvings - 1 <= len(letter.attempts) <= whole + halvings
        assert [one.number for one in letter.attempts] == list(range(1, len(letter.attempts) + 1))
        assert stage.position() == 500


async def test_what_cannot_be_decoded_is_taken_out_of_a_batch_and_the_rest_is_one() -> None:
    async with staged() as stage:
        runs: list[list[int]] = []
        for n in range(10):
            stage.send(b"\xff" if n in {0, 4, 9} else n)
        stage.consuming(poisoned(runs, [], Permanent("no")), batch=10)
        await stage.rest()
        assert runs == [[1, 2, 3, 5, 6, 7, 8]]
        assert sorted(one.header("original-offset") or b"" for one in stage.messages(DLQ)) == [b"0", b"4", b"9"]
        assert stage.position() == 10


async def test_parts_of_a_batch_run_one_after_the_other_while_others_of_it_are_being_buried() -> None:
    async with staged() as stage:
        running = 0
        runs: list[list[int]] = []

        async def handle(values: list[int]) -> None:
            nonlocal running
            assert not running
            running += 1
            runs.append(values)
            await stage.clock.asleep(1.0)
            running -= 1
            if POISON in values:
                raise Permanent("no")

        send_many(stage, 7, poison=5)
        stage.send(b"\xff")
        stage.store.fail("enqueue")
        stage.consuming(handle, batch=8, bisect=True)
        await stage.until(lambda: len(runs) == 1)
        await stage.wait(1.5)
        stage.store.mend()  # the one that cannot be decoded is buried while a half may run
        await stage.rest()
        assert runs[:3] == [[0, 1, 2, 3, 4, POISON, 6], [0, 1, 2], [3, 4, POISON, 6]]
        assert (len(await stage.letters()), stage.position()) == (2, 8)


async def test_a_batch_of_nothing_that_can_be_decoded_is_given_up_without_a_run() -> None:
    for options in ({}, {"transactional": True}):
        async with staged() as stage:
            runs: list[list[int]] = []
            for _ in range(5):
                stage.send(b"\xff")
            stage.consuming(poisoned(runs, [], Permanent("no")), batch=10, **options)
            await stage.rest()
            assert (runs, len(await stage.letters()), stage.position()) == ([], 5, 5)


async def test_a_decoder_of_the_users_own_spoils_only_what_it_cannot_decode() -> None:
    async with staged() as stage:
        runs: list[list[int]] = []

        def decode(message: Message) -> int:
            return int(message.value or b"") if message.value != b"3" else 1 // 0

        send_many(stage, 5)
        stage.consuming(poisoned(runs, [], Permanent("no")), batch=10, decode=decode)
        await stage.rest()
        assert runs == [[0, 1, 2, 4]]
        assert len(await stage.letters()) == 1


async def test_a_batch_that_snoozes_comes_again_as_it_was() -> None:
    async with staged() as stage:
        runs: list[tuple[float, int]] = []

        async def handle(values: list[int]) -> object:
            runs.append((stage.now(), len(values)))
            return Snooze(20.0) if len(runs) == 1 else None

        send_many(stage, 5)
        stage.consuming(handle, batch=10)
        await stage.until(lambda: len(runs) == 1)
        send_many(stage, 5)
        await stage.rest()
        assert runs == [(0.0, 5), (20.0, 5), (20.0, 5)]


async def test_while_its_breaker_is_open_a_batch_is_halved_no_further() -> None:
    async with staged() as stage:
        runs: list[float] = []
        handled: list[int] = []
        send_many(stage, 64, poison=40)

        async def handle(values: list[int]) -> None:
            runs.append(stage.now())
            if POISON in values:
                raise Transient("busy")
            handled.extend(values)

        breaker = CircuitBreaker("ledger", failure_threshold=3, recovery_timeout=100.0)
        stage.stream(handle, batch=64, bisect=True, retry=RetryPolicy(max_retries=0), breaker=breaker)
        async with stage.working() as worker:
            await stage.until(lambda: worker.streams.pumps[0].is_idle)
        assert sorted(handled) == [n for n in range(64) if n != 40]
        assert len(await stage.letters()) == 1
        assert runs[0] == 0.0
        assert runs[-1] >= 100.0


async def test_a_stop_in_the_middle_of_a_bisect_loses_nothing_and_does_not_wait_for_the_rest() -> None:
    async with staged() as stage:
        runs: list[list[int]] = []
        handled: list[int] = []
        inner = poisoned(runs, handled, Permanent("no"))

        async def slow(values: list[int]) -> object:
            await stage.clock.asleep(1.0)
            return await inner(values)

        send_many(stage, 64, poison=40)
        spec = stage.stream(slow, batch=64, bisect=True)
        consumer = stage.consumer(spec)
        await stage.until(lambda: len(runs) == 2)  # the first half was well
        assert await consumer.drain()
        begun = len(runs)
        assert begun <= 3
        assert stage.position() == 32
        stage.consumer(spec)
        await stage.rest()
        assert sorted(set(handled)) == [n for n in range(64) if n != 40]
        assert (len(await stage.letters()), stage.position()) == (1, 64)


# ---------------------------------------------------------------- transactions


async def copying(values: list[int], out: Outputs) -> None:
    for value in values:
        if value == POISON:
            raise Invalid("poison")
        out.send("copies", value)


def copies(stage: Stage) -> list[int]:
    return [int(one.value or b"") for one in stage.messages("copies")]


async def test_a_transaction_has_all_outputs_of_a_batch_and_its_offsets() -> None:
    async with staged() as stage:
        send_many(stage, 15)
        stage.consuming(copying, batch=10, transactional=True)
        await stage.rest()
        assert copies(stage) == list(range(15))
        assert stage.log == [("transact", 10, 10), ("transact", 5, 15)]


async def test_poison_in_a_transaction_is_buried_with_the_outputs_of_the_others() -> None:
    async with staged() as stage:
        send_many(stage, 16, poison=5)
        stage.consuming(copying, batch=16, transactional=True, bisect=True)
        await stage.rest()
        assert copies(stage) == [n for n in range(16) if n != 5]
        assert stage.log == [("inbox", 1), ("transact", 16, 16)]
        assert len(stage.messages(DLQ)) == 1


async def test_a_transaction_that_was_aborted_is_made_again() -> None:
    async with staged() as stage:
        send_many(stage, 5)
        consumer = stage.consuming(copying, batch=10, transactional=True)
        consumer.source.faults["transact"] = [SourceAway("coordinator is moving")] * 3
        await stage.rest()
        assert copies(stage) == list(range(5))
        assert stage.log == [("transact", 5, 5)]


async def test_a_transaction_of_a_partition_that_was_lost_is_dropped() -> None:
    async with staged() as stage:
        send_many(stage, 5)
        consumer = stage.consuming(copying, batch=10, transactional=True)
        consumer.source.faults["transact"] = [LeaseLost("partition 0 of orders is somebody else's")]
        await stage.until(lambda: consumer.source.calls["transact"] == 1)
        await stage.wait(1.0)
        assert (copies(stage), stage.position(), consumer.flow.in_flight) == ([], None, 0)
        stage.broker.expel(consumer.source.inner)  # as the group sees it too; it joins again
        await stage.rest()
        assert copies(stage) == list(range(5))


async def test_a_transaction_of_a_lost_partition_is_not_made_when_the_partition_has_come_back() -> None:
    async with staged() as stage:
        send_many(stage, 5)
        consumer = stage.consuming(copying, batch=10, transactional=True)
        consumer.source.faults["transact"] = [SourceAway("coordinator is moving")]
        await stage.until(lambda: consumer.source.calls["transact"] == 1)
        stage.broker.expel(consumer.source.inner)  # it joins again before the next try
        await stage.rest()
        assert (copies(stage), stage.position()) == (list(range(5)), 5)
        assert stage.log == [("transact", 5, 5)]


async def test_a_stop_does_not_wait_for_a_transaction_whose_partition_has_come_back() -> None:
    async with staged() as stage:
        send_many(stage, 5)
        consumer = stage.consuming(copying, batch=10, transactional=True)
        consumer.source.faults["transact"] = [SourceAway("coordinator is moving")]
        await stage.until(lambda: consumer.source.calls["transact"] == 1)
        consumer.pump.lost([(TOPIC, 0)])
        consumer.pump.assigned({(TOPIC, 0): 0})  # and nothing of it has come yet
        began_s = stage.clock.monotonic()
        assert await consumer.drain()
        assert stage.clock.monotonic() - began_s < 1.0, "no more than until the next try"


async def test_a_transaction_that_waits_for_the_inbox_is_not_made_when_its_partition_has_come_back() -> None:
    async with staged() as stage:
        send_many(stage, 5, poison=2)
        consumer = stage.consuming(copying, batch=10, transactional=True, bisect=True)
        stage.store.fail("enqueue")
        await stage.until(lambda: consumer.pump._errands.is_busy)
        stage.broker.expel(consumer.source.inner)
        await stage.wait(1.0)
        stage.store.mend()
        await stage.rest()
        assert (copies(stage), stage.position(), len(await stage.letters())) == ([0, 1, 3, 4], 5, 1)


def refuse_large(limit: int) -> Callable[[Outgoing], None]:
    def check(message: Outgoing) -> None:
        if message.topic == "copies" and int(message.value or b"") >= limit:
            raise NotSent("the message is too large")

    return check


@pytest.mark.parametrize("transactional", [True, False])
async def test_outputs_that_are_refused_for_good_are_a_failure_of_those_who_sent_them(transactional: bool) -> None:
    async with staged() as stage:
        send_many(stage, 8)
        consumer = stage.consuming(copying, batch=8, transactional=transactional, bisect=True)
        consumer.source.check = refuse_large(7)
        await stage.rest(within_s=60.0)
        assert sorted(copies(stage)) == list(range(7))
        (letter,) = await stage.letters()
        assert "too large" in letter.message
        assert stage.position() == 8


@pytest.mark.parametrize("transactional", [True, False])
async def test_without_bisect_all_of_a_batch_is_buried_whose_outputs_are_refused(transactional: bool) -> None:
    async with staged() as stage:
        send_many(stage, 8)
        consumer = stage.consuming(copying, batch=8, transactional=transactional)
        consumer.source.check = refuse_large(7)
        await stage.rest(within_s=60.0)
        assert len(await stage.letters()) == len(stage.messages(DLQ)) == 8
        assert (copies(stage), stage.position()) == ([], 8)


@pytest.mark.parametrize("transactional", [True, False])
async def test_a_letter_that_the_dlq_refuses_is_in_the_inbox_and_the_partition_goes_on(transactional: bool) -> None:
    async with staged() as stage:

        def check(message: Outgoing) -> None:
            if message.topic == DLQ:
                raise NotSent("the message is too large with its headers")

        async def handle(values: list[int]) -> None:
            if POISON in values:
                raise Permanent("no")

        send_many(stage, 3, poison=1)
        consumer = stage.consuming(handle, batch=1, transactional=transactional)
        consumer.source.check = check
        await stage.rest(within_s=60.0)
        assert len(await stage.letters()) == 1
        assert (stage.messages(DLQ), stage.position()) == ([], 3)
        assert "too large with its headers" in consumer.pump._reported().last_error


async def test_a_batch_waits_for_the_transaction_of_the_one_before() -> None:
    async with staged() as stage:
        runs: list[int] = []

        async def handle(values: list[int], out: Outputs) -> None:
            runs.append(len(values))
            out.send("copies", len(values))

        send_many(stage, 4)
        consumer = stage.consuming(handle, batch=2, transactional=True)
        consumer.source.hanging.add("transact")
        await stage.wait(5.0)
        assert (runs, consumer.flow.in_flight) == ([2], 2)
        assert not await consumer.drain(grace_s=1.0)
        assert stage.position() is None
