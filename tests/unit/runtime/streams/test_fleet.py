"""Streams in a whole worker: beside jobs, under the same breakers and limits, from its start to its exit."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from holdfast.errors import ConfigError, Permanent, SourceError, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Outputs
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.worker import Exit, Worker, WorkerSettings
from holdfast.types import JobState, Message
from tests.unit.runtime.streams.stage import CALM, DLQ, Stage, staged

PATIENT = RetryPolicy(max_retries=10, strategy="fixed", initial_delay=1.0, jitter=False, total_timeout=None)


class Ledger:
    """Something that streams and tasks call, and that is down until it is mended."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.is_down = True
        self.calls: list[tuple[float, int]] = []
        self.done: list[int] = []

    async def book(self, value: int) -> None:
        self.calls.append((self._stage.now(), value))
        if self.is_down:
            raise Transient("the ledger is down")
        self.done.append(value)


def breaker(**options: Any) -> CircuitBreaker:
    settings = {"failure_threshold": 3, "recovery_timeout": 100.0, "half_open_max_calls": 2, **options}
    return CircuitBreaker("ledger", **settings)


async def state_of(stage: Stage) -> str:
    (found,) = [one for one in await stage.app.breakers.alist() if one.key == "ledger"]
    return found.mode.value


# ---------------------------------------------------------------- under a breaker


async def test_an_open_breaker_parks_messages_at_no_cost_and_keeps_the_order_of_each_key() -> None:
    async with staged() as stage:
        ledger = Ledger(stage)
        stage.stream(ledger.book, breaker=breaker(), retry=PATIENT)
        for n in range(20):
            stage.send(n, f"k{n % 4}")
        async with stage.working() as worker:
            await stage.until(lambda: len(ledger.calls) >= 3)
            await stage.wait(50.0)
            assert await state_of(stage) == "open"
            calls = len(ledger.calls)
            assert calls <= 6  # the four keys, and what was under way
            await stage.wait(40.0)
            assert len(ledger.calls) == calls  # nobody is sent there while it is open
            ledger.is_down = False
            await stage.until(lambda: worker.streams.pumps[0].is_idle)
            assert await state_of(stage) == "closed"
        assert sorted(ledger.done) == list(range(20))
        for key in range(4):
            assert [n for n in ledger.done if n % 4 == key] == list(range(key, 20, 4))
        trials = [at for at, _ in ledger.calls[calls:]]
        assert trials[0] >= 100.0
        assert (await stage.letters(), stage.position()) == ([], 20)


async def test_while_half_open_no_more_than_the_trials_are_made() -> None:
    async with staged() as stage:
        ledger = Ledger(stage)
        stage.stream(ledger.book, breaker=breaker(), retry=PATIENT)
        for n in range(10):
            stage.send(n)
        async with stage.working():
            await stage.wait(90.0)
            before = len(ledger.calls)
            await stage.wait(60.0)
            assert 1 <= len(ledger.calls) - before <= 2
            assert await state_of(stage) == "open"
            ledger.is_down = False
            await stage.until(lambda: stage.position() == 10)
        assert sorted(ledger.done) == list(range(10))


async def test_with_bury_messages_are_given_up_while_the_breaker_is_open() -> None:
    async with staged() as stage:
        ledger = Ledger(stage)
        stage.stream(ledger.book, breaker=breaker(), retry=RetryPolicy(max_retries=0), when_open="bury", in_flight=1)
        for n in range(10):
            stage.send(n)
        async with stage.working():
            await stage.until(lambda: stage.position() == 10)
        letters = await stage.letters()
        assert len(letters) == len(stage.messages(DLQ)) == 10
        assert Counter(one.reason for one in letters) == {"retries used up": 3, "breaker open": 7}
        assert len(ledger.calls) == 3


