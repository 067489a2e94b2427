# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a source promises to those who receive."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import SourceError
from holdfast.testing.source_suite.steps import CLOCK, Lab, Member, join, numbers, own, send, values
from holdfast.types import Outgoing

_ANY_BYTES = bytes(range(256))


class ReceiveSuite:
    """What comes, how much of it, in which order, and how long it is waited for."""

    async def test_a_message_comes_as_it_was_sent(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        headers = (("trace", b"00-a"), ("bytes", _ANY_BYTES), ("trace", b"00-b"), ("none", None), ("empty", b""))
        await member.source.send([Outgoing(topic, _ANY_BYTES, _ANY_BYTES[::-1], headers)])
        (message,) = await member.take(1)
        assert (message.topic, message.partition, message.retries, message.is_gone) == (topic, 0, 0, False)
        assert (message.key, message.value, message.headers) == (_ANY_BYTES[::-1], _ANY_BYTES, headers)
        assert message.header("trace") == b"00-b"
        assert abs(message.timestamp - CLOCK.now()) < 60

    @pytest.mark.parametrize("value", [None, b"", b"{}"])
    @pytest.mark.parametrize("key", [None, b"", b"k"])
    async def test_no_key_and_no_value_are_not_empty_ones(
        self, lab: Lab, key: bytes | None, value: bytes | None
    ) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await member.source.send([Outgoing(topic, value, key)])
        (message,) = await member.take(1)
        assert (message.key, message.value, message.headers) == (key, value, ())

    async def test_a_partition_comes_in_its_order_and_offsets_rise(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(250))
        messages = await member.take(250, limit=70)
        assert values(messages) == numbers(250)
        offsets = [message.offset for message in messages]
        assert offsets == sorted(set(offsets))

    async def test_no_more_comes_than_was_asked_for(self, lab: Lab) -> None:
        topic = await lab.topic(3)
        member = await join(lab, topic)
        for partition in range(3):
            await send(member.source, topic, *numbers(10), partition=partition)
        messages = await member.take(30, limit=4)  # which looks at each answer's length
        assert sorted(values(messages), key=str) == sorted(numbers(10) * 3, key=str)

    async def test_nothing_is_brought_twice(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(5))
        await member.take(5)
        await member.nothing()

    async def test_messages_of_all_partitions_come(self, lab: Lab) -> None:
        topic = await lab.topic(3)
        member = await join(lab, topic)
        await own(member, 3)
        for partition in range(3):
            await send(member.source, topic, b"%d" % partition, partition=partition)
        messages = await member.take(3)
        assert sorted((message.partition, message.value) for message in messages) == [(0, b"0"), (1, b"1"), (2, b"2")]

    async def test_a_new_group_begins_with_the_earliest_message(self, lab: Lab) -> None:
        topic = await lab.topic()
        await send(lab.source(topic, "somebody"), topic, b"before")
        member = await join(lab, topic)
        await send(member.source, topic, b"after")
        assert values(await member.take(2)) == [b"before", b"after"]

    async def test_a_new_group_may_begin_with_the_latest_message(self, lab: Lab) -> None:
        topic = await lab.topic()
        await send(lab.source(topic, "somebody"), topic, b"before")
        member = await join(lab, topic, start="latest")
        await own(member)
        await send(member.source, topic, b"after")
        assert values(await member.take(1)) == [b"after"]
        await member.nothing()

    async def test_a_wait_ends_with_the_first_message(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await own(member)
        waiting = asyncio.create_task(member.look(wait_s=lab.patience_s))
        await member.source.lags([topic])  # a round trip, so that the wait has begun
        began_s = CLOCK.monotonic()
        await send(member.source, topic, b"news")
        assert values(await waiting) == [b"news"]
        assert CLOCK.monotonic() - began_s < lab.patience_s / 2

    async def test_a_cancelled_wait_loses_nothing(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await own(member)
        for n in range(20):
            waiting = asyncio.create_task(member.look(wait_s=5.0))
            if n % 2:
                await member.source.lags([topic])
            await send(member.source, topic, b"%d" % n)
            waiting.cancel()
            await asyncio.wait([waiting])
        await member.until(lambda: len(member.received) >= 20)
        assert values(member.received) == numbers(20)

    async def test_a_message_is_named_by_its_place(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(3))
        ids = [message.id for message in await member.take(3)]
        assert len(set(ids)) == 3
        assert all(id.startswith(f"{topic}/") for id in ids)  # noqa: A001

    async def test_who_has_not_opened_receives_nothing(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = Member(lab, lab.source(topic, "billing"))
        with pytest.raises(SourceError):
            await member.look()

    async def test_topics_of_our_own_are_made_and_received(self, lab: Lab) -> None:
        topic = await lab.topic(2)
        retry = f"{topic}.billing.retry.1"
        member = await join(lab, topic, ours=[retry])
        await member.until(lambda: set(member.owned) >= {(topic, 0), (topic, 1), (retry, 0)})
        await send(member.source, retry, b"again", partition=0)
        await send(member.source, topic, b"new", partition=0)
        messages = await member.take(2)
        assert sorted((message.topic, message.value) for message in messages) == [(topic, b"new"), (retry, b"again")]
