# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a source remembers of what is finished."""

from __future__ import annotations

from holdfast.ports import Progress
from holdfast.testing.source_suite.steps import Lab, Member, join, numbers, own, send, values


async def next_of(lab: Lab, member: Member, topic: str) -> Member:
    """Who has the group's partition after this member has left."""
    await member.source.close()
    return await join(lab, topic)


class CommitSuite:
    """What is finished comes no more; all else comes again to whoever is next."""

    async def test_what_is_not_finished_comes_again(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(5))
        await member.take(5)
        after = await next_of(lab, member, topic)
        assert values(await after.take(5)) == numbers(5)

    async def test_what_is_finished_comes_no_more(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(6))
        messages = await member.take(6)
        await member.finish(*messages[:2])
        await member.finish(messages[2])
        after = await next_of(lab, member, topic)
        assert values(await after.take(3)) == numbers(3, first=3)
        await after.nothing()

    async def test_all_finished_and_a_new_member_gets_only_what_is_new(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(3))
        await member.finish(*await member.take(3))
        after = await next_of(lab, member, topic)
        await own(after)
        await send(after.source, topic, b"new")
        assert values(await after.take(1)) == [b"new"]
        await after.nothing()

    async def test_an_unfinished_message_comes_again_though_later_ones_are_finished(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(5))
        messages = await member.take(5)
        await member.finish(messages[0], messages[2], messages[4])
        after = await next_of(lab, member, topic)
        holds_back = after.source.capabilities.has_positions
        expected = [b"1", b"2", b"3", b"4"] if holds_back else [b"1", b"3"]
        assert values(await after.take(len(expected))) == expected
        await after.nothing()

    async def test_counted_attempts_come_back_with_the_message(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(3))
        first, second, third = await member.take(3)
        member.note_finished([first])
        await member.commit({second: 2, third: 1})
        await member.commit({second: 3})
        after = await next_of(lab, member, topic)
        again = await after.take(2)
        assert [(message.value, message.retries) for message in again] in (
            [(b"1", 3), (b"2", 0)],  # where all of a partition is told with each commit,
            [(b"1", 3), (b"2", 1)],  # and where it is told message by message
        )

    async def test_attempts_are_forgotten_with_the_end_of_the_message(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, b"a", b"b")
        first, second = await member.take(2)
        await member.commit({first: 1})
        await member.finish(first)
        after = await next_of(lab, member, topic)
        (again,) = await after.take(1)
        assert (again.value, again.retries) == (second.value, 0)

    async def test_a_commit_may_be_sent_twice(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(3))
        messages = await member.take(3)
        member.note_finished(messages[:2])
        progress = member.progress()
        await member.source.commit(progress)
        await member.source.commit(progress)
        after = await next_of(lab, member, topic)
        assert values(await after.take(1)) == [b"2"]

    async def test_partitions_are_committed_together(self, lab: Lab) -> None:
        topic = await lab.topic(3)
        member = await join(lab, topic)
        for partition in range(3):
            await send(member.source, topic, b"done", b"open", partition=partition)
        messages = await member.take(6)
        await member.finish(*(message for message in messages if message.value == b"done"))
        after = await next_of(lab, member, topic)
        assert values(await after.take(3)) == [b"open"] * 3
        await after.nothing()

    async def test_progress_of_what_is_not_ours_is_passed_over(self, lab: Lab) -> None:
        topic, other = await lab.topic(), await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(2))
        messages = await member.take(2)
        member.note_finished(messages)
        await member.source.commit({(other, 0): Progress(position=99, finished=(98,)), **member.progress()})
        await member.source.commit({})
        after = await next_of(lab, member, topic)
        await after.nothing()