async def test_a_stream_and_a_task_share_the_breaker_of_one_name() -> None:
    async with staged() as stage:
        ledger = Ledger(stage)
        shared = breaker()
        stage.stream(ledger.book, breaker=shared, retry=PATIENT)
        task = stage.app.task(name="pay", breaker=shared, retry=RetryPolicy(max_retries=0))(ledger.book)
        for n in range(3):
            await task.aenqueue(n)
        async with stage.working():
            await stage.until(lambda: len(ledger.calls) == 3)
            await stage.wait(1.0)
            stage.send(7)
            await stage.wait(30.0)
            assert len(ledger.calls) == 3  # the jobs have opened it, and the message waits
            ledger.is_down = False
            await stage.until(lambda: stage.position() == 1)
        assert ledger.done == [7]
        assert ledger.calls[-1][0] >= 100.0


# ---------------------------------------------------------------- several streams, and jobs


async def test_streams_hand_on_to_each_other_and_to_jobs() -> None:
    async with staged() as stage:
        seen: list[tuple[str, int]] = []

        @stage.app.task(name="invoice")
        async def invoice(value: int) -> None:
            seen.append(("invoice", value))

        async def bill(value: int, out: Outputs) -> None:
            seen.append(("bill", value))
            out.send("bills", value + 1)

        async def ship(value: int) -> None:
            seen.append(("ship", value))
            await invoice.aenqueue(value + 1)

        stage.stream(bill)
        stage.app.stream("memory://bills", group="shipping", name="ship", breaker=None)(ship)
        stage.send(1)
        await stage.idle()
        assert seen == [("bill", 1), ("ship", 2), ("invoice", 3)]


async def test_a_worker_reads_the_streams_that_it_is_told_to() -> None:
    async with staged() as stage:
        seen: list[str] = []

        async def one(value: int) -> None:
            seen.append("one")

        async def other(value: int) -> None:
            seen.append("other")

        stage.stream(one, name="one", group="a")
        stage.stream(other, name="other", group="b")
        stage.send(0)
        async with stage.working(WorkerSettings(lease_s=80_000.0, streams=("other",))) as worker:
            await stage.until(lambda: stage.position(group="b") == 1)
            assert [pump.spec.name for pump in worker.streams.pumps] == ["other"]
            assert [report.name for report in worker.streams.reports()] == ["other"]
        assert (seen, stage.position(group="a")) == (["other"], None)


async def test_a_stream_that_is_not_in_the_app_is_refused() -> None:
    async with staged() as stage:
        with pytest.raises(ConfigError, match=r"there is no 'ship' in this app; it has none at all$"):
            stage.app.worker(WorkerSettings(streams=("ship",)))

        async def bill(value: int) -> None: ...

        stage.stream(bill)
        with pytest.raises(ConfigError, match=r"there is no 'ship' in this app; it has bill$"):
            stage.app.worker(WorkerSettings(streams=("ship", "bill")))


@pytest.mark.parametrize("batch", [None, 10])
async def test_a_handler_whose_annotations_cannot_work_keeps_its_worker_from_starting(batch: int | None) -> None:
    """Otherwise every message of the topic would be given up for it."""
    async with staged() as stage:

        async def bill(value: int, other: int) -> None: ...
        async def bills(value: int) -> None: ...

        stage.stream(bill if batch is None else bills, batch=batch)
        with pytest.raises(ConfigError, match=r"^bills?\(\): .*(annotated Message or Outputs|must be a list)"):
            stage.app.worker()
        assert stage.app.worker(WorkerSettings(streams=())).streams.pumps == []


# ---------------------------------------------------------------- the end


async def finished(stage: Stage, worker: Worker, running: asyncio.Task[Exit]) -> Exit:
    worker.stop()
    await stage.until(running.done)
    return running.result()


