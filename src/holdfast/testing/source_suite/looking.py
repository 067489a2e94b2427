# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a source tells those who only look."""

from __future__ import annotations

from holdfast.testing.source_suite.sending import all_of
from holdfast.testing.source_suite.steps import Lab, join, numbers, own, send, values


class LagSuite:
    """Lag is what is not finished, whoever asks."""

    async def test_what_is_not_read_is_lag(self, lab: Lab) -> None:
        topic = await lab.topic()
        source = lab.source(topic, "billing")
        await send(source, topic, *numbers(7))
        (lag,) = await source.lags([topic])
        assert (lag.topic, lag.partition, lag.lag, lag.position) == (topic, 0, 7, None)

    async def test_what_is_read_and_not_finished_is_lag_too(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(7))
        messages = await member.take(7)
        assert [lag.lag for lag in await member.source.lags([topic])] == [7]
        await member.finish(*messages[:3])
        await send(member.source, topic, *numbers(2))
        other = lab.source(topic, "billing")
        assert [lag.lag for lag in await other.lags([topic])] == [6]
        await member.take(2)
        await member.finish(*messages[3:], *member.received[7:])
        (lag,) = await other.lags([topic])
        assert lag.lag == 0
        assert lag.position is not None

    async def test_lag_is_told_by_partition_topic_and_group(self, lab: Lab) -> None:
        one, two = await lab.topic(3), await lab.topic()
        source = lab.source(one, "billing")
        for partition in range(3):
            await send(source, one, *numbers(partition), partition=partition)
        await send(source, two, *numbers(5))
        lags = {(lag.topic, lag.partition): lag.lag for lag in await source.lags([one, two])}
        assert lags == {(one, 0): 0, (one, 1): 1, (one, 2): 2, (two, 0): 5}
        member = await join(lab, two, "shipping")
        await member.finish(*await member.take(5))
        assert [lag.lag for lag in await source.lags([two])] == [5]
        assert [lag.lag for lag in await member.source.lags([two])] == [0]


class ReadSuite:
    """A topic can be read by anybody, from its beginning."""

    async def test_all_messages_are_read_and_nothing_is_changed(self, lab: Lab) -> None:
        topic = await lab.topic(2)
        member = await join(lab, topic)
        await own(member, 2)
        for partition in range(2):
            await send(member.source, topic, *numbers(600), partition=partition)
        await member.finish(*await member.take(1200))
        for _ in range(2):
            messages = await all_of(lab, topic)
            for partition in range(2):
                assert values(one for one in messages if one.partition == partition) == numbers(600)
        assert [lag.lag for lag in await member.source.lags([topic])] == [0, 0]
        await member.nothing()

    async def test_what_is_read_is_what_is_received(self, lab: Lab) -> None:
        topic = await lab.topic()
        member = await join(lab, topic)
        await send(member.source, topic, *numbers(3), key=b"k")
        assert await all_of(lab, topic) == await member.take(3)

    async def test_an_empty_topic_has_nothing(self, lab: Lab) -> None:
        assert await all_of(lab, await lab.topic()) == []

    async def test_a_topic_that_does_not_exist_has_nothing_too(self, lab: Lab) -> None:
        assert [batch async for batch in lab.source(await lab.topic(), "billing").read("nobody-made-it")] == []

    async def test_who_reads_stops_at_what_was_there_when_it_began(self, lab: Lab) -> None:
        topic = await lab.topic()
        source = lab.source(topic, "billing")
        await send(source, topic, *numbers(3))
        n = 0
        async for batch in source.read(topic):
            n += len(batch)
            await send(source, topic, *numbers(len(batch)))
        assert n == 3
