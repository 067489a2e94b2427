"""What Redis Streams do to consumers, and consumers to each other: on a real server."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
import redis

from holdfast.errors import NotSent, SourceAway, SourceError
from holdfast.ports import Source
from holdfast.testing import FaultProxy
from holdfast.testing.source_suite.steps import CLOCK, Member, counted, numbers, own, send, together, values
from holdfast.types import Message, Outgoing, entry_id
from tests.redis_lab import RedisLab, heart_of
from tests.servers import RedisServer, free_port


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


def consumers(client: redis.Redis, stream: str, group: str = "billing") -> dict[bytes, int]:
    """Each consumer of a group, and how much is pending with it."""
    found: Any = client.xinfo_consumers(stream, group)
    return {one["name"]: one["pending"] for one in found}


def written(client: redis.Redis, stream: str) -> list[bytes]:
    """The values of all entries."""
    entries: Any = client.xrange(stream)
    return [fields[b"value"] for _, fields in entries]


async def everything(source: Source, *topics: str) -> list[Message]:
    """All messages, in the order of their values."""
    messages = [one for topic in topics async for batch in source.read(topic) for one in batch]
    return sorted(messages, key=lambda one: one.value or b"")


# ---------------------------------------------------------------- dead, slow and foreign consumers


async def test_a_slow_consumer_keeps_what_it_has(lab: RedisLab) -> None:
    topic = await lab.topic()
    slow = await lab.join(topic, claim_after_s=0.2)
    await send(slow.source, topic, *numbers(10))
    messages = await slow.take(10)
    other = await lab.join(topic, claim_after_s=0.2)
    end_s = CLOCK.monotonic() + 0.6
    while CLOCK.monotonic() < end_s:
        assert list(await other.look()) == []
    await slow.finish(*messages)
    assert [lag.lag for lag in await slow.source.lags([topic])] == [0]
    assert slow.lost_places == []


async def test_a_dead_consumer_is_removed_only_when_all_its_entries_are_claimed(
    lab: RedisLab, client: redis.Redis
) -> None:
    topic = await lab.topic()
    dead = await lab.join(topic)
    await send(dead.source, topic, *numbers(700))
    await dead.take(700, limit=700)
    name = heart_of(dead.source).consumer
    await lab.kill(dead.source)
    other = await lab.join(topic)
    seen: list[int] = []
    while len(other.received) < 700:
        await other.look(limit=100)
        pending = consumers(client, topic)
        seen.append(pending.get(name, 0))
        assert sum(pending.values()) == 700
    assert max(seen) > 0
    await other.until(lambda: name not in consumers(client, topic))
    assert counted(other.received) == counted(dead.received)
    assert consumers(client, topic) == {heart_of(other.source).consumer: 700}
    await other.finish(*other.received)
    assert [lag.lag for lag in await other.source.lags([topic])] == [0]


async def test_a_dead_consumer_that_had_nothing_is_removed(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic()
    dead = await lab.join(topic)
    await dead.look()
    await lab.kill(dead.source)
    other = await lab.join(topic)
    await other.look()
    assert heart_of(dead.source).consumer not in consumers(client, topic)
    assert client.smembers(f"{topic}/billing/members") == {heart_of(other.source).consumer}
    assert client.exists(f"{topic}/billing/dead") == 0


async def test_who_was_given_up_finds_out_and_commits_nothing(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic()
    stopped = await lab.join(topic, claim_after_s=4.0)
    await send(stopped.source, topic, *numbers(3))
    messages = await stopped.take(3)
    lab.forget(stopped.source)
    other = await lab.join(topic)
    assert values(await other.take(3)) == numbers(3)
    await stopped.finish(*messages)  # it does not know yet
    assert [lag.lag for lag in await other.source.lags([topic])] == [3]
    await stopped.until(lambda: len(stopped.owned) == 1 and bool(stopped.lost_places))
    assert stopped.lost_places == [(topic, 0)]
    await other.finish(*other.received)
    await other.source.close()
    await send(stopped.source, topic, b"new")
    assert values(await stopped.take(1)) == [b"new"]  # it has joined again
    assert len(consumers(client, topic)) == 1


async def test_a_lapse_that_nobody_has_used_costs_nothing(lab: RedisLab) -> None:
    topic = await lab.topic()
    member = await lab.join(topic)
    await send(member.source, topic, b"x")
    messages = await member.take(1)
    lab.forget(member.source)
    beats = heart_of(member.source)
    beats.release()
    await member.until(lambda: bool(lab.server.client().exists(beats._layout.base + b"alive/" + beats.consumer)))
    await member.finish(*messages)
    assert member.lost_places == []
    assert [lag.lag for lag in await member.source.lags([topic])] == [0]


async def test_entries_of_a_consumer_that_is_none_of_ours_are_claimed_when_idle(
    lab: RedisLab, client: redis.Redis
) -> None:
    topic = await lab.topic()
    client.xgroup_create(topic, "billing", "0", mkstream=True)
    await send(lab.source(topic), topic, b"taken by a stranger")
    client.xreadgroup("billing", "stranger", {topic: ">"})
    member = await lab.join(topic, claim_after_s=0.3)
    assert list(await member.look(wait_s=0.0)) == []
    assert values(await member.take(1)) == [b"taken by a stranger"]
    assert b"stranger" in consumers(client, topic)  # whose it is, they may remove it


async def test_what_a_leaving_consumer_has_not_finished_is_claimed_at_once(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic()
    one = await lab.join(topic, claim_after_s=60.0)
    two = await lab.join(topic, claim_after_s=60.0)
    await send(one.source, topic, *numbers(5))
    await one.take(5)
    await one.source.close()
    assert values(await two.take(5)) == numbers(5)
    assert set(consumers(client, topic)) == {heart_of(two.source).consumer}


async def test_who_leaves_with_nothing_pending_is_removed(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic()
    member = await lab.join(topic)
    await send(member.source, topic, b"x")
    await member.finish(*await member.take(1))
    await member.source.close()
    assert consumers(client, topic) == {}
    assert client.keys(f"{topic}/billing/*") == [f"{topic}/billing/shards".encode()]


async def test_the_delivery_count_of_redis_is_no_retry_count(lab: RedisLab) -> None:
    topic = await lab.topic()
    for _ in range(3):
        member = await lab.join(topic)
        if not member.received:
            await send(member.source, topic, *([b"x"] if _ == 0 else []))
        (message,) = await member.take(1)
        assert message.retries == 0
        await lab.kill(member.source)
    member = await lab.join(topic)
    (message,) = await member.take(1)
    await member.commit({message: 4})
    await lab.kill(member.source)
    after = await lab.join(topic)
    (message,) = await after.take(1)
    assert message.retries == 4
    await after.finish(message)
    with lab.server.client() as client:
        assert client.exists(f"{topic}/billing/retries") == 0


async def test_the_heart_beats_while_the_event_loop_is_busy(lab: RedisLab) -> None:
    topic = await lab.topic()
    busy = await lab.join(topic, claim_after_s=0.2)
    await send(busy.source, topic, b"x")
    await busy.take(1)
    CLOCK.sleep(0.5)  # a handler that blocks everything
    other = await lab.join(topic, claim_after_s=0.2)
    await other.nothing()
    assert busy.lost_places == []


# ---------------------------------------------------------------- trimmed and deleted


@pytest.mark.parametrize("partitions", [1, 2])
async def test_what_was_deleted_while_pending_is_reported_until_it_is_finished(
    lab: RedisLab, client: redis.Redis, partitions: int
) -> None:
    topic = await lab.topic(partitions)
    stream = topic if partitions == 1 else f"{topic}.0"
    member = await lab.join(topic)
    await send(member.source, topic, *numbers(4), partition=0)
    messages = await member.take(4)
    await member.commit({messages[0]: 2})
    client.xtrim(stream, minid=entry_id(messages[2].offset), approximate=False)
    await lab.kill(member.source)
    for _ in range(2):  # also when the one who was told dies before it has told anybody
        member = await lab.join(topic)
        again = await member.take(4)
        gone = sorted((one for one in again if one.is_gone), key=lambda one: one.offset)
        assert [one.offset for one in gone] == [messages[0].offset, messages[1].offset]
        assert [(one.value, one.key, one.retries) for one in gone] == [(None, None, 2), (None, None, 0)]
        assert values(one for one in again if not one.is_gone) == [b"2", b"3"]
        await member.nothing()
        await lab.kill(member.source)
    member = await lab.join(topic)
    await member.finish(*await member.take(4))
    await lab.kill(member.source)
    member = await lab.join(topic)
    await member.nothing()
    assert client.exists(f"{stream}/billing/gone") == 0


async def test_what_was_trimmed_unread_is_said_with_its_number(
    lab: RedisLab, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await lab.topic()
    member = await lab.join(topic)
    await send(member.source, topic, *numbers(10))
    await member.finish(*await member.take(2, limit=2))
    await member.source.close()
    client.xtrim(topic, 3, approximate=False)
    member = await lab.join(topic)
    with caplog.at_level(logging.WARNING, "holdfast.streams"):
        assert values(await member.take(3)) == numbers(3, first=7)
    assert [record.getMessage() for record in caplog.records] == [
        f"{member.source.capabilities.location}: at least 5 entries of stream {topic} were trimmed or deleted "
        "before the group billing had read them"
    ]


async def test_lag_is_counted_where_the_server_does_not_know_it(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic()
    member = await lab.join(topic)
    await send(member.source, topic, *numbers(10))
    await member.take(3, limit=3)
    entries: Any = client.xrange(topic)
    client.xdel(topic, entries[5][0])
    (group,) = client.xinfo_groups(topic)
    assert group["lag"] is None
    (lag,) = await member.source.lags([topic])
    assert lag.lag == 3 + 6
    assert lag.position == member.received[0].offset


async def test_finished_entries_of_our_own_topics_are_deleted(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic()
    retry = f"{topic}.billing.retry.1"
    member = await lab.join(topic, ours=[retry])
    await send(member.source, topic, b"a")
    await send(member.source, retry, b"b", b"c")
    messages = await member.take(3)
    await member.finish(*(one for one in messages if one.value != b"c"))
    assert client.xlen(topic) == 1
    assert client.xlen(retry) == 1


async def test_a_stream_may_be_bounded(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic()
    source = lab.source(topic, max_entries=100)
    await send(source, topic, *numbers(1000))
    assert 100 <= client.xlen(topic) <= 300
    await send(source, f"{topic}.dlq", *numbers(1000))
    assert client.xlen(f"{topic}.dlq") == 1000  # nobody's dead letters vanish


# ---------------------------------------------------------------- entries of others


async def test_entries_of_any_producer_are_messages(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic()
    member = await lab.join(topic)
    client.xadd(topic, {"value": b"\xff1"})
    client.xadd(topic, {"header.trace": "t", "key": "k", "value": "2", "more": "ignored"})
    client.xadd(topic, {"sku": "a-1", "count": "3", "raw": b"\xff"})
    one, two, three = await member.take(3)
    assert (one.value, one.key, one.headers) == (b"\xff1", None, ())
    assert (two.value, two.key, two.headers) == (b"2", b"k", (("trace", b"t"),))
    assert json.loads(three.value or b"") == {"sku": "a-1", "count": "3", "raw": "\\xff"}


async def test_the_field_of_the_value_can_be_named(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic()
    member = await lab.join(topic, field="payload")
    client.xadd(topic, {"type": "made", "payload": "1"})
    await send(member.source, topic, b"2")
    await member.source.send([Outgoing(topic, None, b"k")])
    assert [(one.value, one.key) for one in await member.take(3)] == [(b"1", None), (b"2", None), (None, b"k")]
    assert client.xrange(topic, count=1, min="(" + entry_id(member.received[0].offset)) == [
        (entry_id(member.received[1].offset).encode(), {b"payload": b"2"})
    ]


# ---------------------------------------------------------------- lost answers, and a server that is away


async def test_entries_whose_answer_was_lost_come_all_the_same(lab: RedisLab) -> None:
    topic = await lab.topic()
    with FaultProxy("127.0.0.1", lab.server.port) as proxy:
        member = await lab.join(topic, port=proxy.port)
        await send(lab.source(topic), topic, *numbers(3))
        await member.take(3)
        await send(lab.source(topic), topic, *numbers(7, first=3))
        proxy.drop_reply(to=b"XREADGROUP")
        await member.until(lambda: len(member.received) >= 10)
        assert proxy.traffic.replies_dropped == 1
        await member.nothing()
    assert values(member.received) == numbers(10)


async def test_messages_whose_answer_was_lost_are_not_sent_twice(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic()
    with FaultProxy("127.0.0.1", lab.server.port) as proxy:
        source = lab.source(topic, port=proxy.port)
        await send(source, topic, b"first")
        proxy.drop_reply(to=b"EVALSHA")
        await send(source, topic, *numbers(3))
        assert proxy.traffic.replies_dropped == 1
    assert client.xlen(topic) == 4


async def test_numbered_messages_are_written_once(lab: RedisLab, client: redis.Redis) -> None:
    topic, other = await lab.topic(), await lab.topic()
    source = lab.source(topic)
    messages = [Outgoing(topic, b"1"), Outgoing(other, b"2"), Outgoing(topic, b"3")]
    first = await source.send_once("p", 1, messages)
    assert await source.send_once("p", 1, messages) == [(0, -1)] * 3
    *again, new = await source.send_once("p", 2, [*messages[1:], Outgoing(topic, b"4")])
    assert again == [(0, -1)] * 2
    assert [*first, new] == [(0, one.offset) for one in await everything(source, topic, other)]
    await source.send_once("q", 1, messages[:1])
    assert written(client, topic) == [b"1", b"3", b"4", b"1"]
    assert client.xlen(other) == 1
    assert 0 < client.ttl(f"{topic}/producer:p") <= 86_400


async def test_after_a_message_that_cannot_be_written_nothing_is_and_the_rest_can_be_sent_again(
    lab: RedisLab, client: redis.Redis
) -> None:
    topic = await lab.topic()
    client.set("text", "no stream")
    source = lab.source(topic)
    messages = [Outgoing(topic, b"1"), Outgoing("text", b"2"), Outgoing(topic, b"3")]
    with pytest.raises(NotSent, match="is no stream"):
        await source.send_once("p", 1, messages)
    client.delete("text")
    await source.send_once("p", 1, messages)
    assert written(client, topic) == [b"1", b"3"]


async def test_a_group_that_is_gone_is_made_again_and_said(
    lab: RedisLab, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await lab.topic()
    member = await lab.join(topic, start="latest")
    await send(member.source, topic, b"before")
    await member.finish(*await member.take(1))
    waiting = asyncio.create_task(member.look(wait_s=5.0))
    await member.source.lags([topic])
    with caplog.at_level(logging.WARNING, "holdfast.streams"):
        client.flushall()
        await send(lab.source(topic), topic, b"after")
        await member.until(lambda: values(member.received)[1:] == [b"after"]) if not await waiting else None
    assert values(member.received) == [b"before", b"after"]
    assert any("was gone and is made again" in record.getMessage() for record in caplog.records)
    await member.until(lambda: len(member.owned) == 1)


async def test_a_server_that_is_away_is_said_once_and_what_was_pending_comes_again() -> None:
    with RedisServer({"appendonly": "yes"}) as server:
        lab = RedisLab(server)
        topic = await lab.topic()
        member = await lab.join(topic, answer_within_s=0.5, claim_after_s=0.5)
        await send(member.source, topic, *numbers(5))
        messages = await member.take(5)
        await member.finish(*messages[:2])
        server.kill()
        calls = 0
        end_s = CLOCK.monotonic() + 0.8
        while CLOCK.monotonic() < end_s or not member.lost_places:
            calls += 1
            with pytest.raises(SourceAway):
                await member.look(wait_s=0.2)
        assert calls < 20
        with pytest.raises(SourceAway):
            await send(member.source, topic, b"x")
        assert len(member.aways) == 1
        assert "cannot be reached" in member.aways[0]
        server.start()
        while len(member.received) < 8:
            with suppress(SourceAway):  # until it has noticed
                await member.look(wait_s=0.05)
        assert member.aways == [member.aways[0], ""]
        assert values(member.received) == [*numbers(5), *numbers(3, first=2)]
        await lab.close()


async def test_an_answer_that_never_comes_is_given_up(lab: RedisLab) -> None:
    with RedisServer() as server:
        own_lab = RedisLab(server)
        topic = await own_lab.topic()
        member = await own_lab.join(topic, answer_within_s=0.3)
        server.pause()
        with pytest.raises(SourceAway, match="no answer in time"):
            await send(member.source, topic, b"x")
        began_s = CLOCK.monotonic()
        await member.source.close()
        assert CLOCK.monotonic() - began_s < 5.0
        server.resume()


async def test_a_server_that_is_not_there_is_away() -> None:
    server = RedisServer()
    lab = RedisLab(server)
    member = Member(lab, lab.source("orders"))
    with pytest.raises(SourceAway, match="cannot be reached") as error:
        await member.source.open("orders", [], member)
    assert server.password not in str(error.value)
    with pytest.raises(SourceAway):
        await member.source.lags(["orders"])
    server.start()
    await member.source.open("orders", [], member)
    await own(member)
    await lab.close()
    server.kill()


async def test_who_is_at_work_goes_on_while_the_servers_memory_is_full() -> None:
    with RedisServer() as server:
        lab = RedisLab(server)
        topic = await lab.topic()
        member = await lab.join(topic, claim_after_s=0.3)
        await send(member.source, topic, *numbers(10))
        messages = await member.take(5, limit=5)
        with server.client() as client:
            client.config_set("maxmemory", 1)
            with pytest.raises(SourceAway, match="its memory is full"):
                await send(member.source, topic, b"more")
            end_s = CLOCK.monotonic() + 0.5
            while CLOCK.monotonic() < end_s:
                await member.look()
            await member.finish(*messages, *member.received[5:])
            assert member.lost_places == []
            assert [lag.lag for lag in await member.source.lags([topic])] == [0]
            assert len(client.keys(f"{topic}/billing/alive/*")) == 1
        await lab.close()


# ---------------------------------------------------------------- shards


async def test_an_owner_that_lost_its_shards_reads_and_commits_nothing(lab: RedisLab) -> None:
    topic = await lab.topic(2)
    stopped = await lab.join(topic)
    for partition in range(2):
        await send(stopped.source, topic, *numbers(3), partition=partition)
    messages = await stopped.take(6)
    heart_of(stopped.source).stop()  # as if SIGSTOP had held it up
    lab.forget(stopped.source)
    other = await lab.join(topic)
    assert counted(await other.take(6)) == counted(messages)
    await send(other.source, topic, b"new", partition=0)
    assert list(await stopped.look()) == []
    await stopped.finish(*messages)
    assert sum(lag.lag for lag in await other.source.lags([topic])) == 7
    assert values(await other.take(1)) == [b"new"]


async def test_shards_are_shared_out_fairly_over_any_number_of_consumers(lab: RedisLab) -> None:
    topic = await lab.topic(7)
    members = [await lab.join(topic) for _ in range(3)]
    await together(*members, until=lambda: sorted(len(one.owned) for one in members) == [2, 2, 3])
    owned = [place for member in members for place in member.owned]
    assert sorted(owned) == [(topic, partition) for partition in range(7)]


async def test_an_owner_that_takes_too_long_loses_its_shards(lab: RedisLab, caplog: pytest.LogCaptureFixture) -> None:
    topic = await lab.topic(2)
    slow = _Slow(lab, lab.source(topic, handover_s=0.1))
    await slow.source.open(topic, [], slow)
    await own(slow, 2)
    other = await lab.join(topic)
    await together(slow, other, until=lambda: len(other.owned) == 1)
    assert len(slow.lost_places) == 1
    assert "were not given up within 0.1 s" in caplog.text


async def test_what_an_owner_that_takes_too_long_has_committed_meanwhile_is_committed(lab: RedisLab) -> None:
    topic = await lab.topic(2)
    slow = _Slow(lab, lab.source(topic, handover_s=1.0))
    await slow.source.open(topic, [], slow)
    await own(slow, 2)
    for partition in range(2):
        await send(slow.source, topic, *numbers(9), partition=partition)
    await slow.take(18)
    slow.finished_late = [message for message in slow.received if int(message.value or b"") < 4]
    other = await lab.join(topic)
    await together(slow, other, until=lambda: len(other.received) == 5)
    assert (len(slow.lost_places), values(other.received)) == (1, numbers(5, first=4))


class _Slow(Member):
    finished_late: Sequence[Message] = ()

    async def revoked(self, places: Any) -> Any:
        await self.finish(*[message for message in self.finished_late if message.place in places])
        await asyncio.get_running_loop().create_future()


async def test_a_key_is_always_in_the_shard_that_its_crc_says(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic(8)
    await lab.source(topic).send([Outgoing(topic, b"x", b"customer-42")])
    assert client.xlen(f"{topic}.5") == 1  # crc32(b"customer-42") % 8; other producers rely on it


async def test_only_the_topic_and_the_groups_own_are_sharded(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic(4)
    source = lab.source(topic)
    await source.send([Outgoing(f"{topic}.dlq", b"x", b"k"), Outgoing(f"{topic}.billing.retry.1", b"x", partition=2)])
    assert client.xlen(f"{topic}.dlq") == 1
    assert client.xlen(f"{topic}.billing.retry.1.2") == 1


# ---------------------------------------------------------------- processes

_PROGRAM = """
import asyncio, sys
from holdfast.clock import SystemClock
from holdfast.streams.redis_streams import RedisSource