async def test_a_worker_that_is_stopped_finishes_its_messages_and_ends_well() -> None:
    async with staged() as stage:
        done: list[int] = []

        async def bill(value: int) -> None:
            await stage.clock.asleep(5.0)
            done.append(value)

        stage.stream(bill, in_flight=2)
        for n in range(6):
            stage.send(n)
        worker = stage.app.worker(CALM)
        running = asyncio.create_task(worker.run())
        await stage.until(lambda: len(done) == 2)
        await stage.wait(1.0)
        assert await finished(stage, worker, running) is Exit.DRAINED
        assert (done, stage.position()) == ([0, 1, 2, 3], 4)
        await stage.idle()
        assert sorted(done) == list(range(6))


async def test_messages_that_outlast_the_grace_time_are_released_and_the_exit_says_so() -> None:
    async with staged() as stage:
        began: list[int] = []

        async def bill(value: int) -> None:
            began.append(value)
            if len(began) == 1:
                await asyncio.get_running_loop().create_future()

        stage.stream(bill)
        stage.send(0)
        worker = stage.app.worker(WorkerSettings(lease_s=80_000.0, grace_s=2.0))
        running = asyncio.create_task(worker.run())
        await stage.until(lambda: began == [0])
        assert await finished(stage, worker, running) is Exit.RELEASED
        assert not stage.position()
        await stage.idle()
        assert (began, stage.position()) == ([0, 0], 1)


async def test_a_worker_whose_pump_has_failed_asks_to_be_replaced() -> None:
    async with staged() as stage:

        async def bill(value: int) -> None: ...

        stage.stream(bill)
        worker = stage.app.worker(CALM)
        running = asyncio.create_task(worker.run())
        await stage.until(lambda: bool(stage.sources))
        stage.sources[0].faults["receive"] = [ZeroDivisionError("a bug")]
        await stage.until(running.done)
        assert running.result() is Exit.REPLACE


async def test_a_source_that_breaks_is_opened_anew_and_nothing_is_lost() -> None:
    async with staged() as stage:
        done: Counter[int] = Counter()

        async def bill(value: int) -> None:
            await stage.clock.asleep(2.0)
            done[value] += 1

        stage.stream(bill, in_flight=2)
        for n in range(6):
            stage.send(n)
        async with stage.working() as worker:
            await stage.until(lambda: len(done) == 2)
            broken = worker.streams.pumps[0]
            stage.sources[0].faults["receive"] = [SourceError("fatal: fenced")]
            stage.send(6)
            await stage.until(lambda: stage.position() == 7)
            assert worker.streams.pumps[0] is not broken
            assert "fenced" in broken._reported().last_error
        assert done == Counter(range(7))


async def test_a_worker_ends_well_though_what_carried_its_letters_cannot_be_closed() -> None:
    async with staged() as stage:
        is_broken = True

        async def bill(value: int) -> None:
            if is_broken:
                raise Permanent("no")

        stage.on_source = lambda source: source.faults.update(close=[SourceError("timed out")])
        stage.stream(bill)
        stage.send(0)
        async with stage.working():
            await stage.until(lambda: stage.position() == 1)
            (letter,) = await stage.letters()
            is_broken = False
            await stage.app.dead_letters.aretry(letter.id)
            await stage.until(lambda: len(stage.sources) == 2 and stage.sources[1].calls["send"] == 2)
        (record,) = await stage.store.inner.get([letter.id])
        assert record is not None
        assert record.state is JobState.COMPLETED
        assert [source.calls["close"] for source in stage.sources] == [1, 1]


async def test_counts_say_what_became_of_messages() -> None:
    async with staged() as stage:

        async def bill(value: int, msg: Message) -> None:
            if value == 0:
                raise Permanent("no")
            if value == 1 and msg.retries == 0:
                raise Transient("busy")

        stage.stream(bill)
        for n in range(5):
            stage.send(n)
        await stage.idle()
        totals = {one.name: one.n for one in (await stage.store.stats()).totals if one.task == "bill"}
        assert {name: totals.get(name) for name in ("processed", "buried", "retried", "dead")} == {
            "processed": 4,
            "buried": 1,
            "retried": 1,
            "dead": 1,
        }
