"""Whoever may write to a retry topic may write our headers: what they say is believed within bounds, and no further."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.errors import Permanent
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Stats, StreamReport, WorkerRecord
from holdfast.runtime.streams.letters import letter_id
from holdfast.runtime.streams.passage import DUE, HISTORY, PASSAGE, Passage, from_marker, to_retry
from holdfast.runtime.streams.progress import troubles
from holdfast.runtime.streams.views import stream_views
from holdfast.types import Header, JobState, Message
from tests.unit.runtime.streams.stage import DLQ, TOPIC, Consumer, Stage, staged
from tests.unit.runtime.streams.test_carrier import ONCE, RETRY_0, Shop, dead_letter, record_of

RETRY_1 = "orders.billing.retry.1"
STEPS = RetryPolicy(max_retries=1, strategy="fixed", initial_delay=60.0, jitter=False, total_timeout=None)


def forged(*, due: bytes = b"0", history: bytes = b"[]", **fields: Any) -> tuple[Header, ...]:
    carried = {"group": "billing", "topic": TOPIC, "partition": 0, "offset": "0", "timestamp": 5.0, "attempt": 1}
    return (DUE, due), (PASSAGE, msgspec.json.encode(carried | fields)), (HISTORY, history)


def running(stage: Stage, **options: Any) -> Shop:
    """A stream whose handler fails nothing, with its retry topics."""
    shop = Shop()
    shop.error = None
    stage.stream(shop.handle, **options)
    for topic in (RETRY_0, RETRY_1):
        stage.broker.create_topic(topic, 1)
    return shop


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("attempt", [2**31, 2**63 - 1, 10**30])
async def test_a_number_that_no_store_holds_costs_nobody_else_anything(attempt: int) -> None:
    async with staged() as stage:
        shop = running(stage, retry=ONCE)
        shop.error = Permanent("no")
        stage.send(7, "k", topic=RETRY_0, headers=forged(attempt=attempt))
        stage.send(8, "k")
        await stage.idle()
        assert [[one.number for one in letter.attempts] for letter in await stage.letters()] == [[1], [1]]


# ---------------------------------------------------------------- waits


@pytest.mark.parametrize("due", [b"1e300", b"9999999999"])
async def test_what_is_replayed_never_waits_behind_a_message_that_says_that_it_is_not_due(due: bytes) -> None:
    async with staged() as stage:
        shop = running(stage)
        stage.send(7, "evil", topic=RETRY_0, headers=forged(due=due))
        stage.send(8, "good", topic=RETRY_0, headers=forged(offset="3"))
        consumer = stage.consumer()
        await stage.rest(within_s=5.0)
        assert shop.values() == [b"7", b"8"]
        assert consumer.pump.is_idle


async def test_no_message_waits_for_longer_than_a_day_and_health_says_so_long_before() -> None:
    async with staged() as stage:
        shop = running(stage, blocking=False, retry=STEPS)
        stage.send(7, "evil", topic=RETRY_1, headers=forged(due=b"1e300"))
        stage.send(8, "good", topic=RETRY_1, headers=forged(offset="3"))
        consumer = stage.consumer()
        await stage.wait(5.0)
        part = consumer.flow.parts[RETRY_1, 0]
        due_at = part.due_at
        assert part.rest_s == 2 * max(stage.app.stream_specs["bill"].steps) < 3_600.0
        assert troubles_of(consumer, part.rest_s - 10.0) == []
        (trouble,) = troubles_of(consumer, part.rest_s + 10.0)
        assert "partition 0 of orders.billing.retry.1 has waited" in trouble
        consumer.pump.wake()
        await stage.quiet()
        assert part.due_at == due_at <= stage.clock.now() + 86_400.0
        assert shop.runs == []
        later(consumer, 86_401.0)
        await stage.rest(within_s=5.0)
        assert shop.values() == [b"7", b"8"]


def later(consumer: Consumer, seconds: float) -> None:
    """The store's clock has gone on by so much."""
    consumer.pump.runner.set_now(consumer.pump.runner.now() + seconds)
    consumer.pump.wake()


def troubles_of(consumer: Consumer, after_s: float) -> list[str]:
    """What health would say of this consumer after a while."""
    part = consumer.flow.parts[RETRY_1, 0]
    report = StreamReport(
        name="bill",
        group="billing",
        location="memory://orders",
        topic=TOPIC,
        partitions=(part.report(part.moved_at + after_s),),
    )
    worker = WorkerRecord(
        id="w", host="h", pid=1, queues=(), started_at=0.0, seen_at=1.0, lease_s=9.0, streams=(report,)
    )
    (view,) = stream_views(Stats(now=1.0, workers=[worker]), ())
    return list(troubles(view, 60.0))


