"""librdkafka's mock cluster does to real clients what tests will ask of it."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from holdfast.clock import SystemClock
from tests.kafka_mock import ApiKey, MockCluster

CLOCK = SystemClock()


def client(cluster: MockCluster) -> dict[str, str | int | float | bool]:
    quick = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20, "retry.backoff.ms": 10}
    return {"bootstrap.servers": cluster.bootstrap, "log_level": 0, **quick}


def member(cluster: MockCluster) -> Consumer:
    wanted = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return Consumer(client(cluster) | wanted)


def deliver(producer: Producer, value: str) -> KafkaError | None:
    failed: list[KafkaError | None] = []
    producer.produce("orders", value, partition=0, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0
    return failed[0]


def test_a_group_reads_and_commits(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("orders", 3)
    assert deliver(Producer(client(mock_kafka)), "1") is None
    consumer = member(mock_kafka)
    assert len(consumer.list_topics("orders", timeout=30).topics["orders"].partitions) == 3

    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    assert message is not None
    consumer.commit(message=message, asynchronous=False)

    assert message.value() == b"1"
    assert consumer.committed([TopicPartition("orders", 0)], timeout=30)[0].offset == 1
    assert mock_kafka.count(ApiKey.OFFSET_COMMIT) == 1
    consumer.close()


def test_pushed_errors_are_the_next_answers(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("orders")
    consumer = member(mock_kafka)
    mock_kafka.push_errors(ApiKey.OFFSET_COMMIT, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID)
    found = []

    for _ in range(3):
        try:
            consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
            found.append(0)
        except KafkaException as error:
            found.append(error.args[0].code())

    assert found == [KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID, 0]
    consumer.close()


def test_errors_that_are_cleared_are_not_given_out(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("orders")
    mock_kafka.push_errors(ApiKey.PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.MSG_SIZE_TOO_LARGE)
    producer = Producer(client(mock_kafka))
    error = deliver(producer, "1")
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE

    mock_kafka.clear_errors(ApiKey.PRODUCE)

    assert deliver(producer, "2") is None


def test_a_broker_that_is_down_takes_nothing_until_it_is_up(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("orders")
    producer = Producer(client(mock_kafka) | {"message.timeout.ms": 300})
    assert deliver(producer, "1") is None

    mock_kafka.set_down()
    error = deliver(producer, "2")
    mock_kafka.set_up()

    assert error is not None
    assert error.code() == KafkaError._MSG_TIMED_OUT
    patient = Producer(client(mock_kafka))
    assert deliver(patient, "3") is None


def test_answers_are_late_by_the_round_trip_time(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("orders")
    producer = Producer(client(mock_kafka) | {"linger.ms": 0})
    assert deliver(producer, "1") is None
    mock_kafka.set_rtt(0.2)
    began_s = CLOCK.monotonic()

    assert deliver(producer, "2") is None

    assert CLOCK.monotonic() - began_s >= 0.2


def test_a_group_and_a_partition_go_on_at_another_broker() -> None:
    with MockCluster(brokers=2) as cluster:
        cluster.create_topic("orders")
        for broker in (1, 2):
            cluster.set_leader("orders", 0, broker)
            cluster.set_coordinator("billing", broker)
            assert deliver(Producer(client(cluster)), "1") is None
            consumer = member(cluster)
            consumer.commit(offsets=[TopicPartition("orders", 0, broker)], asynchronous=False)
            leader = consumer.list_topics("orders", timeout=30).topics["orders"].partitions[0].leader
            assert leader == broker
            consumer.close()


@pytest.mark.parametrize("broker", [0, 2])
def test_a_broker_that_is_not_there_cannot_be_taken_down(mock_kafka: MockCluster, broker: int) -> None:
    with pytest.raises(AssertionError, match="BROKER_NOT_AVAILABLE"):
        mock_kafka.set_down(broker)