def say(*words):
    print(*words, flush=True)

class Owner:
    def assigned(self, positions): say("assigned", len(positions))
    async def revoked(self, places): return {}
    def lost(self, places): say("lost", len(places))
    def away(self, why): pass

async def main(url, topic):
    source = RedisSource(url, "billing", SystemClock(), claim_after_s=0.5)
    await source.open(topic, [], Owner())
    while True:
        for message in await source.receive(10, 0.1):
            say("got", message.value.decode())

asyncio.run(main(*sys.argv[1:]))
"""


class _Process:
    """A consumer in a process of its own, which finishes nothing."""

    def __init__(self, lab: RedisLab, topic: str, partitions: int) -> None:
        url = f"{lab.url(topic)}?shards={partitions}"
        command = [sys.executable, "-c", _PROGRAM, url, topic]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    async def says(self, line: str) -> None:
        assert self.popen.stdout is not None
        while (said := await asyncio.to_thread(self.popen.stdout.readline)) != f"{line}\n":
            assert said, "it has died"

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *error: object) -> None:
        self.popen.kill()
        self.popen.communicate()


@pytest.mark.parametrize("partitions", [1, 2])
async def test_what_a_stopped_process_had_goes_to_others_and_it_finds_out_when_it_goes_on(
    lab: RedisLab, partitions: int
) -> None:
    topic = await lab.topic(partitions)
    await send(lab.source(topic), topic, *numbers(3), partition=0)
    with _Process(lab, topic, partitions) as process:
        await process.says("got 2")
        process.popen.send_signal(signal.SIGSTOP)
        member = await lab.join(topic)
        assert values(await member.take(3)) == numbers(3)
        process.popen.send_signal(signal.SIGCONT)
        await process.says(f"lost {partitions}")
        if partitions > 1:
            await together(member, until=lambda: len(member.owned) == 1)  # it has come back, and has its share
        await process.says("assigned 1")
    await member.finish(*member.received)
    assert sum(lag.lag for lag in await member.source.lags([topic])) == 0


async def test_what_a_killed_process_had_goes_to_others(lab: RedisLab, client: redis.Redis) -> None:
    topic = await lab.topic()
    await send(lab.source(topic), topic, *numbers(3))
    with _Process(lab, topic, 1) as process:
        await process.says("got 2")
        process.popen.kill()
        member = await lab.join(topic)
        assert values(await member.take(3)) == numbers(3)
    assert len(consumers(client, topic)) == 1


async def test_a_wait_ends_at_once_when_a_stream_is_resumed(lab: RedisLab) -> None:
    topic = await lab.topic()
    member = await lab.join(topic, ours=[f"{topic}.billing.retry.1"])
    await send(member.source, topic, *numbers(10))
    began_s = CLOCK.monotonic()
    for _ in range(10):
        member.source.pause([(topic, 0)])
        waiting = asyncio.create_task(member.look(limit=1, wait_s=5.0))
        await member.source.lags([topic])
        member.source.resume([(topic, 0)])
        assert len(await waiting) == 1
    assert CLOCK.monotonic() - began_s < 5.0  # it would be ten waits in the server, of a second each


# ---------------------------------------------------------------- other ways to a server


async def test_any_node_of_a_cluster_leads_to_the_one_that_has_a_stream_whose_name_is_in_braces() -> None:
    options = [{"cluster-enabled": "yes", "cluster-port": str(free_port())} for _ in range(2)]
    with RedisServer(options[0]) as first, RedisServer(options[1]) as second:
        with first.client() as a, second.client() as b:
            a.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            b.execute_command("CLUSTER MEET", "127.0.0.1", first.port, options[0]["cluster-port"])
            while not all(one.execute_command("CLUSTER INFO")["cluster_state"] == "ok" for one in (a, b)):
                CLOCK.sleep(0.01)
        lab = RedisLab(second)
        lab._shards["{orders}"] = 2
        retry = "{orders}.billing.retry.1"
        member = await lab.join("{orders}", ours=[retry])
        member.source.pause([("{orders}", 1)])
        await send(member.source, "{orders}", *numbers(4), partition=1)
        waiting = asyncio.create_task(member.look(wait_s=5.0))
        await member.source.lags([retry])
        member.source.resume([("{orders}", 1)])
        await waiting
        await member.until(lambda: len(member.received) == 4)
        await member.finish(*member.received)
        assert sum(lag.lag for lag in await member.source.lags(["{orders}"])) == 0
        with pytest.raises(SourceError, match=r"write redis://host/\{orders\}"):
            await lab.join("orders")
        await lab.close()


@pytest.mark.parametrize("right", ["client|info", "client|unblock"])
async def test_a_wait_is_short_where_nobody_may_end_it(lab: RedisLab, client: redis.Redis, right: str) -> None:
    client.acl_setuser("plain", enabled=True, passwords=["+p"], keys=["*"], commands=["+@all", f"-{right}"])
    topic = await lab.topic()
    source = lab.source(topic)
    url = lab.url(topic).replace(":right@", "plain:p@")
    member = Member(lab, type(source)(url, "billing", CLOCK, claim_after_s=0.5))
    lab.sources.append(member.source)  # type: ignore[arg-type]
    retry = f"{topic}.billing.retry.1"
    await member.source.open(topic, [retry], member)
    reads = member.source._seat._reader._connection  # type: ignore[attr-defined]
    is_known = False
    while not is_known:  # a first try is in vain where only that tells
        is_known = not reads.can_wake
        member.source.pause([(topic, 0)])
        await send(source, topic, b"x")
        waiting = asyncio.create_task(member.look(wait_s=5.0))
        await source.lags([topic])
        began_s = CLOCK.monotonic()
        member.source.resume([(topic, 0)])
        assert values(await waiting) == [b"x"]
    assert CLOCK.monotonic() - began_s < 0.9
    client.acl_deluser("plain")


async def test_a_socket_file_works_too(lab: RedisLab) -> None:
    with RedisServer({"unixsocket": "redis.sock"}) as server:
        path = server.folder / "redis.sock"
        source = type(lab.source("orders"))(f"unix://:{server.password}@{path}?stream=orders&db=1", "billing", CLOCK)
        member = Member(lab, source)
        await source.open("orders", [], member)
        await send(source, "orders", b"x")
        assert values(await member.take(1)) == [b"x"]
        await source.close()
        with server.client() as client:
            assert client.exists("orders") == 0  # it is in database 1
