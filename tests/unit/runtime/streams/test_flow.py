"""What is begun when: the order of a key, the bounds on what is in flight, retries in place and through topics."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast.errors import Invalid, Permanent, RateLimited, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.types import Discard, FailureType, JobState, Message, Snooze
from tests.unit.runtime.streams.handlers import Handler
from tests.unit.runtime.streams.stage import DLQ, TOPIC, staged

FIXED = RetryPolicy(max_retries=2, strategy="fixed", initial_delay=5.0, jitter=False, total_timeout=None)


# ---------------------------------------------------------------- order


async def test_messages_of_one_key_run_one_after_the_other_and_different_keys_side_by_side() -> None:
    async with staged() as stage:
        handler = Handler(stage, takes_s=1.0)
        for n in range(6):
            stage.send(n, "even" if n % 2 == 0 else "odd")
        stage.consuming(handler.fn)
        await stage.rest()
        assert handler.began == [(0.0, 0), (0.0, 1), (1.0, 2), (1.0, 3), (2.0, 4), (2.0, 5)]


async def test_messages_without_a_key_and_all_with_order_none_run_side_by_side() -> None:
    for order, key in (("key", None), ("none", "same")):
        async with staged() as stage:
            handler = Handler(stage, takes_s=1.0)
            for n in range(5):
                stage.send(n, key)
            stage.consuming(handler.fn, order=order)
            await stage.rest()
            assert handler.began == [(0.0, n) for n in range(5)]


async def test_an_empty_key_is_a_key() -> None:
    async with staged() as stage:
        handler = Handler(stage, takes_s=1.0)
        for n in range(2):
            stage.send(n, "")
        stage.consuming(handler.fn)
        await stage.rest()
        assert handler.began == [(0.0, 0), (1.0, 1)]


@pytest.mark.parametrize(
    ("outcome", "delay_s"), [(Transient("busy"), 5.0), (Snooze(7.0), 7.0)], ids=["retry", "snooze"]
)
async def test_a_key_waits_for_a_message_that_is_run_again_and_others_do_not(outcome: object, delay_s: float) -> None:
    async with staged() as stage:
        handler = Handler(stage)
        handler.outcomes[0] = [outcome]
        for n, key in enumerate(["a", "b", "a", "b"]):
            stage.send(n, key)
        stage.consuming(handler.fn, retry=FIXED)
        await stage.rest()
        assert handler.began == [(0.0, 0), (0.0, 1), (0.0, 3), (delay_s, 0), (delay_s, 2)]


async def test_a_key_waits_until_a_message_that_is_given_up_is_in_the_inbox() -> None:
    async with staged() as stage:
        handler = Handler(stage)
        handler.outcomes[0] = [Permanent("no")]
        stage.send(0, "a")
        stage.send(1, "a")
        stage.consuming(handler.fn)
        stage.store.fail("enqueue")
        await stage.wait(60.0)
        assert handler.order == [0]
        stage.store.mend()
        await stage.rest()
        assert handler.order == [0, 1]


async def test_a_key_waits_for_its_turn_under_a_rate_limit() -> None:
    async with staged() as stage:
        handler = Handler(stage)
        for n in range(6):
            stage.send(n, "ab"[n % 2])
        stage.stream(handler.fn, rate="2/10s")
        async with stage.working():
            await stage.until(lambda: len(handler.ended) == 6)
        assert sorted(handler.order, key=lambda n: (n % 2, n)) == [0, 2, 4, 1, 3, 5]
        assert [n for n in handler.order if n % 2 == 0] == [0, 2, 4]
        assert [n for n in handler.order if n % 2 == 1] == [1, 3, 5]
        per_window = Counter(at // 10.0 for at, _ in handler.began)
        assert max(per_window.values()) <= 2
        assert handler.began[-1][0] >= 20.0
        assert await stage.letters() == []


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize("in_flight", [1, 3, 7])
async def test_no_more_than_in_flight_are_begun_over_all_partitions(in_flight: int) -> None:
    async with staged(partitions=3) as stage:
        handler = Handler(stage, takes_s=1.0)
        for n in range(20):
            stage.send(n, partition=n % 3)
        stage.consuming(handler.fn, in_flight=in_flight)
        await stage.rest()
        assert handler.most == in_flight
        assert sorted(handler.order) == list(range(20))
        assert handler.ended[-1][0] == pytest.approx(-(-20 // in_flight))


async def test_what_waits_for_a_retry_or_is_being_buried_counts_as_in_flight() -> None:
    async with staged() as stage:
        handler = Handler(stage)
        handler.outcomes = {0: [Transient("busy")] * 3, 1: [Invalid("no")]}
        for n in range(4):
            stage.send(n)
        consumer = stage.consuming(handler.fn, in_flight=2, retry=FIXED)
        stage.store.fail("enqueue")
        await stage.wait(4.0)
        assert handler.order == [0, 1]
        assert consumer.flow.in_flight == 2
        stage.store.mend()
        await stage.wait(0.9)
        assert handler.order == [0, 1, 2, 3]
        await stage.rest()


async def test_room_that_an_errand_frees_is_used_at_once() -> None:
    """The next one must not wait until somebody happens to look."""
    async with staged() as stage:
        handler = Handler(stage)
        handler.outcomes = {n: [Invalid("no")] for n in range(10)}
        for n in range(10):
            stage.send(n)
        stage.consuming(handler.fn, in_flight=1)
        await stage.rest()
        assert handler.began == [(0.0, n) for n in range(10)]


async def test_a_stuck_message_pauses_its_partition_alone_at_the_gap_bound_and_resumes_it() -> None:
    async with staged(partitions=2) as stage:
        stuck = asyncio.Event()
        done: Counter[int] = Counter()

        async def handle(value: int, msg: Message) -> None:
            if value == 0:
                await stuck.wait()
            done[msg.partition] += 1

        stage.send(0, "stuck", partition=0)
        for n in range(1, 3_000):
            stage.send(n, f"k{n}", partition=n % 2)
        consumer = stage.consuming(handle, in_flight=50, max_gap=1_000)
        await stage.until(lambda: done[1] == 1_500)
        await stage.wait(5.0)
        part = consumer.flow.parts[(TOPIC, 0)]
        received = part.offsets.end
        assert 1_000 <= received < 3_000 // 2
        assert done[0] == received - 1
        assert stage.position(0) == 0
        reports = {one.partition: one for one in consumer.pump.report.partitions if one.topic == TOPIC}
        assert "wait behind one that is not finished" in reports[0].paused
        assert (reports[0].stuck_id, reports[0].stuck_key) == ("orders/0/0", "stuck")
        assert reports[0].stuck_s >= 5.0
        assert (reports[1].paused, reports[1].stuck_id) == ("", "")
        stuck.set()
        await stage.rest()
        assert (done[0], stage.position(0), stage.position(1)) == (1_500, 1_500, 1_500)
        assert [what for _, what, _ in consumer.source.pauses[:2]] == ["pause", "resume"]
        assert {place for _, _, place in consumer.source.pauses} == {(TOPIC, 0)}


# ---------------------------------------------------------------- retries in place


@pytest.mark.parametrize(("draw", "factor"), [(0.0, 1.0), (1.0, 1.5), (0.5, 1.25)])
async def test_a_stream_retries_after_one_two_and_four_seconds_and_up_to_half_more(draw: float, factor: float) -> None:
    async with staged() as stage:
        handler = Handler(stage)
        handler.outcomes[0] = [Transient("busy")] * 4
        stage.draws = [draw] * 3
        stage.send(0, "a")
        stage.consuming(handler.fn)
        await stage.rest()
        assert handler.times_of(0) == pytest.approx([0.0, factor, 3 * factor, 7 * factor])
        assert [one.retries for one in handler.messages] == [0, 1, 2, 3]
        (letter,) = await stage.letters()
        assert letter.reason == "retries used up"
        assert [one.number for one in letter.attempts] == [1, 2, 3, 4]
        assert [one.delay_s for one in letter.attempts] == pytest.approx([factor, 2 * factor, 4 * factor, None])
        assert {one.failure_type for one in letter.attempts} == {FailureType.TRANSIENT}
        (copy,) = stage.messages(DLQ)
        assert copy.header("retry-count") == b"3"
        assert stage.position() == 1


async def test_a_snooze_costs_no_retry_and_a_discard_ends_without_a_letter() -> None:
    async with staged() as stage:
        handler = Handler(stage)
        handler.outcomes = {0: [Snooze(3.0)] * 6, 1: [Discard("sold out")]}
        stage.send(0)
        stage.send(1)
        stage.consuming(handler.fn, retry=RetryPolicy(max_retries=0))
        await stage.rest()
        assert handler.times_of(0) == pytest.approx([3.0 * n for n in range(7)])
        assert {one.retries for one in handler.messages} == {0}
        assert (await stage.letters(), stage.messages(DLQ), stage.position()) == ([], [], 2)


async def test_without_dead_letters_a_message_that_is_given_up_is_passed() -> None:
    async with staged() as stage:
        handler = Handler(stage)
        handler.outcomes[0] = [Permanent("no")]
        stage.send(0)
        stage.send(1)
        stage.consuming(handler.fn, enable_dlq=False)
        await stage.rest()
        assert (await stage.letters(), stage.position()) == ([], 2)
        assert DLQ not in stage.broker._topics


# ---------------------------------------------------------------- retry topics


RETRY_1, RETRY_2 = "orders.billing.retry.1", "orders.billing.retry.2"
STEPPED = RetryPolicy(max_retries=2, initial_delay=10.0, multiplier=3.0, jitter=False, total_timeout=None)


async def test_a_message_waits_in_the_topic_of_its_delay_and_later_ones_pass() -> None:
    async with staged(partitions=2) as stage:
        handler = Handler(stage)
        handler.outcomes[0] = [Transient("busy")] * 3
        for n in range(4):
            stage.send(n, "a", headers=(("mine", b"1"),))
        consumer = stage.consuming(handler.fn, retry=STEPPED, blocking=False)
        await stage.rest()
        assert handler.began == [(0.0, 0), (0.0, 1), (0.0, 2), (0.0, 3), (10.0, 0), (40.0, 0)]
        assert [len(stage.messages(topic)) for topic in (RETRY_1, RETRY_2)] == [1, 1]
        again = [one for one in handler.messages if one.value == b"0"]
        assert [one.retries for one in again] == [0, 1, 2]
        assert {(one.topic, one.offset, one.key, one.headers) for one in again} == {(TOPIC, 0, b"a", (("mine", b"1"),))}
        (letter,) = await stage.letters()
        assert [(one.number, one.delay_s) for one in letter.attempts] == [(1, 10.0), (2, 30.0), (3, None)]
        (copy,) = stage.messages(DLQ)
        assert [copy.header(name) for name in ("original-topic", "original-offset", "retry-count")] == [
            TOPIC.encode(),
            b"0",
            b"2",
        ]
        assert [(at, what, place[0]) for at, what, place in consumer.source.pauses] == [
            (0.0, "pause", RETRY_1),
            (10.0, "resume", RETRY_1),
            (10.0, "pause", RETRY_2),
            (40.0, "resume", RETRY_2),
        ]


async def test_a_delay_with_jitter_waits_in_the_topic_of_its_own_retry() -> None:
    """In the topic of a longer one it would come too late: the first message there says when to look again."""
    async with staged() as stage:
        handler = Handler(stage)
        handler.outcomes[0] = [Transient("busy")] * 3
        handler.outcomes[1] = [RateLimited("slow down")]
        stage.draws = [0.5] * 10
        stage.send(1)
        stage.send(0)
        stage.consuming(handler.fn, blocking=False)
        await stage.rest()
        assert handler.times_of(0) == pytest.approx([0.0, 1.25, 3.75, 8.75])
        assert [len(stage.messages(f"orders.billing.retry.{n}")) for n in range(1, 7)] == [1, 1, 1, 1, 0, 0]


async def test_two_groups_do_not_see_each_others_retries() -> None:
    async with staged() as stage:
        one, other = Handler(stage), Handler(stage)
        one.outcomes[0] = [Transient("busy")]
        stage.send(0)
        stage.consuming(one.fn, retry=STEPPED, blocking=False)
        stage.consuming(other.fn, name="ship", group="shipping", retry=STEPPED, blocking=False)
        await stage.rest()
        assert (one.order, other.order) == ([0, 0], [0])


async def test_a_retry_that_is_due_is_run_when_there_is_room_without_asking_all_the_time() -> None:
    async with staged() as stage:
        handler = Handler(stage)
        handler.outcomes = {0: [Transient("busy")], 1: [Snooze(1_000.0)]}
        stage.send(0)
        consumer = stage.consuming(handler.fn, retry=STEPPED, blocking=False, in_flight=1)
        await stage.until(lambda: bool(stage.messages(RETRY_1)))
        stage.send(1)
        await stage.until(lambda: handler.order == [0, 1])
        turns = 0
        turn = consumer.pump._turn

        async def counted() -> None:
            nonlocal turns
            turns += 1
            await turn()

        consumer.pump._turn = counted  # type: ignore[method-assign]
        await stage.until(lambda: len(handler.began) == 4)
        assert handler.times_of(1) == pytest.approx([0.0, 1_000.0])
        assert handler.times_of(0)[1] == pytest.approx(1_000.0)
        assert turns < 20
        await stage.rest()


async def test_a_message_that_somebody_else_wrote_into_a_retry_topic_is_handled_as_what_it_is() -> None:
    async with staged() as stage:
        handler = Handler(stage)
        stage.consuming(handler.fn, retry=STEPPED, blocking=False)
        await stage.rest()
        stage.send(5, topic=RETRY_1, headers=(("holdfast-due", b"tomorrow"),))
        await stage.rest()
        assert handler.order == [5]


async def test_the_letters_of_a_stream_are_found_under_its_name() -> None:
    async with staged() as stage:
        handler = Handler(stage)
        handler.outcomes[0] = [Permanent("no")]
        stage.send(0, "a")
        stage.consuming(handler.fn)
        await stage.rest()
        (letter,) = await stage.letters()
        assert (letter.task, letter.queue, letter.state) == ("bill", "stream:bill", JobState.DEAD_LETTER)
