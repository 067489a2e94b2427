"""Redis Streams when answers are lost, names look alike, shards change and nobody knows how much there is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from holdfast.errors import NotSent, SourceError
from holdfast.streams.redis_streams import counting, sender
from holdfast.streams.redis_streams.address import address_of
from holdfast.streams.redis_streams.connection import Connection, Words
from holdfast.streams.redis_streams.scripts import READ
from holdfast.testing import FaultProxy
from holdfast.testing.source_suite.steps import numbers, own, send, together, values
from holdfast.types import Outgoing
from tests.redis_lab import RedisLab
from tests.servers import RedisServer


@pytest.fixture
async def lab(redis_server: RedisServer) -> AsyncIterator[RedisLab]:
    lab = RedisLab(redis_server)
    yield lab
    await lab.close()
    with redis_server.client() as client:
        client.flushall()


@pytest.fixture
def client(lab: RedisLab) -> Any:
    return lab.server.client()


# ---------------------------------------------------------------- lost answers


@pytest.mark.parametrize(("partitions", "asked"), [(1, b"XREADGROUP"), (2, READ.sha)], ids=["shared", "shards"])
async def test_no_message_passes_those_whose_answer_was_lost(lab: RedisLab, partitions: int, asked: bytes) -> None:
    topic = await lab.topic(partitions)
    with FaultProxy("127.0.0.1", lab.server.port) as proxy:
        member = await lab.join(topic, port=proxy.port, claim_after_s=30.0)
        await own(member, partitions)
        await send(lab.source(topic), topic, *numbers(6), partition=0)
        for lost in (1, 2):
            proxy.drop_reply(to=asked)
            while len(member.received) < 3 * lost:
                await member.finish(*await member.look(limit=1))
            assert proxy.traffic.replies_dropped == lost
        assert values(member.received) == numbers(6)
        await member.source.close()


@pytest.mark.parametrize(("partitions", "asked"), [(1, b"XREADGROUP"), (2, READ.sha)], ids=["shared", "shards"])
async def test_what_was_asked_on_a_lost_connection_cannot_be_done_later(
    lab: RedisLab, client: redis.Redis, partitions: int, asked: bytes
) -> None:
    topic = await lab.topic(partitions)
    with FaultProxy("127.0.0.1", lab.server.port) as proxy:
        member = await lab.join(topic, port=proxy.port, answer_within_s=0.2, claim_after_s=30.0)
        await own(member, partitions)
        await send(lab.source(topic), topic, b"0", partition=0)
        await member.take(1)
        lost = _client_of(member.source)
        await send(lab.source(topic), topic, b"1", partition=0)
        proxy.drop_reply(to=asked, then="silence")  # to the server the connection is as good as ever
        await member.until(lambda: len(member.received) == 2)
        assert proxy.traffic.replies_dropped == 1
        assert lost not in {int(one["id"]) for one in client.client_list()}
        await member.source.close()


def _client_of(source: Any) -> int:
    client: tuple[bytes, bytes] = source._seat._reader._connection._client
    return int(client[0])


# ---------------------------------------------------------------- names that look alike


async def test_groups_and_topics_with_dots_in_their_names_are_not_taken_for_one_another(lab: RedisLab) -> None:
    lab._shards |= {"shop": 2, "shop.eu": 2}
    retry = "shop.eu.billing.retry.0"
    one = await lab.join("shop", "eu.billing", [retry])
    other = await lab.join("shop.eu", "billing", [retry])
    await together(one, other, until=lambda: len(one.owned) == len(other.owned) == 4)
    await send(one.source, "shop", b"a", partition=0)
    await send(other.source, "shop.eu", b"b", partition=1)
    assert (values(await one.take(1)), values(await other.take(1))) == ([b"a"], [b"b"])


async def test_what_another_group_reads_too_is_not_deleted_when_one_has_finished_it(lab: RedisLab) -> None:
    retry = "shop.eu.billing.retry.0"
    one = await lab.join("shop", "eu.billing", [retry])
    other = await lab.join("shop.eu", "billing", [retry])
    await send(one.source, retry, b"x")
    await one.finish(*await one.take(1))
    assert values(await other.take(1)) == [b"x"]
    await other.finish(*other.received)
    assert not other.received[0].is_gone


# ---------------------------------------------------------------- how much there is


class _Scales(Connection):
    """A connection that weighs what comes."""

    heaviest = 0
    asks = 0

    def ask(self, *commands: Words) -> list[Any]:
        replies = super().ask(*commands)
        self.asks += 1
        self.heaviest = max(self.heaviest, sum(len(word) for _, fields in replies[0] for word in fields))
        return replies


def _fill(client: redis.Redis, topic: str, count: int, size: int = 1) -> list[bytes]:
    pipe = client.pipeline(transaction=False)
    for _ in range(count):
        pipe.xadd(topic, {"value": b"x" * size})
    ids: list[bytes] = pipe.execute()
    return ids


async def test_entries_are_counted_a_part_in_each_look_and_none_twice(
    lab: RedisLab, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "_MOST", 100)
    monkeypatch.setattr(counting, "_PAGE", 50)
    topic = await lab.topic()
    ids = _fill(client, topic, 500)
    line = _Scales(address_of(lab.url(topic)), 5.0)
    looks = counting.Counting()
    counts = [looks.count(line, topic.encode(), b"0-0", ids[-1])]
    while not counts[-1][1]:
        counts.append(looks.count(line, topic.encode(), b"0-0", ids[-1]))
    assert counts == [(121, False), (242, False), (363, False), (484, False), (500, True)]
    line.asks = 0
    assert looks.count(line, topic.encode(), ids[129], ids[-1]) == (370, True)
    assert line.asks <= 1  # that piece of which a part was read meanwhile
    more = _fill(client, topic, 7)
    assert looks.count(line, topic.encode(), ids[129], more[-1]) == (377, True)
    assert looks.count(line, topic.encode(), ids[-1], more[-1]) == (7, True)
    count, is_all = looks.count(line, topic.encode(), b"0-0", more[-1])  # the group was set back
    assert (count < 200, is_all) == (True, False)
    line.close()


async def test_large_entries_are_counted_few_at_a_time(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic()
    ids = _fill(client, topic, 120, size=100_000)
    line = _Scales(address_of(lab.url(topic)), 5.0)
    looks = counting.Counting()
    count, is_all = looks.count(line, topic.encode(), b"0-0", ids[-1])
    assert (70 < count < 100, is_all) == (True, False)
    assert line.heaviest < 300_000
    assert looks.count(line, topic.encode(), b"0-0", ids[-1]) == (120, True)
    line.close()


async def test_lag_of_more_than_can_be_counted_at_once_is_what_the_server_has_numbers_for(
    lab: RedisLab, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "_MOST", 100)
    topic = await lab.topic()
    member = await lab.join(topic)
    ids = _fill(client, topic, 1000)
    await member.take(3, limit=3)
    client.xdel(topic, ids[500])
    (group,) = client.xinfo_groups(topic)
    assert group["lag"] is None
    (first,) = await member.source.lags([topic])
    assert first.lag == 3 + 997  # one more than there are
    lags = [(await member.source.lags([topic]))[0].lag for _ in range(5)]
    assert lags[-1] == 3 + 996
    await member.finish(*member.received)


# ---------------------------------------------------------------- messages that can never be written


async def test_a_partition_that_is_not_there_is_not_sent_to_and_neither_are_its_neighbours(
    lab: RedisLab, client: redis.Redis
) -> None:
    topic = await lab.topic(2)
    with pytest.raises(NotSent, match="has no partition 2: there are 2"):
        await lab.source(topic).send([Outgoing(topic, b"1", partition=0), Outgoing(topic, b"2", partition=2)])
    assert client.exists(f"{topic}.0") == 0


async def test_a_message_that_the_script_fails_over_doubles_none_of_those_before_it(
    lab: RedisLab, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await lab.topic()
    source = lab.source(topic)
    headers = tuple((f"h{n}", b"") for n in range(5000))
    messages = [Outgoing(topic, b"1"), Outgoing(topic, b"2", None, headers), Outgoing(topic, b"3")]
    with pytest.raises(NotSent, match="has 5,000 headers"):
        await source.send_once("p", 1, messages)
    assert client.xlen(topic) == 0
    monkeypatch.setattr(sender, "_MOST_WORDS", 1_000_000)
    for _ in range(2):
        with pytest.raises(NotSent, match="cannot write a message"):
            await source.send_once("p", 1, messages)
    assert client.xlen(topic) == 1


# ---------------------------------------------------------------- another number of shards


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (1, 2), (2, 1)])
async def test_shards_cannot_be_changed_while_messages_are_left_in_them(lab: RedisLab, before: int, after: int) -> None:
    topic = await lab.topic(before)
    member = await lab.join(topic)
    for partition in range(before):
        await send(member.source, topic, *numbers(2), partition=partition)
    messages = await member.take(2 * before)
    await member.finish(*messages[1:])
    await member.source.close()
    lab._shards[topic] = after
    with pytest.raises(SourceError, match=rf"has messages left in {topic}\S*, of \?shards={before}"):
        await lab.join(topic)
    lab._shards[topic] = before
    member = await lab.join(topic)
    await member.finish(*await member.take(1))
    lab._shards[topic] = after
    with pytest.raises(SourceError, match=rf"is at work with \?shards={before}"):
        await lab.join(topic)
    await member.source.close()
    member = await lab.join(topic)
    await own(member, after)
    assert not any("shards" in one for one in member.source.capabilities.warnings)


@pytest.mark.parametrize(("written", "read", "named"), [(4, 2, ".2"), (4, 1, ".0"), (1, 4, "")])
async def test_streams_that_look_like_shards_and_are_not_read_are_said(
    lab: RedisLab, client: redis.Redis, written: int, read: int, named: str
) -> None:
    topic = await lab.topic(written)
    await send(lab.source(topic), topic, b"x", partition=2 if named == ".2" else 0)
    client.set(f"{topic}.9", "no stream")
    lab._shards[topic] = read
    member = await lab.join(topic)
    assert [one for one in member.source.capabilities.warnings if "shards" in one] == [
        f"with ?shards={read} the group billing does not read {topic}{named}, where messages are: "
        "do producers have another number of shards?"
    ]
