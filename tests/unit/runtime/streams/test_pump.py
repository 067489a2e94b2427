"""A consumer among others: what it commits, hands over, loses and finishes; and how it bears what is away."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import Permanent, SourceAway, SourceError, StoreAway, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Progress
from holdfast.types import FailureType, Message
from tests.unit.runtime.streams.stage import DLQ, TOPIC, Stage, staged

FIXED = RetryPolicy(max_retries=5, strategy="fixed", initial_delay=5.0, jitter=False, total_timeout=None)


class Gates:
    """A handler whose runs wait until they are let through."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.done: Counter[int] = Counter()
        self.cancelled: list[int] = []
        self._gates: dict[int, asyncio.Event] = {}

    def open(self, *values: int) -> None:
        for value in values:
            self._gates.setdefault(value, asyncio.Event()).set()

    async def handle(self, value: int) -> None:
        self.began.append(value)
        try:
            await self._gates.setdefault(value, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.cancelled.append(value)
            raise
        self.done[value] += 1


def send_keyed(stage: Stage, n: int, partitions: int = 1) -> None:
    for value in range(n):
        stage.send(value, f"k{value}", partition=value % partitions)


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


# ---------------------------------------------------------------- hand-overs


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
        consumer = stage.consumer(stage.stream(handle, timeout=0.01), is_replaceable=is_replaceable)
        await until_real(stage, lambda: stage.position() == 2)
        (letter,) = await stage.letters()
        assert (letter.reason, letter.failure_type) == ("still running after its time limit", FailureType.NETWORK)
        assert consumer.pump.runner.must_be_replaced is is_replaceable
        assert consumer.flow.in_flight == 0
        gate.set()
        await until_real(stage, lambda: not consumer.pump.runner.is_on_threads)
        await stage.rest()
        assert (stage.position(), len(await stage.letters())) == (2, 1)


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