async def test_a_wait_that_is_over_is_not_told_as_time_stuck() -> None:
    async with staged() as stage:
        began: list[int] = []

        async def handle(value: int) -> None:
            began.append(value)
            await stage.clock.asleep(30.0)

        stage.stream(handle, blocking=False, retry=STEPS)
        stage.broker.create_topic(RETRY_1, 1)
        stage.send(7, "k", topic=RETRY_1, headers=forged(due=str(stage.clock.now() + 100.0).encode()))
        parts = stage.consumer().flow.parts
        await stage.wait(99.0)
        assert began == []
        assert parts[RETRY_1, 0].report(stage.clock.now()).stuck_s > 90.0
        await stage.until(lambda: began == [7])
        await stage.wait(20.0)
        assert 19.0 < parts[RETRY_1, 0].report(stage.clock.now()).stuck_s < 25.0


async def test_a_message_of_a_busy_key_waits_no_longer_either() -> None:
    async with staged() as stage:
        shop = running(stage)
        stage.send(7, "k", topic=RETRY_0, headers=forged())
        stage.send(8, "k", topic=RETRY_0, headers=forged(due=b"1e300", offset="1"))
        stage.consumer()
        await stage.rest(within_s=5.0)
        assert shop.values() == [b"7", b"8"]


# ---------------------------------------------------------------- of others


@pytest.mark.parametrize(
    "whose", [{"topic": "payments"}, {"group": "b.illing"}, {"topic": "orders.billing", "group": "retry"}]
)
@pytest.mark.parametrize("options", [{}, {"batch": 10}, {"batch": 10, "transactional": True}])
async def test_a_retry_of_another_stream_is_passed_over(
    whose: dict[str, Any], options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with staged() as stage:
        runs: list[Any] = []

        async def handle(value: Any) -> None:
            runs.append(value)
            raise Permanent("no")

        async def handle_many(values: list[int]) -> None:
            runs.extend(values)

        stage.stream(handle_many if options else handle, retry=ONCE, **options)
        stage.broker.create_topic(RETRY_0, 1)
        stage.send(7, "k", topic=RETRY_0, headers=forged(due=b"1e300", **whose))
        await stage.idle()
        assert (runs, await stage.letters()) == ([], [])
        assert stage.position(topic=RETRY_0) == 1
        assert "is none of ours and is passed over" in caplog.text
        stage.send(8, "k", topic=RETRY_0, headers=forged())
        await stage.idle()
        assert runs == [8]
        assert stage.position(topic=RETRY_0) == 2


async def test_a_foreign_retry_does_not_free_a_key_that_is_under_way() -> None:
    async with staged() as stage:
        running_now: list[int] = []
        most = 0

        async def handle(value: int) -> None:
            nonlocal most
            running_now.append(value)
            most = max(most, len(running_now))
            await stage.clock.asleep(5.0)
            running_now.remove(value)

        stage.stream(handle)
        stage.broker.create_topic(RETRY_0, 1)
        stage.send(1, "k", topic=RETRY_0, headers=forged(offset="1"))
        stage.send(2, "k", topic=RETRY_0, headers=forged(topic="payments"))
        stage.send(3, "k", topic=RETRY_0, headers=forged(offset="3"))
        stage.consumer()
        await stage.rest()
        assert (most, stage.position(topic=RETRY_0)) == (1, 3)


async def test_a_message_that_somebody_wrote_into_a_retry_topic_runs_and_its_letter_can_be_replayed() -> None:
    async with staged() as stage:
        shop = running(stage, retry=ONCE)
        shop.error = Permanent("no")
        stage.send(7, "k", topic=RETRY_0)
        await stage.idle()
        (letter,) = await stage.letters()
        shop.error = None
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        assert shop.values() == [b"7", b"7"]
        assert (await record_of(stage, letter)).state is JobState.COMPLETED
        (mark,) = [one for one in map(from_marker, stage.messages(DLQ)) if one is not None]
        assert mark.letter == letter.id


# ---------------------------------------------------------------- letters of others


async def test_a_header_that_names_the_letter_of_another_message_ends_nothing_of_it() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        await stage.app.dead_letters.aretry(letter.id)
        stage.send(8, "k", topic=RETRY_0, headers=forged(offset="5", letter=letter.id))
        stage.consumer()
        await stage.rest()
        assert shop.values() == [b"8"]
        assert (await record_of(stage, letter)).state is JobState.QUEUED


async def test_a_message_settles_the_letter_that_it_was_carried_with() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        (original,) = stage.messages(TOPIC)
        moved = Message(TOPIC, 0, 0, b"key", b"7", (), original.timestamp + 100.0)
        assert letter_id("billing", moved) != letter.id
        sent = to_retry(Passage(moved, letter=letter.id, group="billing"), RETRY_0)
        await stage.app.dead_letters.aretry(letter.id)
        stage.send(sent.value, "key", topic=RETRY_0, headers=sent.headers)
        stage.consumer()
        await stage.rest()
        assert (await record_of(stage, letter)).state is JobState.COMPLETED
