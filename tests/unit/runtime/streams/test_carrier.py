"""Replays of messages from the inbox: where they go, and what becomes of the letter."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from holdfast.errors import ConfigError, Invalid, NotSent, Permanent, SourceAway, SourceError, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Operation
from holdfast.runtime.origins import origin_fields
from holdfast.runtime.replay import Replay, ReplayState
from holdfast.runtime.streams.letters import letter_of
from holdfast.runtime.streams.passage import Marker, from_marker
from holdfast.runtime.worker import WorkerSettings
from holdfast.types import Attempt, Change, Discard, FailureType, JobRecord, JobState, Message, Outgoing
from tests.unit.runtime.streams.stage import DLQ, TOPIC, Stage, WatchedSource, staged

RETRY_0 = "orders.billing.retry.0"
ONCE = RetryPolicy(max_retries=0)


class Shop:
    """A handler that fails until it is mended."""

    def __init__(self) -> None:
        self.error: Exception | None = Permanent("no such account")
        self.runs: list[Message] = []

    async def handle(self, value: int, msg: Message) -> object:
        self.runs.append(msg)
        if self.error is not None:
            raise self.error
        return None

    def values(self) -> list[bytes | None]:
        return [one.value for one in self.runs]


async def record_of(stage: Stage, letter: JobRecord) -> JobRecord:
    (record,) = await stage.store.inner.get([letter.id])
    assert record is not None
    return record


async def dead_letter(stage: Stage, shop: Shop, **options: Any) -> JobRecord:
    """One message that was given up; the shop is mended after that."""
    stage.stream(shop.handle, **{"retry": ONCE, **options})
    stage.send(7, "key", headers=(("mine", b"\x00\x01"),))
    await stage.idle()
    (letter,) = await stage.letters()
    shop.error = None
    shop.runs.clear()
    return letter


async def test_a_replayed_message_comes_to_its_own_group_as_it_was_and_completes_its_letter() -> None:
    async with staged(partitions=3) as stage:
        shop, others = Shop(), Shop()
        others.error = None
        stage.stream(others.handle, name="ship", group="shipping")
        letter = await dead_letter(stage, shop)
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        (again,) = shop.runs
        (original,) = stage.messages(TOPIC)
        assert (again.place, again.offset) == (original.place, original.offset)
        assert (again.key, again.value, again.headers) == (b"key", b"7", (("mine", b"\x00\x01"),))
        assert again.retries == 0
        assert len(others.runs) == 1
        record = await record_of(stage, letter)
        assert record.state is JobState.COMPLETED
        assert len(stage.messages(RETRY_0)) == 1
        copy, mark = stage.messages(DLQ)
        assert copy.key == b"key"
        marker = from_marker(mark)
        assert marker is not None
        assert marker.letter == letter.id


async def test_one_that_fails_again_is_the_same_letter_with_a_longer_history() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        shop.error = Invalid("no such customer")
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        (again,) = await stage.letters()
        assert again.id == letter.id
        assert [one.message for one in again.attempts] == ["no such account", "no such customer"]
        assert [one.number for one in again.attempts] == [1, 2]
        assert again.message == "no such customer"
        assert len([one for one in stage.messages(DLQ) if from_marker(one) is None]) == 2


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_replayed_message_has_all_its_retries_again(blocking: bool) -> None:
    async with staged() as stage:
        shop = Shop()
        policy = RetryPolicy(max_retries=2, strategy="fixed", initial_delay=5.0, jitter=False, total_timeout=None)
        letter = await dead_letter(stage, shop, retry=policy, blocking=blocking)
        shop.error = Transient("busy")
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        assert [one.retries for one in shop.runs] == [0, 1, 2]
        (again,) = await stage.letters()
        assert [one.number for one in again.attempts] == [1, 2, 3, 4]
        shop.error = None
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        assert (await record_of(stage, letter)).state is JobState.COMPLETED


async def test_retries_of_a_replayed_message_survive_a_hand_over() -> None:
    async with staged() as stage:
        shop = Shop()
        policy = RetryPolicy(max_retries=3, strategy="fixed", initial_delay=5.0, jitter=False, total_timeout=None)
        letter = await dead_letter(stage, shop, retry=policy)
        shop.error = Transient("busy")
        await stage.app.dead_letters.aretry(letter.id)
        await carry_without_consumers(stage, 1)
        for runs in (2, 3):
            consumer = stage.consumer()
            await stage.until(lambda: len(shop.runs) == runs)  # noqa: B023 - called before the next one
            await stage.wait(1.0)
            await consumer.kill()
        stage.consumer()
        await stage.rest()
        assert [one.retries for one in shop.runs] == [0, 1, 2, 3]
        (again,) = await stage.letters()
        assert again.attempts[-1].number == 5


async def test_one_that_is_discarded_ends_as_cancelled() -> None:
    async with staged() as stage:
        is_broken = True

        async def handle(value: int) -> object:
            if is_broken:
                raise Permanent("no")
            return Discard("sold out")

        stage.stream(handle)
        stage.send(7)
        await stage.idle()
        (letter,) = await stage.letters()
        is_broken = False
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        record = await record_of(stage, letter)
        assert (record.state, record.reason) == (JobState.CANCELLED, "sold out")


@pytest.mark.parametrize("options", [{}, {"transactional": True}])
async def test_a_batch_handler_gets_a_replayed_message_by_itself(options: dict[str, Any]) -> None:
    async with staged() as stage:
        is_broken = True
        runs: list[list[int]] = []

        async def handle(values: list[int]) -> None:
            runs.append(values)
            if is_broken and 1 in values:
                raise Permanent("no")

        stage.stream(handle, batch=10, bisect=True, **options)
        for n in range(3):
            stage.send(n)
        await stage.idle()
        (letter,) = await stage.letters()
        is_broken = False
        runs.clear()
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        assert runs == [[1]]
        assert (await record_of(stage, letter)).state is JobState.COMPLETED


# ---------------------------------------------------------------- other places, other values


async def test_to_the_original_topic_it_goes_when_that_is_asked_for() -> None:
    for way in ("to_topic", "payload", "edit"):
        async with staged() as stage:
            shop, others = Shop(), Shop()
            others.error = None
            stage.stream(others.handle, name="ship", group="shipping")
            letter = await dead_letter(stage, shop)
            if way == "to_topic":
                await stage.app.dead_letters.aretry(letter.id, to_topic=True)
            elif way == "edit":
                await stage.app.dead_letters.areplay(edit={"to": "topic"})
            else:
                payload = msgspec.json.decode(letter.payload) | {"to": "topic"}
                await stage.app.dead_letters.aretry(letter.id, payload)
            await stage.idle()
            assert [one.offset for one in stage.messages(TOPIC)] == [0, 1]
            assert (shop.values(), others.values()) == ([b"7"], [b"7", b"7"])
            assert (await record_of(stage, letter)).state is JobState.COMPLETED


async def test_an_edited_value_is_what_the_handler_gets() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        replay = await stage.app.dead_letters.areplay(edit={"value": 8}, task="bill")
        assert isinstance(replay, Replay)
        await stage.idle()
        assert shop.values() == [b"8"]
        assert (await record_of(stage, letter)).state is JobState.COMPLETED


async def test_a_letter_that_an_edit_has_spoiled_is_dead_again_and_can_be_mended() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        await stage.app.dead_letters.areplay(edit={"key": 5}, task="bill")
        await stage.idle()
        (again,) = await stage.letters()
        assert "the letter cannot be read" in again.message
        assert shop.runs == []
        await stage.app.dead_letters.areplay(edit={"key": "key"}, task="bill")
        await stage.idle()
        assert (await record_of(stage, letter)).state is JobState.COMPLETED


# ---------------------------------------------------------------- canaries


@pytest.mark.parametrize("is_mended", [True, False])
async def test_canaries_go_first_and_the_others_only_when_these_have_ended_well(is_mended: bool) -> None:
    async with staged() as stage:
        shop = Shop()
        stage.stream(shop.handle, retry=ONCE)
        for n in range(6):
            stage.send(n)
        await stage.idle()
        shop.runs.clear()
        if is_mended:
            shop.error = None
        replay = await stage.app.dead_letters.areplay(task="bill", canary=2)
        assert isinstance(replay, Replay)
        await stage.idle()
        (replay,) = await stage.app.dead_letters.areplays()
        assert replay.state is (ReplayState.DONE if is_mended else ReplayState.STOPPED)
        assert len(shop.runs) == (6 if is_mended else 2)
        assert len(await stage.letters()) == (0 if is_mended else 6)


# ---------------------------------------------------------------- what goes wrong


async def carry_without_consumers(stage: Stage, copies: int) -> None:
    """A worker that reads no stream carries letters all the same."""
    async with stage.working(WorkerSettings(lease_s=80_000.0, streams=())):
        await stage.until(lambda: len(stage.messages(RETRY_0)) == copies)
        await stage.wait(100.0)
    assert len(stage.messages(RETRY_0)) == copies


async def test_a_replay_waits_for_a_consumer_that_is_down() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        await stage.app.dead_letters.aretry(letter.id)
        await carry_without_consumers(stage, 1)
        assert shop.runs == []
        record = await record_of(stage, letter)
        assert (record.state, record.reason) == (JobState.WAITING, f"sent to {RETRY_0}")
        stage.consumer()
        await stage.rest()
        assert len(shop.runs) == 1
        assert (await record_of(stage, letter)).state is JobState.COMPLETED


async def test_a_server_that_is_away_is_waited_for_by_those_who_carry() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        before = len(stage.sources)

        def fail(source: WatchedSource) -> None:
            if len(stage.sources) > before:  # the first one is the consumer's
                source.faults["send"] = [SourceAway("no broker")] * 3

        stage.on_source = fail
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        assert len(shop.runs) == 1
        assert (await record_of(stage, letter)).state is JobState.COMPLETED


async def test_one_that_is_carried_twice_is_handled_twice_and_its_letter_stays_completed() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        stage.on_source = lambda source: source.lost_replies.update(send=[SourceAway("no answer")])
        await stage.app.dead_letters.aretry(letter.id)
        await carry_without_consumers(stage, 2)
        stage.on_source = lambda source: None
        stage.consumer()
        await stage.rest()
        assert shop.values() == [b"7", b"7"]
        assert (await record_of(stage, letter)).state is JobState.COMPLETED
        assert await stage.letters() == []


async def test_a_message_that_the_server_will_never_take_is_dead_again_at_once() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)

        def check(message: Outgoing) -> None:
            if message.topic == RETRY_0:
                raise NotSent("the message is too large")

        stage.on_source = lambda source: setattr(source, "check", check)
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        (again,) = await stage.letters()
        assert (again.id, again.message, again.attempt) == (letter.id, "the message is too large", 2)
        assert [from_marker(one) for one in stage.messages(DLQ)] == [None]


async def test_a_server_that_has_to_be_mended_is_waited_for_by_those_who_carry() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        before = len(stage.sources)

        def fail(source: WatchedSource) -> None:
            if len(stage.sources) > before:
                source.faults["send"] = [SourceError("not authorized")] * 3

        stage.on_source = fail
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        assert (await record_of(stage, letter)).state is JobState.COMPLETED


async def test_a_marker_that_the_dlq_does_not_take_keeps_no_letter() -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)

        def check(message: Outgoing) -> None:
            if message.topic == DLQ:
                raise NotSent("a policy forbids it")

        stage.on_source = lambda source: setattr(source, "check", check)
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        assert len(shop.runs) == 1
        assert (await record_of(stage, letter)).state is JobState.COMPLETED


async def test_a_marker_is_no_older_than_the_death_that_it_is_about_by_whatever_clock() -> None:
    async with staged() as stage:
        shop = Shop()
        shop.error = None
        spec = stage.stream(shop.handle)
        failed_at = stage.clock.now() + 300.0  # said by a worker whose clock was ahead
        attempt = Attempt(number=1, started_at=1.0, ended_at=failed_at, failure_type=FailureType.PERMANENT)
        letter = letter_of(
            stage.send(7, "key"),
            group=spec.group,
            task=spec.name,
            queue=spec.task.queue,
            attempts=(attempt,),
            reason="",
            keep_s=None,
        )
        await stage.store.inner.enqueue([letter])
        await stage.app.dead_letters.aretry(letter.id)
        await stage.idle()
        (mark,) = [one for one in map(from_marker, stage.messages(DLQ)) if one is not None]
        assert mark == Marker(letter.id, failed_at)


@pytest.mark.parametrize("to_topic", [False, True])
async def test_carrying_a_letter_counts_as_no_run_of_a_message(to_topic: bool) -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        await stage.app.dead_letters.aretry(letter.id, to_topic=to_topic)
        await stage.idle()
        counted: Counter[str] = Counter()
        for one in (await stage.store.inner.stats(0)).totals:
            if one.task == "bill" and not one.name.endswith("_us"):
                counted[one.name.partition(":")[0]] += one.n
        assert counted == {
            "received": 2 if to_topic else 1,
            "failed": 2,  # in all, and by its type
            "dead": 1,
            "buried": 1,
            "completed": 1,
            "processed": 1,
            "run_le": 2,
            "wait_le": 2,
        }


# ---------------------------------------------------------------- edits of which message it is

FIXED: dict[str, Any] = {
    "timestamp": 0.0,
    "is_gone": True,
    "origin": {"kind": "message", "group": "billing", "topic": "payments", "partition": 0, "offset": 0},
}


@pytest.mark.parametrize("name", FIXED)
async def test_an_edit_of_which_message_it_is_is_refused(name: str) -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        payload = msgspec.json.decode(letter.payload)
        desk = stage.app.dead_letters
        for to_topic in (False, True):
            with pytest.raises(Invalid, match=f"the {name} of a message cannot be edited"):
                await desk.aretry(letter.id, payload | {name: FIXED[name]}, to_topic=to_topic)
        for filters in ({"task": "bill"}, {}, {"text": "account"}):
            with pytest.raises(Invalid, match=f"the {name} of a message cannot be edited"):
                await desk.areplay(edit={name: FIXED[name]}, **filters)  # type: ignore[arg-type]
        assert (await record_of(stage, letter)).state is JobState.DEAD_LETTER


@pytest.mark.parametrize("name", FIXED)
async def test_a_job_may_have_arguments_of_these_names(name: str) -> None:
    async with staged() as stage:

        async def charge(**arguments: Any) -> None:
            raise Permanent("no")

        stage.app.task(name="charge", breaker=None, retry=ONCE)(charge)
        replay = await stage.app.dead_letters.areplay(edit={name: 5, "to": "topic"}, canary=1)
        assert isinstance(replay, Replay)


@pytest.mark.parametrize("name", ["timestamp", "origin"])
async def test_a_letter_that_says_another_message_than_its_own_sends_nothing_anywhere(name: str) -> None:
    async with staged() as stage:
        shop = Shop()
        letter = await dead_letter(stage, shop)
        stage.broker.create_topic("payments", 1)
        payload = msgspec.json.decode(letter.payload) | {name: FIXED[name], "to": "topic"}
        await stage.store.inner.change(
            Operation(change=Change.REPLAY, ids=(letter.id,), payload=msgspec.json.encode(payload))
        )
        await stage.idle()
        (again,) = await stage.letters()
        assert "not of" in again.message
        assert (stage.messages("payments"), len(stage.messages(TOPIC)), shop.runs) == ([], 1, [])
        assert origin_fields(again)["topic"] == TOPIC


# ---------------------------------------------------------------- canaries that nobody would hear of


async def test_canaries_do_not_go_with_replays_to_the_topic() -> None:
    async with staged() as stage:
        shop = Shop()
        await dead_letter(stage, shop)
        desk = stage.app.dead_letters
        with pytest.raises(ConfigError, match="canary=2: goes with replays to a message's own group alone"):
            await desk.areplay(canary=2, to_topic=True)
        with pytest.raises(ConfigError, match="canary=2: goes with replays to a message's own group alone"):
            await desk.areplay(canary=2, edit={"to": "topic"})
        assert await desk.areplays() == []
        replay = await desk.areplay(canary=2, edit={"to": "retry"})
        assert isinstance(replay, Replay)
