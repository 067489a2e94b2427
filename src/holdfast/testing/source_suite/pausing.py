# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a source promises of partitions that are paused."""

from __future__ import annotations

import asyncio

from holdfast.testing.source_suite.steps import CLOCK, Lab, join, numbers, own, send, values


class PauseSuite:
    """Nothing comes of a paused partition, and nothing is skipped or doubled when it goes on."""

    async def test_nothing_comes_of_a_paused_partition_until_it_is_resumed(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(40))
        assert values(await member.take(10, limit=10)) == numbers(10)
        member.source.pause([(topic, 0)])
        await member.nothing()
        await send(member.source, topic, *numbers(10, first=40))
        await member.nothing()
        member.source.resume([(topic, 0)])
        assert values(await member.take(40, limit=15)) == numbers(40, first=10)
        await member.nothing()

    async def test_other_partitions_go_on(self, lab: Lab) -> None:
        topic = await lab.topic(2)
        member = await join(lab, topic)
        await own(member, 2)
        member.source.pause([(topic, 0)])
        await send(member.source, topic, *numbers(20), partition=0)
        await send(member.source, topic, *numbers(20), partition=1)
        messages = await member.take(20)
        assert {message.partition for message in messages} == {1}
        await member.nothing()
        member.source.resume([(topic, 0)])
        messages = await member.take(20)
        assert {message.partition for message in messages} == {0}
        assert values(messages) == numbers(20)

    async def test_often_paused_and_resumed_nothing_is_skipped_or_doubled(self, lab: Lab) -> None:
        topic = await lab.topic(2)
        member = await join(lab, topic)
        for partition in (0, 1):
            await send(member.source, topic, *numbers(200), partition=partition)
        while len(member.received) < 400:
            place = (topic, len(member.received) % 2)
            member.source.pause([place])
            await member.look(limit=7)
            member.source.resume([place])
            await member.look(limit=5)
        for partition in (0, 1):
            assert values(one for one in member.received if one.partition == partition) == numbers(200)

    async def test_a_message_that_comes_while_it_is_paused_ends_no_wait(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await own(member)
        waiting = asyncio.create_task(member.look(wait_s=0.5))
        await member.source.lags([topic])
        member.source.pause([(topic, 0)])
        await send(member.source, topic, b"later")
        assert values(await waiting) == []
        member.source.resume([(topic, 0)])
        assert values(await member.take(1)) == [b"later"]

    async def test_a_wait_ends_soon_after_a_partition_is_resumed(self, lab: Lab) -> None:
        topic = await lab.topic(2)
        member = await join(lab, topic)
        await own(member, 2)
        member.source.pause([(topic, 0)])
        await send(member.source, topic, b"here", partition=0)
        waiting = asyncio.create_task(member.look(wait_s=lab.patience_s))
        await member.source.lags([topic])
        began_s = CLOCK.monotonic()
        member.source.resume([(topic, 0)])
        assert values(await waiting) == [b"here"]
        assert CLOCK.monotonic() - began_s < lab.patience_s / 2
