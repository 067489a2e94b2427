# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a source promises to those who send."""

from __future__ import annotations

import pytest

from holdfast.errors import SourceError
from holdfast.testing.source_suite.steps import Lab, join, numbers, own, send, values
from holdfast.types import Message, Outgoing


async def all_of(lab: Lab, topic: str) -> list[Message]:
    """Every message of a topic."""
    return [message async for batch in lab.source(topic, "nobody").read(topic) for message in batch]


class SendSuite:
    """Messages are written in order, to the partition of their key."""

    async def test_messages_are_there_when_send_returns(self, lab: Lab) -> None:
        topic = await lab.topic()
        await send(lab.source(topic, "billing"), topic, *numbers(100))
        assert values(await all_of(lab, topic)) == numbers(100)

    async def test_one_call_may_send_to_several_topics(self, lab: Lab) -> None:
        one, two = await lab.topic(), await lab.topic()
        source = lab.source(one, "billing")
        await source.send([Outgoing(one, b"1"), Outgoing(two, b"2"), Outgoing(one, b"3")])
        assert values(await all_of(lab, one)) == [b"1", b"3"]
        assert values(await all_of(lab, two)) == [b"2"]

    async def test_a_key_has_one_partition_and_its_order_is_kept(self, lab: Lab) -> None:
        topic = await lab.topic(3)
        keys = [b"key%d" % n for n in range(20)]
        source = lab.source(topic, "billing")
        await source.send([Outgoing(topic, b"%d" % n, keys[n % 20]) for n in range(200)])
        messages = await all_of(lab, topic)
        assert len(messages) == 200
        assert len({message.partition for message in messages}) == 3
        for key in keys:
            mine = [message for message in messages if message.key == key]
            assert len({message.partition for message in mine}) == 1
            assert [int(message.value or b"") for message in mine] == list(range(keys.index(key), 200, 20))

    async def test_a_partition_may_be_named(self, lab: Lab) -> None:
        topic = await lab.topic(3)
        await send(lab.source(topic, "billing"), topic, *numbers(5), key=b"one", partition=2)
        assert {message.partition for message in await all_of(lab, topic)} == {2}

    async def test_a_partition_that_is_not_there_is_refused(self, lab: Lab) -> None:
        topic = await lab.topic(2)
        with pytest.raises(SourceError):
            await send(lab.source(topic, "billing"), topic, b"x", partition=2)

    async def test_a_large_value_comes_whole(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        large = bytes(range(256)) * 2000
        await send(member.source, topic, large)
        (message,) = await member.take(1)
        assert message.value == large

    async def test_nothing_to_send_is_fine(self, lab: Lab) -> None:
        await lab.source(await lab.topic(), "billing").send([])

    async def test_topics_that_are_missing_are_made(self, lab: Lab) -> None:
        topic = await lab.topic(2)
        dead = f"{topic}.dlq"
        member = await join(lab, topic)
        await own(member, 2)
        await member.source.ensure([dead], like=topic)
        await member.source.ensure([dead], like=topic)
        await send(member.source, dead, b"buried")
        assert values(await all_of(lab, dead)) == [b"buried"]
