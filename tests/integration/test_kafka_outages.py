"""The Kafka source beside brokers that answer with errors, are away, or do not let everybody in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from holdfast.errors import LeaseLost, SourceAway, SourceError
from holdfast.ports import Progress
from holdfast.streams.kafka import KafkaSource
from holdfast.types import Outgoing
from tests.kafka_lab import CLOCK, QUICK, Books, done, eventually, received, values
from tests.kafka_mock import ApiKey, MockCluster
from tests.kafka_server import KafkaServer

NewSource = Callable[..., KafkaSource]


@pytest.fixture
async def new_source() -> AsyncIterator[NewSource]:
    """Makes sources, and closes them."""
    made: list[KafkaSource] = []

    def make(url: str, **given: object) -> KafkaSource:
        options = {"session_timeout_s": 0.5, **given}
        made.append(KafkaSource(f"{url}?{QUICK}", "billing", CLOCK, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    await asyncio.gather(*(source.close() for source in made))


async def joined(source: KafkaSource, topic: str, partitions: int = 1) -> Books:
    """An owner of so many partitions."""
    owner = Books()
    await source.open(topic, [], owner)
    await eventually(lambda: len(owner.owned) == partitions)
    return owner


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "code", [KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID]
)
async def test_a_commit_error_in_a_rebalance_recovers(
    mock_kafka: MockCluster, new_source: NewSource, code: int
) -> None:
    mock_kafka.create_topic("orders")
    source = new_source(mock_kafka.url("orders"))
    owner = await joined(source, "orders")
    await source.send([Outgoing("orders", b"%d" % n) for n in range(3)])
    messages = await received(source, 3)
    mock_kafka.push_errors(ApiKey.OFFSET_COMMIT, code)
    await source.commit(done(messages[0]))
    await eventually(lambda: owner.owned)
    if ("lost", {("orders", 0)}) in owner.told:  # what was not committed comes again
        messages = await received(source, 3 - owner.owned["orders", 0])
    await source.commit(done(messages[-1]))
    assert [lag.lag for lag in await source.lags(["orders"])] == [0]
    assert owner.aways == []


async def test_another_commit_error_is_raised_and_the_next_commit_works(
    mock_kafka: MockCluster, new_source: NewSource
) -> None:
    mock_kafka.create_topic("orders")
    source = new_source(mock_kafka.url("orders"))
    await joined(source, "orders")
    mock_kafka.push_errors(ApiKey.OFFSET_COMMIT, KafkaError.OFFSET_METADATA_TOO_LARGE)
    with pytest.raises(SourceError, match="OFFSET_METADATA_TOO_LARGE"):
        await source.commit({("orders", 0): Progress(position=1)})
    await source.commit({("orders", 0): Progress(position=2)})
    assert [lag.position for lag in await source.lags(["orders"])] == [2]


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH])
async def test_a_partition_that_has_just_been_given_to_a_broker_is_asked_again(
    mock_kafka: MockCluster, new_source: NewSource, code: int
) -> None:
    mock_kafka.create_topic("orders")
    source = new_source(mock_kafka.url("orders"))
    assert [lag.lag for lag in await source.lags(["orders"])] == [0]
    mock_kafka.push_errors(ApiKey.LIST_OFFSETS, code, code)
    assert [lag.lag for lag in await source.lags(["orders"])] == [0]


async def test_commits_that_come_together_go_together_and_the_last_word_counts(
    mock_kafka: MockCluster, new_source: NewSource
) -> None:
    mock_kafka.create_topic("orders", 2)
    source = new_source(mock_kafka.url("orders"))
    await joined(source, "orders", 2)
    mock_kafka.set_rtt(0.05)
    await asyncio.gather(*(source.commit({("orders", n % 2): Progress(position=n)}) for n in range(20)))
    assert [lag.position for lag in await source.lags(["orders"])] == [18, 19]
    assert mock_kafka.count(ApiKey.OFFSET_COMMIT) <= 3


async def test_who_is_thrown_out_of_the_group_is_told_and_comes_back(
    mock_kafka: MockCluster, new_source: NewSource
) -> None:
    mock_kafka.create_topic("orders")
    source = new_source(mock_kafka.url("orders"))
    owner = await joined(source, "orders")
    await source.send([Outgoing("orders", b"%d" % n) for n in range(9)])
    await source.commit(done(*(await received(source, 3, limit=3))))
    mock_kafka.push_errors(ApiKey.HEARTBEAT, KafkaError.UNKNOWN_MEMBER_ID)
    await eventually(lambda: len(owner.told) == 3)
    place = ("orders", 0)
    assert owner.told == [("assigned", {place: 0}), ("lost", {place}), ("assigned", {place: 3})]
    # What had come and was not received yet is not brought twice.
    assert values(await received(source, 6)) == [b"%d" % n for n in range(3, 9)]
    assert await source.receive(9, 0.1) == ()


async def test_offsets_that_cannot_be_read_yet_are_asked_for_until_they_can(
    mock_kafka: MockCluster, new_source: NewSource
) -> None:
    mock_kafka.create_topic("orders")
    source = new_source(mock_kafka.url("orders"))
    mock_kafka.push_errors(ApiKey.LIST_OFFSETS, *[KafkaError.KAFKA_STORAGE_ERROR] * 2)
    owner = await joined(source, "orders")
    assert owner.owned == {("orders", 0): 0}


async def test_a_transaction_that_is_aborted_may_be_sent_again(mock_kafka: MockCluster, new_source: NewSource) -> None:
    mock_kafka.create_topic("orders")
    mock_kafka.create_topic("out")
    source = new_source(mock_kafka.url("orders"))
    await joined(source, "orders")
    progress = {("orders", 0): Progress(position=1)}
    mock_kafka.push_errors(ApiKey.TXN_OFFSET_COMMIT, KafkaError.ILLEGAL_GENERATION)
    with pytest.raises(SourceAway):
        await source.transact([Outgoing("out", b"x")], progress)
    await source.transact([Outgoing("out", b"x")], progress)
    assert mock_kafka.count(ApiKey.TXN_OFFSET_COMMIT) == 2


async def test_a_transaction_that_fails_since_its_partition_was_taken_says_so(
    mock_kafka: MockCluster, new_source: NewSource
) -> None:
    mock_kafka.create_topic("orders")
    mock_kafka.create_topic("out")
    source = new_source(mock_kafka.url("orders"), session_timeout_s=6.0)
    owner = await joined(source, "orders")
    await source.transact([Outgoing("out", b"w")], {})
    mock_kafka.push_errors(ApiKey.TXN_OFFSET_COMMIT, KafkaError.UNKNOWN_MEMBER_ID)
    mock_kafka.push_errors(ApiKey.HEARTBEAT, KafkaError.UNKNOWN_MEMBER_ID)
    mock_kafka.set_rtt(0.2)  # the heartbeat is answered first, and who was thrown out needs seconds to come back
    with pytest.raises(LeaseLost, match="orders/0"):
        await source.transact([Outgoing("out", b"x")], {("orders", 0): Progress(position=1)})
    assert owner.told[-1] == ("lost", {("orders", 0)})


async def test_a_commit_without_an_answer_is_looked_up(mock_kafka: MockCluster, new_source: NewSource) -> None:
    mock_kafka.create_topic("orders")
    mock_kafka.create_topic("out")
    source = new_source(mock_kafka.url("orders"))
    await joined(source, "orders")
    progress = {("orders", 0): Progress(position=1)}
    # The producer is shut out by the answer to its commit, and the group's position is not there: it was aborted.
    mock_kafka.push_errors(ApiKey.END_TXN, KafkaError.PRODUCER_FENCED)
    with pytest.raises(SourceAway, match="_FENCED"):
        await source.transact([Outgoing("out", b"x")], progress)
    # Once more, and it is there: it was committed.
    await source.commit(progress)
    mock_kafka.push_errors(ApiKey.END_TXN, KafkaError.PRODUCER_FENCED)
    await source.transact([Outgoing("out", b"x")], progress)
    await source.transact([Outgoing("out", b"y")], {})


# ---------------------------------------------------------------- outages


async def test_a_broker_that_is_away_is_told_once_and_nothing_goes_to_stderr(
    mock_kafka: MockCluster, new_source: NewSource, capfd: pytest.CaptureFixture[str]
) -> None:
    mock_kafka.create_topic("orders")
    source = new_source(mock_kafka.url("orders"), send_s=0.5, session_timeout_s=10.0)
    owner = await joined(source, "orders")
    await source.send([Outgoing("orders", b"before")])
    assert values(await received(source, 1)) == [b"before"]
    mock_kafka.set_down()
    await eventually(lambda: owner.aways)
    assert await source.receive(10, 0.1) == ()
    with pytest.raises(SourceAway, match="cannot send to orders"):
        await source.send([Outgoing("orders", b"lost")])
    with pytest.raises(SourceAway):
        await source.lags(["orders"])
    mock_kafka.set_up()
    await eventually(lambda: len(owner.aways) == 2)
    why, back = owner.aways
    assert "refused" in why or "brokers are down" in why or "isconnect" in why
    assert back == ""
    await source.send([Outgoing("orders", b"after")])
    assert b"after" in values(await received(source, 1))
    await source.commit({("orders", 0): Progress(position=2)})
    assert capfd.readouterr().err == ""


async def test_a_broker_that_is_not_there_yet_is_said_when_it_is_opened(new_source: NewSource) -> None:
    source = KafkaSource("kafka://127.0.0.1:1/orders?" + QUICK, "billing", CLOCK)
    with pytest.raises(SourceAway, match="refused"):
        await source.open("orders", [], Books())
    await source.close()


async def test_closing_does_not_wait_for_a_broker_that_is_away(mock_kafka: MockCluster, new_source: NewSource) -> None:
    mock_kafka.create_topic("orders")
    source = new_source(mock_kafka.url("orders"), send_s=1.0)
    await joined(source, "orders")
    await source.send([Outgoing("orders", b"x")])
    mock_kafka.set_down()
    sending = asyncio.create_task(source.send([Outgoing("orders", b"y")]))
    committing = asyncio.create_task(source.commit({("orders", 0): Progress(position=1)}))
    await asyncio.sleep(0)  # noqa: TID251 - lets them begin
    began = CLOCK.monotonic()
    await source.close()
    assert CLOCK.monotonic() - began < 6.0
    for task in (sending, committing):
        with pytest.raises(SourceAway):
            await task


async def test_a_broker_that_is_killed_and_started_again_loses_nothing(
    own_kafka: KafkaServer, new_source: NewSource
) -> None:
    own_kafka.create_topic("orders", 2)
    source = new_source(own_kafka.url("orders"), session_timeout_s=6.0)
    owner = await joined(source, "orders", 2)
    await source.send([Outgoing("orders", b"%d" % n, partition=n % 2) for n in range(10)])
    before = await received(source, 10)
    await source.commit(done(before[-1]))
    own_kafka.kill()
    await eventually(lambda: owner.aways)
    assert await source.receive(10, 0.05) == ()
    sending = asyncio.create_task(source.send([Outgoing("orders", b"new", partition=n) for n in range(2)]))
    await asyncio.to_thread(own_kafka.start)
    await sending
    await eventually(lambda: owner.aways[-1] == "")
    seen: list[bytes | None] = []
    while seen.count(b"new") < 2:
        messages = await source.receive(10, 0.1)
        seen += values(messages)
        await source.commit(done(*messages))
    assert owner.aways[1:] == [""]
    assert sum(lag.lag for lag in await source.lags(["orders"])) <= 5  # what was not committed above


# ---------------------------------------------------------------- who is let in

_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    "user_app=right user_reader=reader user_guest=guest;"
)


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaServer]:
    """A broker where `app` may read and write, `reader` has no group, `guest` may do nothing, nobody make topics."""
    options = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": _USERS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KafkaServer(options) as server:
        admin = server.admin()
        allowed = [
            ("app", ResourceType.TOPIC, AclOperation.READ),
            ("app", ResourceType.TOPIC, AclOperation.WRITE),
            ("app", ResourceType.GROUP, AclOperation.READ),
            ("reader", ResourceType.TOPIC, AclOperation.READ),
        ]
        acls = [
            AclBinding(kind, "*", ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for user, kind, operation in allowed
        ]
        for answer in admin.create_acls(acls).values():
            answer.result(10)
        server.create_topic("orders", 2)
        yield server


def as_user(server: KafkaServer, user: str, password: str) -> KafkaSource:
    url = f"kafka://{user}:{password}@{server.bootstrap}/orders?{QUICK}"
    return KafkaSource(
        f"{url}&security.protocol=SASL_PLAINTEXT&socket.connection.setup.timeout.ms=2000", "billing", CLOCK
    )


async def test_who_is_named_in_the_url_is_logged_in(guarded: KafkaServer) -> None:
    source = as_user(guarded, "app", "right")
    owner = await joined(source, "orders", 2)
    await source.send([Outgoing("orders", b"x")])
    messages = await received(source, 1)
    await source.commit(done(*messages))
    assert sorted(lag.lag for lag in await source.lags(["orders"])) == [0, 0]
    await source.close()
    assert owner.aways == []


async def test_who_may_not_create_topics_is_told_which_to_create(guarded: KafkaServer) -> None:
    source = as_user(guarded, "app", "right")
    with pytest.raises(
        SourceError, match=r"may not create topics: .*create orders\.a, orders\.b, with one partition each"
    ) as refused:
        await source.open("orders", ["orders.b", "orders.a"], Books())
    assert not isinstance(refused.value, SourceAway)
    assert "\n" not in str(refused.value)
    await source.close()


async def test_a_wrong_password_is_said_and_not_shown(guarded: KafkaServer) -> None:
    source = as_user(guarded, "app", "hunter2")
    with pytest.raises(SourceError, match="uthentication") as refused:
        await source.lags(["orders"])
    assert not isinstance(refused.value, SourceAway)
    assert "hunter2" not in str(refused.value)
    await source.close()


async def test_who_may_not_read_is_told_so(guarded: KafkaServer) -> None:
    source = as_user(guarded, "guest", "guest")
    with pytest.raises(SourceError):
        await source.open("orders", [], Books())
    await source.close()


async def test_who_may_not_join_the_group_is_told_so(guarded: KafkaServer) -> None:
    source, owner = as_user(guarded, "reader", "reader"), Books()
    await source.open("orders", [], owner)
    with pytest.raises(SourceError, match=r"cannot read as group billing: .*GROUP_AUTHORIZATION_FAILED"):
        await received(source, 1)
    assert "GROUP_AUTHORIZATION_FAILED" in owner.aways[0]
    await source.close()
