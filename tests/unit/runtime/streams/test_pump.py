"""A consumer by itself: what it commits, how it bears what is away, and what it reports."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from holdfast.errors import Permanent, SourceAway, SourceError, StoreAway, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.types import Message
from tests.unit.runtime.streams.handlers import Gates, send_keyed
from tests.unit.runtime.streams.stage import DLQ, TOPIC, staged

FIXED = RetryPolicy(max_retries=5, strategy="fixed", initial_delay=5.0, jitter=False, total_timeout=None)


# ---------------------------------------------------------------- commits


async def test_nothing_behind_an_unfinished_message_is_committed() -> None:
    async with staged() as stage:
        gates = Gates()
        send_keyed(stage, 5)
        gates.open(0, 1, 3, 4)
        stage.consuming(gates.handle)
        await stage.wait(3.0)
        assert sorted(gates.done) == [0, 1, 3, 4]
        assert stage.position() == 2
        gates.open(2)
        await stage.rest()
        assert stage.position() == 5


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_failed_message_is_not_skipped_when_its_consumer_is_killed(blocking: bool) -> None:
    """The defect that peers have: a later commit passes the message that waits for its retry."""
    async with staged() as stage:
        seen: list[int] = []

        async def handle(value: int) -> None:
            seen.append(value)
            if value == 1 and seen.count(1) == 1:
                raise Transient("busy")

        send_keyed(stage, 5)
        spec = stage.stream(handle, retry=FIXED, blocking=blocking)
        first = stage.consumer(spec)
        await stage.until(lambda: len(seen) == 5)
        await stage.wait(1.0)
        assert stage.position() == (1 if blocking else 5)
        await first.kill()
        stage.consumer(spec)
        await stage.rest()
        assert seen.count(1) == 2
        assert stage.position() == 5


async def test_however_early_a_consumer_is_killed_everything_is_handled_in_the_end() -> None:
    """Killed after so many steps of the loop, for each number of steps: nothing is lost, whatever it was doing."""
    for steps in range(0, 60, 3):
        async with staged(partitions=2) as stage:
            done: Counter[int] = Counter()

            async def handle(value: int) -> None:
                if value == 3:
                    raise Permanent("no")
                await stage.clock.asleep(0.001)
                done[value] += 1  # noqa: B023

            send_keyed(stage, 8, partitions=2)
            spec = stage.stream(handle)
            first = stage.consumer(spec)
            for _ in range(steps):
                await asyncio.sleep(0)  # noqa: TID251 - gives way, and waits for nothing
                if steps % 2:
                    stage._move(0.5)
            await first.kill()
            stage.consumer(spec)
            await stage.rest()
            assert sorted(done) == [0, 1, 2, 4, 5, 6, 7]
            assert len(await stage.letters()) == 1
            assert len(stage.messages(DLQ)) >= 1
            assert (stage.position(0), stage.position(1)) == (4, 4)


async def test_retries_survive_any_number_of_hand_overs() -> None:
    """Also where the second consumer commits something else and fails no attempt of its own."""
    async with staged() as stage:
        gate = asyncio.Event()
        seen: list[int] = []

        async def handle(value: int, msg: Message) -> None:
            if value == 0:
                seen.append(msg.retries)
                if gate.is_set():
                    await asyncio.get_running_loop().create_future()
                raise Transient("busy")

        stage.send(0, "a")
        spec = stage.stream(handle, retry=FIXED)
        first = stage.consumer(spec)
        await stage.until(lambda: seen == [0, 1])
        await stage.wait(1.0)
        await first.kill()
        gate.set()
        second = stage.consumer(spec)
        await stage.until(lambda: len(seen) == 3)
        stage.send(1, "b")
        await stage.until(lambda: second.source.calls["commit"] > 0)
        await second.kill()
        gate.clear()
        third = stage.consumer(spec)
        await stage.until(lambda: len(seen) == 4)
        await stage.wait(1.0)
        await third.kill()
        stage.consumer(spec)
        await stage.rest()
        assert seen == [0, 1, 2, 2, 3, 4, 5]
        (letter,) = await stage.letters()
        assert letter.attempts[-1].number == 6
        (copy,) = stage.messages(DLQ)
        assert copy.header("retry-count") == b"5"


async def test_a_commit_that_fails_is_made_again() -> None:
    async with staged() as stage:
        gates = Gates()
        gates.open(*range(5))
        send_keyed(stage, 5)
        consumer = stage.consuming(gates.handle)
        consumer.source.faults["commit"] = [SourceAway("rebalance in progress"), SourceError("unknown member")]
        await stage.rest()
        assert stage.position() == 5
        assert consumer.source.calls["commit"] == 3


# ---------------------------------------------------------------- what is away


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        ("open", SourceAway("no broker")),
        ("open", SourceError("not authorised")),
        ("ensure", SourceAway("no broker")),
        ("ensure", SourceError("not authorised")),
        ("receive", SourceAway("no broker")),
        ("lags", SourceAway("no broker")),
        ("lags", SourceError("not authorised")),
    ],
)
async def test_a_source_that_fails_is_tried_until_it_works(verb: str, error: Exception) -> None:
    async with staged() as stage:
        gates = Gates()
        gates.open(0)
        send_keyed(stage, 1)
        consumer = stage.consuming(gates.handle)
        consumer.source.faults[verb] = [error] * 3
        await stage.rest()
        await stage.until(lambda: not consumer.source.faults[verb])
        await stage.until(lambda: consumer.pump.report.last_error == str(error))
        assert consumer.pump.report.last_error_at >= 1_000_000.0
        assert stage.position() == 1


async def test_a_broker_that_is_away_is_reported_until_it_is_back() -> None:
    async with staged() as stage:
        gates = Gates()
        gates.open(0, 1)
        consumer = stage.consuming(gates.handle)
        await stage.rest()
        stage.broker.go_away("the broker is restarting")
        await stage.wait(10.0)
        assert consumer.pump.report.away == "the broker is restarting"
        stage.broker.come_back()
        send_keyed(stage, 2)
        await stage.rest()
        await stage.wait(1.0)
        assert (consumer.pump.report.away, stage.position()) == ("", 2)


async def test_who_waits_for_it_to_be_idle_waits_until_a_broker_that_was_away_has_been_asked_again() -> None:
    async with staged() as stage:
        gates = Gates()
        gates.open(0)
        consumer = stage.consuming(gates.handle)
        await stage.rest()
        stage.broker.go_away()
        await stage.wait(2.0)
        assert not consumer.pump.is_idle
        stage.broker.come_back()
        send_keyed(stage, 1)
        await stage.rest()
        assert gates.done == Counter([0])


async def test_while_the_store_is_away_messages_wait_for_their_guards() -> None:
    async with staged() as stage:
        gates = Gates()
        gates.open(0)
        send_keyed(stage, 1)
        stage.store.fail("exchange", error=StoreAway("no store"))
        consumer = stage.consuming(gates.handle, rate="100/minute")
        await stage.wait(10.0)
        assert (gates.began, consumer.flow.in_flight) == ([], 1)
        assert consumer.pump.report.last_error == "no store"
        stage.store.mend()
        await stage.rest()
        assert (gates.done, stage.position()) == (Counter([0]), 1)


async def test_a_loop_that_fails_in_a_way_nobody_thought_of_asks_for_another_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with staged() as stage:
        gates = Gates()
        send_keyed(stage, 1)
        consumer = stage.consumer(stage.stream(gates.handle))
        await stage.until(lambda: gates.began == [0])
        consumer.source.faults["lags"] = [ZeroDivisionError("a bug")]
        with caplog.at_level(logging.CRITICAL, "holdfast.worker"):
            await stage.until(lambda: consumer.pump.runner.must_be_replaced)
        assert "in a way that nobody thought of" in caplog.text
        assert consumer.news == 1
        assert consumer.pump._reported().last_error == "ZeroDivisionError: a bug"
        gates.open(0)
        assert await consumer.drain()
        assert (gates.done, stage.position()) == (Counter([0]), 1)  # what ran is finished and committed all the same


# ---------------------------------------------------------------- reports


async def test_a_report_says_how_far_behind_and_what_holds_it_up() -> None:
    async with staged() as stage:
        gates = Gates()
        gates.open(1)
        stage.send(0, "stuck")
        stage.send(1, "b")
        stage.send(2, "stuck")
        for n in range(3, 10):
            stage.send(n, "c")
        consumer = stage.consuming(gates.handle, in_flight=3)
        await stage.wait(20.0)
        report = consumer.pump.report
        assert (report.name, report.group, report.topic, report.location) == (
            "bill",
            "billing",
            "orders",
            "memory://orders",
        )
        assert (report.in_flight, report.last_error, report.away) == (2, "", "")
        (part,) = [one for one in report.partitions if one.topic == TOPIC]
        assert (part.position, part.lag, part.in_flight, part.buffered) == (0, 10, 2, 7)
        assert (part.stuck_id, part.stuck_key, part.paused) == ("orders/0/0", "stuck", "")
        assert part.stuck_s == pytest.approx(20.0, abs=1.0)
        gates.open(*range(10))
        await stage.rest()
        await stage.wait(6.0)
        (part,) = [one for one in consumer.pump.report.partitions if one.topic == TOPIC]
        assert (part.position, part.lag, part.stuck_id, part.stuck_s) == (10, 0, "", 0.0)


async def test_the_last_error_of_a_handler_is_in_the_report() -> None:
    async with staged() as stage:

        async def handle(value: int) -> None:
            raise Permanent("no such account\nat all")

        stage.send(0)
        consumer = stage.consuming(handle)
        await stage.rest()
        await stage.wait(1.0)
        assert consumer.pump.report.last_error == "holdfast.errors.Permanent: no such account at all"
