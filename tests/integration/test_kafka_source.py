"""What the Kafka source does when things go wrong, on a real broker that others use, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from holdfast.errors import ConfigError, LeaseLost, NotSent, SourceAway, SourceError
from holdfast.ports import Progress
from holdfast.streams.kafka import KafkaSource
from holdfast.types import Outgoing, Place
from tests.kafka_broker import KafkaBroker
from tests.kafka_lab import (
    CLOCK,
    QUICK,
    Books,
    done,
    eventually,
    kept_sender,
    received,
    values,
    write,
    write_with_header,
)
from tests.kafka_server import KafkaTopic

NewSource = Callable[..., KafkaSource]


@pytest.fixture
async def new_source(kafka: KafkaBroker, kafka_topic: KafkaTopic) -> AsyncIterator[NewSource]:
    """Makes sources for the test's topic and group, and closes them."""
    made: list[KafkaSource] = []

    def make(options: str = "", **given: object) -> KafkaSource:
        url = f"{kafka_topic.url}?{QUICK}{options}"
        made.append(KafkaSource(url, kafka_topic.group, CLOCK, **{"session_timeout_s": 2.0, **given}))  # type: ignore[arg-type]
        if "send_s" not in given:
            made[-1]._sender = kept_sender(kafka.bootstrap)
        return made[-1]

    yield make
    await asyncio.gather(*(source.close() for source in made))


async def joined(source: KafkaSource, topic: KafkaTopic, partitions: int = 1) -> Books:
    """An owner of so many partitions."""
    owner = Books()
    await source.open(topic.name, [], owner)
    await eventually(lambda: len(owner.owned) == partitions)
    return owner


# ---------------------------------------------------------------- while nobody asks


async def test_while_nobody_asks_everything_is_paused_and_the_place_in_the_group_is_kept(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name)
    write(kafka, kafka_topic.name, *[b"%d" % n for n in range(50)])
    # Whoever does not poll for a second has lost its place.
    source = new_source("&max.poll.interval.ms=1000", session_timeout_s=1.0, rebalance_s=0.4)
    owner = await joined(source, kafka_topic)
    first = await received(source, 5, limit=5)
    assignment = source._joined._thread._assignment
    assert not assignment.is_resting
    await eventually(lambda: assignment.is_resting)
    began = CLOCK.monotonic()
    await eventually(lambda: CLOCK.monotonic() - began > 1.3)
    assert [kind for kind, _ in owner.told] == ["assigned"]
    rest = await received(source, 45, limit=7)
    assert values(first + rest) == [b"%d" % n for n in range(50)]
    assert not assignment.is_resting
    await source.commit(done(rest[-1]))


async def test_what_was_paused_before_nobody_asked_stays_paused_afterwards(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name, 2)
    source = new_source()
    await joined(source, kafka_topic, 2)
    source.pause([(kafka_topic.name, 0)])
    await source.receive(1, 0.05)
    write(kafka, kafka_topic.name, b"held", partition=0)
    await source.commit({})
    # An ask that nothing has come for keeps it polling; a message ends that.
    write(kafka, kafka_topic.name, b"free", partition=1)
    assignment = source._joined._thread._assignment
    await eventually(lambda: assignment.is_resting)
    assert values(await received(source, 1)) == [b"free"]
    assert await source.receive(1, 0.2) == ()
    source.resume([(kafka_topic.name, 0)])
    assert values(await received(source, 1)) == [b"held"]


async def test_nothing_is_fetched_of_a_paused_partition(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name, 2)
    source = new_source()
    await joined(source, kafka_topic, 2)
    source.pause([(kafka_topic.name, 0)])
    await source.receive(10, 0.05)
    write(kafka, kafka_topic.name, *[b"held"] * 1000)
    write(kafka, kafka_topic.name, *[b"free"] * 1000, partition=1)
    assert set(values(await received(source, 1000, limit=10))) == {b"free"}
    assert source._joined._handover._held == {}
    source.resume([(kafka_topic.name, 0)])
    assert set(values(await received(source, 1000))) == {b"held"}


async def test_what_came_before_the_thread_had_heard_of_a_pause_ends_no_wait_and_stops_nothing(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name, 2)
    source = new_source()
    await joined(source, kafka_topic, 2)
    handover = source._joined._handover
    waiting = asyncio.create_task(source.receive(10, 10.0))
    handover.pause([(kafka_topic.name, 0)])
    write(kafka, kafka_topic.name, b"held")
    await eventually(lambda: handover._held)
    write(kafka, kafka_topic.name, b"free", partition=1)
    began = CLOCK.monotonic()
    assert values(await waiting) == [b"free"]
    assert CLOCK.monotonic() - began < 5.0


