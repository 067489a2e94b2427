# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a source promises to several consumers."""

from __future__ import annotations

from collections import Counter, defaultdict

from holdfast.testing.source_suite.steps import CLOCK, Lab, Member, counted, join, numbers, own, send, together, values


class GroupSuite:
    """Groups do not see each other; the members of one share its partitions, and nothing is lost when one goes."""

    async def test_every_group_gets_every_message(self, lab: Lab) -> None:
        topic = await lab.topic()
        one, two = await join(lab, topic, "billing"), await join(lab, topic, "shipping")
        await send(one.source, topic, *numbers(5))
        messages = await one.take(5)
        await one.finish(*messages)
        assert values(await two.take(5)) == numbers(5)

    async def test_each_partition_is_one_members(self, lab: Lab) -> None:
        topic = await lab.topic(4)
        one = await join(lab, topic)
        await own(one, 4)
        two = await join(lab, topic)
        await together(one, two, until=lambda: len(one.owned) == len(two.owned) == 2)
        assert set(one.owned) | set(two.owned) == {(topic, partition) for partition in range(4)}
        for partition in range(4):
            await send(one.source, topic, *numbers(5), partition=partition)
        await together(one, two, until=lambda: len(one.received) + len(two.received) == 20)
        assert len(one.received) == len(two.received) == 10

    async def test_who_gives_partitions_up_is_asked_and_what_it_answers_is_committed(self, lab: Lab) -> None:
        topic = await lab.topic(2)
        one = await join(lab, topic)
        for partition in range(2):
            await send(one.source, topic, *numbers(10), partition=partition)
        messages = await one.take(20)
        one.note_finished(message for message in messages if int(message.value or b"") < 6)
        two = await join(lab, topic)
        await together(one, two, until=lambda: len(two.received) >= 4)
        assert len(one.owned) == len(two.owned) == 1
        assert one.revoked_places == list(two.owned)
        assert one.lost_places == []
        assert values(two.received) == numbers(4, first=6)
        await two.nothing()

    async def test_who_leaves_gives_everything_back(self, lab: Lab) -> None:
        topic = await lab.topic(2)
        one = await join(lab, topic)
        await own(one, 2)
        two = await join(lab, topic)
        await together(one, two, until=lambda: len(one.owned) == len(two.owned) == 1)
        for partition in range(2):
            await send(one.source, topic, *numbers(5), partition=partition)
        await together(one, two, until=lambda: len(one.received) == len(two.received) == 5)
        two.note_finished(two.received[:2])
        await two.commit()
        await two.source.close()
        await one.until(lambda: len(one.received) == 8)
        assert counted(one.received) == counted(one.received[:5]) + counted(two.received[2:])
        assert len(one.owned) == 2

    async def test_all_messages_of_a_killed_member_come_again(self, lab: Lab) -> None:
        topic = await lab.topic()
        one = await join(lab, topic)
        await send(one.source, topic, *numbers(50))
        messages = await one.take(50)
        await one.finish(*messages[:10])
        await lab.kill(one.source)
        two = await join(lab, topic)
        assert counted(await two.take(40)) == Counter(numbers(40, first=10))
        await two.finish(*two.received)
        await two.nothing()

    async def test_the_partitions_of_a_killed_member_go_to_the_others(self, lab: Lab) -> None:
        topic = await lab.topic(4)
        one = await join(lab, topic)
        await own(one, 4)
        two = await join(lab, topic)
        await together(one, two, until=lambda: len(one.owned) == len(two.owned) == 2)
        for partition in range(4):
            await send(one.source, topic, *numbers(5), partition=partition)
        await together(one, two, until=lambda: len(one.received) == len(two.received) == 10)
        await lab.kill(two.source)
        await one.until(lambda: len(one.received) == 20)
        assert len(one.owned) == 4
        by_partition: defaultdict[int, list[bytes | None]] = defaultdict(list)
        for message in one.received:
            by_partition[message.partition].append(message.value)
        assert dict(by_partition) == {partition: numbers(5) for partition in range(4)}

    async def test_members_that_come_and_go_lose_nothing_and_keep_the_order(self, lab: Lab) -> None:
        topic = await lab.topic(4)
        sender = lab.source(topic, "nobody")
        finished: list[tuple[int, int]] = []
        members: list[Member] = []
        for turn in range(4):
            for partition in range(4):
                await send(sender, topic, *numbers(10, first=10 * turn), partition=partition)
            if turn == 2:
                await members.pop(0).source.close()
            else:
                members.append(await join(lab, topic))
            await _work(members, finished, 40 * (turn + 1))
        by_partition: defaultdict[int, list[int]] = defaultdict(list)
        for partition, number in finished:
            if number not in by_partition[partition]:  # what comes again after it was finished is a duplicate
                by_partition[partition].append(number)
        assert dict(by_partition) == {partition: list(range(40)) for partition in range(4)}


async def _work(members: list[Member], finished: list[tuple[int, int]], n: int) -> None:
    """Finish what comes, member by member, until so many different messages are finished."""
    deadline = CLOCK.monotonic() + members[0].lab.patience_s
    while len(set(finished)) < n:
        assert CLOCK.monotonic() < deadline, "not all messages came in time"
        for member in members:
            messages = await member.look(limit=3)
            finished += [(message.partition, int(message.value or b"")) for message in messages]
            await member.finish(*messages)
