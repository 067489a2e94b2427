"""What must be written before a message is finished: inbox, then DLQ, then the commit, wherever it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import NotSent, Permanent, SourceAway, StoreAway, StoreError, Transient, Unwritable
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Outputs, Settlement
from holdfast.runtime.streams.passage import HISTORY, from_dlq, from_retry
from holdfast.types import Discard, JobState, NewJob, Outgoing, Snooze
from tests.unit.runtime.streams.stage import DLQ, TOPIC, Consumer, Stage, staged

Break = Callable[[Stage, Consumer], None]


async def hopeless(value: int) -> None:
    if value == 0:
        raise Permanent("no")


# ---------------------------------------------------------------- dead letters


async def test_a_dead_letter_is_in_the_inbox_then_in_the_dlq_and_only_then_committed() -> None:
    async with staged() as stage:
        stage.send(0, "a")
        stage.consuming(hopeless)
        await stage.rest()
        assert stage.log == [("inbox", 1), ("send", DLQ), ("commit", (TOPIC, 0), 1)]
        (letter,) = await stage.letters()
        entry = from_dlq(stage.messages(DLQ)[0])
        assert entry is not None
        assert (entry.letter, entry.group) == (letter.id, "billing")
        assert (entry.message.place, entry.message.offset) == ((TOPIC, 0), 0)


def hang_inbox(stage: Stage, consumer: Consumer) -> None:
    stage.store.fail("enqueue", fault="hang")


def lose_inbox_reply(stage: Stage, consumer: Consumer) -> None:
    stage.store.fail("enqueue", fault="lost")


def hang_dlq(stage: Stage, consumer: Consumer) -> None:
    consumer.source.hanging.add("send")


def lose_dlq_reply(stage: Stage, consumer: Consumer) -> None:
    consumer.source.lost_replies["send"] = [SourceAway("no answer")] * 1_000


def hang_commit(stage: Stage, consumer: Consumer) -> None:
    consumer.source.hanging.add("commit")


@pytest.mark.parametrize("broken", [hang_inbox, lose_inbox_reply, hang_dlq, lose_dlq_reply, hang_commit])
async def test_killed_between_any_two_steps_nothing_is_lost_and_there_is_one_letter(broken: Break) -> None:
    async with staged() as stage:
        stage.send(0, "a")
        stage.send(1, "a")
        spec = stage.stream(hopeless)
        first = stage.consumer(spec)
        broken(stage, first)
        await stage.wait(3.0)
        assert stage.position() is None
        await first.kill()
        stage.store.mend()
        stage.consumer(spec)
        await stage.rest()
        (letter,) = await stage.letters()
        copies = [from_dlq(one) for one in stage.messages(DLQ)]
        assert len(copies) >= 1
        assert {one.letter if one else None for one in copies} == {letter.id}
        assert len({(one.number, one.started_at) for one in letter.attempts}) == len(letter.attempts)
        assert stage.position() == 2


@pytest.mark.parametrize("fault", ["away", "lost"])
async def test_a_store_that_is_away_is_waited_for_and_nothing_is_committed_meanwhile(fault: Any) -> None:
    async with staged() as stage:
        stage.send(0, "a")
        stage.store.fail("enqueue", fault=fault, error=StoreAway("the disk is full"))
        consumer = stage.consuming(hopeless)
        await stage.wait(60.0)
        assert (stage.position(), stage.messages(DLQ)) == (None, [])
        assert consumer.pump.report.last_error == "the disk is full"
        stage.store.mend()
        await stage.rest()
        assert (len(await stage.letters()), len(stage.messages(DLQ)), stage.position()) == (1, 1, 1)


async def test_a_source_that_is_away_while_it_buries_is_waited_for() -> None:
    async with staged() as stage:
        stage.send(0, "a")
        consumer = stage.consuming(hopeless)
        consumer.source.faults["send"] = [SourceAway("leader not available")] * 20
        await stage.rest()
        assert (len(await stage.letters()), len(stage.messages(DLQ)), stage.position()) == (1, 1, 1)


async def test_letters_that_gather_are_written_together() -> None:
    async with staged() as stage:

        async def never(value: int) -> None:
            raise Permanent("no")

        for n in range(50):
            stage.send(n)
        stage.consuming(never)
        await stage.rest()
        assert [one for one in stage.log if one[0] == "inbox"] == [("inbox", 50)]
        assert len(stage.messages(DLQ)) == 50


async def test_one_copy_that_the_dlq_refuses_does_not_keep_the_others_out() -> None:
    async with staged() as stage:

        async def never(value: int) -> None:
            raise Permanent("no")

        def check(message: Outgoing) -> None:
            if message.topic == DLQ and message.value == b"3":
                raise NotSent("the message is too large")

        for n in range(5):
            stage.send(n)
        consumer = stage.consuming(never)
        consumer.source.check = check
        await stage.rest()
        assert sorted(one.value or b"" for one in stage.messages(DLQ)) == [b"0", b"1", b"2", b"4"]
        assert (len(await stage.letters()), stage.position()) == (5, 5)


async def test_a_retry_that_its_topic_refuses_goes_without_its_history() -> None:
    async with staged() as stage:
        is_busy = True

        async def busy(value: int) -> None:
            if is_busy:
                raise Transient("busy")

        def check(message: Outgoing) -> None:
            if ".retry." in message.topic and message.headers[-1] != (HISTORY, b"[]"):
                raise NotSent("the message is too large")

        stage.send(0)
        consumer = stage.consuming(busy, blocking=False)
        consumer.source.check = check
        await stage.until(lambda: any(one[0] == "send" for one in stage.log))
        is_busy = False
        await stage.rest()
        (through,) = [from_retry(one) for n in range(1, 4) for one in stage.messages(f"orders.billing.retry.{n}")]
        assert (through.attempt, through.message.retries, through.attempts) == (2, 1, ())
        assert (await stage.letters(), stage.position()) == ([], 1)


async def test_a_retry_that_its_topic_will_never_take_is_made_in_place() -> None:
    async with staged() as stage:
        policy = RetryPolicy(max_retries=2, strategy="fixed", initial_delay=5.0, jitter=False, total_timeout=None)
        at: list[float] = []

        async def busy(value: int) -> None:
            at.append(stage.now())
            raise Transient("busy")

        def check(message: Outgoing) -> None:
            if ".retry." in message.topic:
                raise NotSent("the message is too large")

        stage.send(0)
        consumer = stage.consuming(busy, blocking=False, retry=policy)
        consumer.source.check = check
        await stage.rest()
        (letter,) = await stage.letters()
        assert [(one.number, one.message) for one in letter.attempts] == [(1, "busy"), (2, "busy"), (3, "busy")]
        assert [round(one - at[0]) for one in at] == [0, 5, 10]
        assert (len(stage.messages(DLQ)), stage.position()) == (1, 1)


# ---------------------------------------------------------------- letters that no store takes


async def test_one_letter_that_the_store_refuses_keeps_neither_the_others_nor_the_stream() -> None:
    async with staged() as stage:

        async def never(value: int) -> None:
            raise Permanent(f"no {value}")

        def check(jobs: Sequence[NewJob]) -> None:
            if any(b'"value":3' in one.payload and not is_short(one) for one in jobs):
                raise StoreError("the number is out of range")

        def is_short(job: NewJob) -> bool:
            return job.end is not None and len(job.end.attempts) == 1 and len(job.end.attempts[0].error_name) <= 2_000

        stage.store.check = check
        for n in range(5):
            stage.send(n)
        consumer = stage.consuming(never)
        lengthened(consumer)
        await stage.rest()
        letters = await stage.letters()
        assert [one.message for one in letters] == [f"no {n}" for n in range(5)]
        assert [len(one.error_name) > 2_000 for one in letters] == [True, True, True, False, True]
        assert (len(stage.messages(DLQ)), stage.position()) == (5, 5)


def lengthened(consumer: Consumer) -> None:
    """Every failure has a name that is longer than any bound of ours."""
    settle = consumer.flow.settle

    def settled(settlement: Settlement) -> None:
        assert settlement.attempt is not None
        settle(replace(settlement, attempt=replace(settlement.attempt, error_name="E" * 3_000)))

    consumer.flow.settle = settled  # type: ignore[method-assign]


@pytest.mark.parametrize("error", [StoreError("no"), Unwritable("1", "no"), OverflowError("no"), ValueError("no")])
async def test_a_message_that_the_inbox_will_never_take_is_in_the_dlq_and_done_with_loudly(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged() as stage:

        def check(jobs: Sequence[NewJob]) -> None:
            raise error

        stage.store.check = check
        stage.send(0, "a")
        stage.send(1, "a")
        stage.consuming(hopeless)
        await stage.rest()
        assert (await stage.letters(), len(stage.messages(DLQ)), stage.position()) == ([], 1, 2)
        (said,) = [one for one in caplog.records if one.levelname == "CRITICAL"]
        assert "the DLQ alone has the message" in said.message


async def test_a_store_that_takes_nothing_at_all_is_waited_for() -> None:
    async with staged() as stage:
        stage.send(0, "a")
        stage.store.fail("enqueue", fault="away", error=StoreError("it wants a password"))
        stage.store.fail("exchange", fault="away", error=StoreError("it wants a password"))
        stage.consuming(hopeless)
        await stage.wait(60.0)
        assert (stage.position(), stage.messages(DLQ)) == (None, [])
        stage.store.mend()
        await stage.rest()
        assert (len(await stage.letters()), len(stage.messages(DLQ)), stage.position()) == (1, 1, 1)


async def test_letters_go_to_the_store_no_more_than_a_few_megabytes_at_a_time() -> None:
    async with staged() as stage:

        async def never(value: bytes) -> None:
            raise Permanent("no")

        for _ in range(5):
            stage.send(b"x" * 3 * 1024 * 1024)
        stage.consuming(never)
        await stage.rest()
        assert [one[1] for one in stage.log if one[0] == "inbox"] == [2, 2, 1]
        assert len(await stage.letters()) == 5


# ---------------------------------------------------------------- outputs


async def test_outputs_are_sent_before_their_message_is_committed() -> None:
    async with staged() as stage:

        async def copy(value: int, out: Outputs) -> None:
            out.send("copies", value, key="k", headers={"from": b"orders"})

        stage.send(7)
        stage.consuming(copy)
        await stage.rest()
        assert stage.log == [("send", "copies"), ("commit", (TOPIC, 0), 1)]
        (copied,) = stage.messages("copies")
        assert (copied.value, copied.key, copied.headers) == (b"7", b"k", (("from", b"orders"),))


async def test_of_a_run_that_raised_or_snoozed_nothing_is_sent() -> None:
    async with staged() as stage:
        runs: list[int] = []

        async def copy(value: int, out: Outputs) -> object:
            runs.append(value)
            out.send("copies", len(runs))
            if len(runs) == 1:
                raise Transient("busy")
            return Snooze(5.0) if len(runs) == 2 else None

        stage.send(7)
        stage.consuming(copy)
        await stage.rest()
        assert [one.value for one in stage.messages("copies")] == [b"3"]


async def test_outputs_of_a_run_that_was_discarded_are_sent() -> None:
    async with staged() as stage:

        async def copy(value: int, out: Outputs) -> object:
            out.send("copies", value)
            return Discard("nothing else to do")

        stage.send(7)
        stage.consuming(copy)
        await stage.rest()
        assert len(stage.messages("copies")) == 1


async def test_outputs_that_cannot_be_sent_yet_hold_back_their_message_alone() -> None:
    async with staged() as stage:

        async def copy(value: int, out: Outputs) -> None:
            if value == 0:
                out.send("copies", value)

        stage.send(0)
        stage.send(1)
        spec = stage.stream(copy)
        first = stage.consumer(spec)
        first.source.hanging.add("send")
        await stage.wait(5.0)
        assert (stage.position() or 0, first.flow.in_flight) == (0, 1)
        await first.kill()
        stage.consumer(spec)
        await stage.rest()
        assert (len(stage.messages("copies")), stage.position()) == (1, 2)


async def test_outputs_that_are_refused_for_good_bury_their_message() -> None:
    async with staged() as stage:

        async def copy(value: int, out: Outputs) -> None:
            out.send("copies", value)

        def check(message: Outgoing) -> None:
            if message.topic == "copies" and message.value == b"1":
                raise NotSent("the message is too large")

        for n in range(3):
            stage.send(n)
        consumer = stage.consuming(copy)
        consumer.source.check = check
        await stage.rest()
        (letter,) = await stage.letters()
        assert "too large" in letter.message
        assert sorted(one.value or b"" for one in stage.messages("copies")) == [b"0", b"2"]
        assert stage.position() == 3


async def test_a_replayed_message_whose_outputs_are_refused_is_dead_again() -> None:
    """It must not be marked as completed before the server has taken what it sends."""
    async with staged() as stage:
        is_broken = True

        async def copy(value: int, out: Outputs) -> None:
            if is_broken:
                raise Permanent("not deployed yet")
            out.send("copies", value)

        def check(message: Outgoing) -> None:
            if message.topic == "copies":
                raise NotSent("the message is too large")

        stage.send(0)
        stage.stream(copy, retry=RetryPolicy(max_retries=0))
        await stage.idle()
        is_broken = False
        (letter,) = await stage.letters()
        await stage.app.dead_letters.aretry(letter.id)
        stage.on_source = lambda source: setattr(source, "check", check)
        await stage.idle()
        (again,) = await stage.letters()
        assert (again.id, again.state) == (letter.id, JobState.DEAD_LETTER)
        assert "too large" in again.message