# ---------------------------------------------------------------- rebalances


async def test_an_owner_that_takes_too_long_loses_its_partitions(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(Books):
        async def revoked(self, places: Collection[Place]) -> Mapping[Place, Progress]:
            self.told.append(("revoked", set(places)))
            await asyncio.Event().wait()
            raise AssertionError

    kafka.create_topic(kafka_topic.name, 2)
    slow, one = Slow(), new_source(rebalance_s=0.2)
    await one.open(kafka_topic.name, [], slow)
    await eventually(lambda: len(slow.owned) == 2)
    two = new_source()
    quick = Books()
    await two.open(kafka_topic.name, [], quick)
    await eventually(lambda: len(quick.owned) == 1)
    places = set(quick.owned)
    assert [what for what in slow.told if what[0] != "assigned"] == [("revoked", places), ("lost", places)]
    assert len(slow.owned) == 1
    assert "were not given back within 0.2 s" in caplog.text


async def test_what_an_owner_that_takes_too_long_has_committed_meanwhile_is_committed(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    one = new_source(rebalance_s=3.0)

    class Slow(Books):
        async def revoked(self, places: Collection[Place]) -> Mapping[Place, Progress]:
            await one.commit({place: Progress(position=4) for place in places})
            self.told.append(("committed", set(places)))
            await asyncio.Event().wait()
            raise AssertionError

    kafka.create_topic(kafka_topic.name, 2)
    slow = Slow()
    for partition in range(2):
        write(kafka, kafka_topic.name, *[b"%d" % n for n in range(9)], partition=partition)
    await one.open(kafka_topic.name, [], slow)
    await received(one, 18)
    quick = await joined(new_source(), kafka_topic)
    places = set(quick.owned)
    assert [what for what in slow.told if what[0] != "assigned"] == [("committed", places), ("lost", places)]
    assert list(quick.owned.values()) == [4]


async def test_a_partition_that_comes_back_is_read_though_it_was_paused_when_it_went(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name, 2)
    one, two = new_source(), new_source()
    first = await joined(one, kafka_topic, 2)
    one.pause(list(first.owned))
    await one.receive(10, 0.05)
    second = await joined(two, kafka_topic)
    ((_, partition),) = second.owned
    await eventually(lambda: len(first.owned) == 1)
    waiting = asyncio.create_task(one.receive(10, 10.0))  # who asks is not at rest, which would pause and resume it
    await two.close()
    await eventually(lambda: len(first.owned) == 2)
    write(kafka, kafka_topic.name, b"new", partition=partition)
    assert values(await waiting) == [b"new"]


async def test_a_partition_that_comes_back_is_read_though_it_was_paused_while_it_was_given_back(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    class Pausing(Books):
        async def revoked(self, places: Collection[Place]) -> Mapping[Place, Progress]:
            one.pause(places)
            return await super().revoked(places)

    kafka.create_topic(kafka_topic.name, 2)
    one, two = new_source(), new_source()
    first = Pausing()
    await one.open(kafka_topic.name, [], first)
    await eventually(lambda: len(first.owned) == 2)
    second = await joined(two, kafka_topic)
    ((_, partition),) = second.owned
    await two.close()
    await eventually(lambda: len(first.owned) == 2)
    write(kafka, kafka_topic.name, b"new", partition=partition)
    assert values(await received(one, 1)) == [b"new"]


async def test_an_owner_may_commit_while_it_gives_partitions_back(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    one = new_source()

    class Careful(Books):
        async def revoked(self, places: Collection[Place]) -> Mapping[Place, Progress]:
            await asyncio.gather(*(one.commit({place: Progress(position=4)}) for place in self.owned))
            return {place: Progress(position=5) for place in await super().revoked(places)}

    kafka.create_topic(kafka_topic.name, 2)
    careful = Careful()
    careful.progress = {(kafka_topic.name, n): Progress(position=1) for n in range(2)}
    for partition in range(2):
        write(kafka, kafka_topic.name, *[b"%d" % n for n in range(9)], partition=partition)
    await one.open(kafka_topic.name, [], careful)
    await received(one, 18)
    quick = await joined(new_source(), kafka_topic)
    assert list(quick.owned.values()) == [5]
    assert sorted(kafka.committed(kafka_topic.group, kafka_topic.name).values()) == [4, 5]


async def test_an_owner_that_raises_gives_partitions_back_all_the_same(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Books):
        async def revoked(self, places: Collection[Place]) -> Mapping[Place, Progress]:
            raise ZeroDivisionError

    kafka.create_topic(kafka_topic.name, 2)
    one, broken = new_source(), Broken()
    await one.open(kafka_topic.name, [], broken)
    await eventually(lambda: len(broken.owned) == 2)
    await joined(new_source(), kafka_topic)
    assert "ZeroDivisionError" in caplog.text
    write(kafka, kafka_topic.name, b"x", partition=0)
    write(kafka, kafka_topic.name, b"x", partition=1)
    await received(one, 1)


# ---------------------------------------------------------------- topics


async def test_a_topic_is_waited_for(kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource) -> None:
    source, owner = new_source(), Books()
    opening = asyncio.create_task(source.open(kafka_topic.name, [f"{kafka_topic.name}.retry"], owner))
    await eventually(lambda: owner.aways)
    assert owner.aways == [f"topic {kafka_topic.name} does not exist"]
    assert not opening.done()
    kafka.create_topic(kafka_topic.name, 3)
    await opening
    await eventually(lambda: len(owner.owned) == 4)
    assert owner.aways[1:] == [""]


async def test_partitions_that_are_added_are_read(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name)
    source = new_source(start="latest")
    owner = await joined(source, kafka_topic)
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(kafka_topic.name, 2)])[kafka_topic.name].result(10)
    await eventually(lambda: len(owner.owned) == 2)
    write(kafka, kafka_topic.name, b"new", partition=1)
    assert values(await received(source, 1)) == [b"new"]


async def test_only_a_topic_that_exists_can_be_a_model_and_one_that_does_not_has_nothing_to_read(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    source = new_source()
    with pytest.raises(SourceError, match=f"topic {kafka_topic.name} does not exist"):
        await source.ensure([f"{kafka_topic.name}.dlq"], kafka_topic.name)
    assert [batch async for batch in source.read(kafka_topic.name)] == []
    assert await source.lags([kafka_topic.name]) == []
    with pytest.raises(SourceError, match="letters, digits"):
        await source.open("^orders.*", [], Books())


async def test_missing_topics_are_made_like_another(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name, 3)
    dlq = f"{kafka_topic.name}.dlq"
    source = new_source()
    await asyncio.gather(*(source.ensure([dlq, kafka_topic.name], kafka_topic.name) for _ in range(3)))
    assert len(await source.lags([dlq])) == 3


async def test_a_topic_that_is_deleted_is_lost_and_waited_for(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name)
    write(kafka, kafka_topic.name, b"old")
    source = new_source("&topic.metadata.propagation.max.ms=100")
    owner = await joined(source, kafka_topic)
    await source.commit(done(*await received(source, 1)))
    kafka.delete_topic(kafka_topic.name)
    await eventually(lambda: owner.aways == [f"topic {kafka_topic.name} does not exist"] and not owner.owned)
    kafka.create_topic(kafka_topic.name)
    await eventually(lambda: owner.aways[-1] == "" and owner.owned)
    write(kafka, kafka_topic.name, b"new")
    assert values(await received(source, 1)) == [b"new"]


# ---------------------------------------------------------------- offsets that are gone


def delete_before(kafka: KafkaBroker, topic: str, offset: int) -> None:
    """As retention would."""
    admin, where = kafka.admin(), TopicPartition(topic, 0, offset)
    admin.delete_records([where])[where].result(10)


@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_messages_deleted_before_they_were_read_are_counted_and_said(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    kafka.create_topic(kafka_topic.name)
    write(kafka, kafka_topic.name, *[b"%d" % n for n in range(20)])
    before = new_source()
    await joined(before, kafka_topic)
    await before.commit({(kafka_topic.name, 0): Progress(position=3, retries={4: 2})})
    await before.close()
    delete_before(kafka, kafka_topic.name, 15)
    source = new_source(start=start)
    owner = await joined(source, kafka_topic)
    assert owner.owned == {(kafka_topic.name, 0): 15}
    assert source.deleted_unread == 12
    assert f"{kafka_topic.name}/0: 12 offsets from 3 on were deleted before group" in caplog.text
    assert values(await received(source, 5)) == [b"%d" % n for n in range(15, 20)]


async def test_a_consumer_that_is_overtaken_by_deletion_goes_on_where_the_log_begins(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name)
    write(kafka, kafka_topic.name, *[b"%d" % n for n in range(20)])
    source = new_source()
    owner = await joined(source, kafka_topic)
    place = (kafka_topic.name, 0)
    first = await received(source, 5, limit=5)
    await eventually(lambda: not source._joined._handover.is_empty)  # five more are on their way already
    source.pause([place])
    await source.receive(1, 0.05)
    delete_before(kafka, kafka_topic.name, 15)
    source.resume([place])
    rest = await received(source, 10, limit=5)
    assert values(first + rest) == [b"%d" % n for n in (*range(10), *range(15, 20))]
    assert source.deleted_unread == 5
    assert [kind for kind, _ in owner.told] == ["assigned"]
    await source.commit(done(rest[-1]))
    assert kafka.committed(kafka_topic.group, kafka_topic.name) == {0: 20}


async def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.create_topic(kafka_topic.name)
    write(kafka, kafka_topic.name, b"new")
    before = new_source()
    await joined(before, kafka_topic)
    await before.commit({(kafka_topic.name, 0): Progress(position=1000)})
    await before.close()
    source = new_source()
    await joined(source, kafka_topic)
    assert values(await received(source, 1)) == [b"new"]
    assert "the log ends at 1" in caplog.text


# ---------------------------------------------------------------- messages that others send


async def test_a_header_whose_name_is_no_text_costs_the_headers_and_not_the_message(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.create_topic(kafka_topic.name)
    write_with_header(kafka, kafka_topic.name, b"readable")
    write_with_header(kafka, kafka_topic.name, b"\xff\xfe")
    write(kafka, kafka_topic.name, b"next")
    source = new_source()
    await joined(source, kafka_topic)
    messages = await received(source, 3)
    assert values(messages) == [b"value", b"value", b"next"]
    assert [message.headers for message in messages] == [(("readable", b"header"),), (), ()]
    assert f"{kafka_topic.name}/0/1: its headers cannot be read" in caplog.text


# ---------------------------------------------------------------- sending


async def test_a_message_that_is_too_large_is_named(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name, config={"max.message.bytes": "5000"})
    source = new_source()
    for size in (2_000_000, 6_000):  # for the client, and for the topic
        with pytest.raises(SourceError, match=f"cannot send to {kafka_topic.name}.*{size:,} bytes") as refused:
            await source.send([Outgoing(kafka_topic.name, b"x" * size)])
        assert not isinstance(refused.value, SourceAway)
    await source.send([Outgoing(kafka_topic.name, b"small")])
    assert values([message async for batch in source.read(kafka_topic.name) for message in batch]) == [b"small"]


async def test_a_partition_that_is_not_there_is_named(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name)
    with pytest.raises(SourceError, match=f"cannot send to {kafka_topic.name}"):
        await new_source(send_s=1.0).send([Outgoing(kafka_topic.name, b"x", partition=7)])


async def test_a_key_is_in_the_partition_where_javas_clients_look_for_it(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name, 4)
    source = new_source()
    await source.send([Outgoing(kafka_topic.name, b"", key) for key in (b"21", b"foobar", b"abc")])
    found = [message async for batch in source.read(kafka_topic.name) for message in batch]
    # murmur2 with Java's seed: -973932308, -790332482, 479470107; without the sign, modulo 4
    java = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}
    assert {message.key: message.partition for message in found} == {
        key: (hashed & 0x7FFFFFFF) % 4 for key, hashed in java.items()
    }


async def test_calls_side_by_side_are_all_sent_and_each_has_its_own_error(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name)
    source = new_source()
    good = [[Outgoing(kafka_topic.name, b"%d.%d" % (call, n)) for n in range(3)] for call in range(5)]
    calls = [source.send(messages) for messages in good]
    calls.insert(2, source.send([Outgoing(kafka_topic.name, b"x" * 2_000_000)]))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None)] * 2 + [NotSent] + [type(None)] * 3
    found = values([message async for batch in source.read(kafka_topic.name) for message in batch])
    assert found == [message.value for messages in good for message in messages]


# ---------------------------------------------------------------- transactions


async def test_an_aborted_transaction_is_invisible_and_commits_nothing(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    out = f"{kafka_topic.name}.out"
    kafka.create_topic(kafka_topic.name)
    kafka.create_topic(out)
    write(kafka, kafka_topic.name, b"1", b"2")
    source = new_source()
    await joined(source, kafka_topic)
    messages = await received(source, 2)
    with pytest.raises(SourceError, match="2,000,000 bytes"):
        await source.transact([Outgoing(out, b"a"), Outgoing(out, b"x" * 2_000_000)], done(*messages))
    await source.transact([Outgoing(out, b"b")], done(messages[0]))
    assert values([message async for batch in source.read(out) for message in batch]) == [b"b"]
    assert [message.value() for message in kafka.read(out, isolation="read_uncommitted")] in ([b"b"], [b"a", b"b"])
    assert kafka.committed(kafka_topic.group, kafka_topic.name) == {0: 1}


async def test_whoever_takes_the_transactional_id_over_shuts_the_other_out_until_it_comes_back(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    out = f"{kafka_topic.name}.out"
    kafka.create_topic(kafka_topic.name, 2)
    kafka.create_topic(out)
    one, two = (new_source(transactional_id=f"tx-{kafka_topic.name}") for _ in range(2))
    first = await joined(one, kafka_topic, 2)
    await one.transact([Outgoing(out, b"1")], {})
    second = await joined(two, kafka_topic)
    await eventually(lambda: len(first.owned) == 1)
    await two.transact([Outgoing(out, b"2")], {place: Progress(position=0) for place in second.owned})
    mine = {place: Progress(position=0) for place in first.owned}
    with pytest.raises(SourceAway):
        await one.transact([Outgoing(out, b"3")], mine)
    await one.transact([Outgoing(out, b"3")], mine)
    assert values([message async for batch in one.read(out) for message in batch]) == [b"1", b"2", b"3"]
    with pytest.raises(LeaseLost):
        await one.transact([Outgoing(out, b"4")], {place: Progress(position=0) for place in second.owned})


# ---------------------------------------------------------------- for those who look


async def test_lag_counts_what_is_there_and_not_what_was_deleted(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name)
    write(kafka, kafka_topic.name, *[b"x"] * 10)
    delete_before(kafka, kafka_topic.name, 4)
    (lag,) = await new_source().lags([kafka_topic.name])
    assert (lag.lag, lag.position, lag.end) == (6, None, 10)
    (lag,) = await new_source(start="latest").lags([kafka_topic.name])
    assert (lag.lag, lag.position, lag.end) == (0, None, 10)
    retry = f"{kafka_topic.name}.retry"  # one of our own is read from its beginning, whatever the stream's start is
    kafka.create_topic(retry)
    write(kafka, retry, b"x")
    assert [lag.lag for lag in await new_source(start="latest").lags([retry])] == [1]


async def test_lag_leaves_out_what_belongs_to_an_open_transaction(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name)
    write(kafka, kafka_topic.name, b"x")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"open-{kafka_topic.name}"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(kafka_topic.name, b"y")
    producer.flush(10)
    (lag,) = await new_source().lags([kafka_topic.name])
    assert (lag.lag, lag.end) == (1, 1)
    (lag,) = await new_source("&isolation.level=read_uncommitted").lags([kafka_topic.name])
    assert (lag.lag, lag.end) == (2, 2)
    producer.abort_transaction(10)


# ---------------------------------------------------------------- its own end


async def test_a_thread_that_breaks_down_says_so_and_leaves_the_group(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.create_topic(kafka_topic.name)
    source = new_source()
    owner = await joined(source, kafka_topic)
    source._joined._thread._do(lambda: divmod(1, 0) and None)
    with pytest.raises(SourceError, match="broke down: ZeroDivisionError"):
        await received(source, 1)
    with pytest.raises(SourceError, match="broke down"):
        await source.commit({})
    assert "ZeroDivisionError" in caplog.text
    assert "broke down" in owner.aways[0]
    await joined(new_source(), kafka_topic)


async def test_who_closes_twice_at_once_or_before_the_group_has_formed_does_not_hang(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name)
    for _ in range(3):
        source = new_source()
        await source.open(kafka_topic.name, [], Books())
        async with asyncio.timeout(4):
            await asyncio.gather(source.close(), source.close())


async def test_it_is_opened_once_and_not_after_its_end(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    kafka.create_topic(kafka_topic.name)
    source = new_source()
    await source.open(kafka_topic.name, [], Books())
    with pytest.raises(SourceError, match="open already"):
        await source.open(kafka_topic.name, [], Books())
    await source.close()
    with pytest.raises(SourceError, match="it is closed"):
        await source.open(kafka_topic.name, [], Books())


async def test_an_option_that_librdkafka_refuses_is_said_when_it_opens(
    kafka: KafkaBroker, kafka_topic: KafkaTopic, new_source: NewSource
) -> None:
    with pytest.raises(ConfigError, match="nosuch"):
        await new_source("&nosuch=1").open(kafka_topic.name, [], Books())
