"""How often those have died who had an entry: not counted where somebody took leave, or an entry just moves on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.testing.source_suite.steps import numbers, own, send
from tests.redis_lab import RedisLab
from tests.servers import RedisServer

kinds = pytest.mark.parametrize("partitions", [1, 2], ids=["shared", "shards"])


@pytest.fixture
async def lab(redis_server: RedisServer) -> AsyncIterator[RedisLab]:
    lab = RedisLab(redis_server)
    yield lab
    await lab.close()
    with redis_server.client() as client:
        client.flushall()


@kinds
async def test_each_death_of_a_consumer_counts_for_what_it_had_and_not_for_what_is_new(
    lab: RedisLab, partitions: int
) -> None:
    topic = await lab.topic(partitions)
    for deaths in range(3):
        member = await lab.join(topic)
        await own(member, partitions)
        if not deaths:
            await send(member.source, topic, *numbers(3), partition=0)
        messages = await member.take(3)
        assert [one.deaths for one in messages] == [deaths] * 3
        await lab.kill(member.source)
    last = await lab.join(topic)
    await own(last, partitions)
    await last.finish(*await last.take(3))
    await send(last.source, topic, b"new", partition=0)
    (new,) = await last.take(1)
    assert new.deaths == 0
    with lab.server.client() as client:
        assert [one for one in client.scan_iter() if one.endswith(b"retries")] == []  # finished, and forgotten


@kinds
async def test_whoever_takes_leave_with_something_unfinished_has_not_died(lab: RedisLab, partitions: int) -> None:
    topic = await lab.topic(partitions)
    for time in range(3):
        member = await lab.join(topic)
        await own(member, partitions)
        if not time:
            await send(member.source, topic, *numbers(3), partition=0)
        messages = await member.take(3)
        assert [one.deaths for one in messages] == [0] * 3
        await member.source.close()
