"""The Kafka broker of the tests does what tests will ask of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from holdfast.clock import SystemClock
from holdfast.testing import FaultProxy
from tests import kafka_server
from tests.kafka_broker import KafkaBroker
from tests.kafka_server import KafkaServer, KafkaTopic

ROOT = Path(__file__).parent.parent.parent


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def client(kafka: KafkaBroker) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": kafka.bootstrap, "log_level": 0, "retry.backoff.ms": 20}


def commit(kafka: KafkaBroker, group: str, at: TopicPartition) -> None:
    consumer = Consumer(client(kafka) | {"group.id": group})
    consumer.commit(offsets=[at], asynchronous=False)
    consumer.close()


def test_messages_come_back_as_they_were_written(kafka: KafkaBroker, kafka_topic: KafkaTopic) -> None:
    kafka.create_topic(kafka_topic.name, partitions=3)
    kafka.produce(kafka_topic.name, ["a", None], keys=["k", "k"], headers=[("h", b"1")], partition=2)
    kafka.produce(kafka_topic.name, [b"b"], partition=0)

    first, second, third = kafka.read(kafka_topic.name)

    assert (first.partition(), first.key(), first.value()) == (0, None, b"b")
    assert (second.partition(), second.key(), second.value(), second.headers()) == (2, b"k", b"a", [("h", b"1")])
    assert (third.offset(), third.value()) == (1, None)


def test_offsets_that_a_group_committed_can_be_asked_for(kafka: KafkaBroker, kafka_topic: KafkaTopic) -> None:
    kafka.create_topic(kafka_topic.name, partitions=2)
    kafka.produce(kafka_topic.name, ["1", "2"], partition=1)
    assert kafka.committed(kafka_topic.group, kafka_topic.name) == {}

    commit(kafka, kafka_topic.group, TopicPartition(kafka_topic.name, 1, 2))

    assert kafka.committed(kafka_topic.group, kafka_topic.name) == {1: 2}
    assert kafka.committed(f"{kafka_topic.group}-other", kafka_topic.name) == {}


def test_what_an_aborted_transaction_wrote_is_read_by_the_uncommitted_alone(
    kafka: KafkaBroker, kafka_topic: KafkaTopic
) -> None:
    kafka.create_topic(kafka_topic.name)
    producer = Producer(client(kafka) | {"transactional.id": kafka_topic.group})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(kafka_topic.name, "aborted")
    producer.flush(30)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(kafka_topic.name, "committed")
    producer.commit_transaction(30)

    assert values(kafka.read(kafka_topic.name)) == [b"committed"]
    assert values(kafka.read(kafka_topic.name, isolation="read_uncommitted")) == [b"aborted", b"committed"]


def test_a_topic_has_the_settings_it_was_made_with_until_it_is_deleted(
    kafka: KafkaBroker, kafka_topic: KafkaTopic
) -> None:
    kafka.create_topic(kafka_topic.name, config={"max.message.bytes": "500"})
    with pytest.raises(KafkaException) as caught:
        kafka.produce(kafka_topic.name, ["x" * 500])
    assert caught.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE

    kafka.delete_topic(kafka_topic.name)

    assert kafka_topic.name not in kafka.admin().list_topics(timeout=30).topics


def test_a_broker_that_was_suspended_and_killed_has_its_port_and_its_messages(own_kafka: KafkaServer) -> None:
    bootstrap = own_kafka.bootstrap
    own_kafka.create_topic("orders", partitions=2)
    own_kafka.produce("orders", ["1"], partition=1)
    commit(own_kafka, "billing", TopicPartition("orders", 1, 1))

    own_kafka.suspend()
    with pytest.raises(KafkaException):
        own_kafka.admin().list_topics(timeout=0.2)
    own_kafka.resume()
    assert "orders" in own_kafka.admin().list_topics(timeout=30).topics
    own_kafka.kill()
    with pytest.raises(KafkaException):
        own_kafka.admin().list_topics(timeout=0.2)
    own_kafka.start()
    own_kafka.produce("orders", ["2"], partition=1)

    assert own_kafka.bootstrap == bootstrap
    assert values(own_kafka.read("orders")) == [b"1", b"2"]
    assert own_kafka.committed("billing", "orders") == {1: 1}
    own_kafka.stop()
    with pytest.raises(KafkaException):
        own_kafka.admin().list_topics(timeout=0.2)


def test_clients_stay_behind_a_proxy_whose_port_is_advertised_and_the_tests_do_not() -> None:
    server = KafkaServer({"auto.create.topics.enable": "false"})
    with FaultProxy("127.0.0.1", server.port) as proxy:
        server.advertised_port = proxy.port
        with server:
            server.create_topic("orders")
            assert proxy.traffic.connections == 0
            producer = Producer(client(server) | {"message.timeout.ms": 300})
            failed: list[KafkaError | None] = []
            producer.produce("orders", "through", on_delivery=lambda error, _: failed.append(error))
            assert producer.flush(30) == 0
            assert failed == [None]

            proxy.blackhole()
            producer.produce("orders", "cut off", on_delivery=lambda error, _: failed.append(error))
            assert producer.flush(30) == 0

            assert failed[1] is not None
            assert failed[1].code() == KafkaError._MSG_TIMED_OUT
            assert values(server.read("orders")) == [b"through"]


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_kafka_a_test_is_skipped_and_fails_in_ci(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(kafka_server, "FORMATTED", tmp_path / "nothing")
    with pytest.raises(outcome, match="Apache Kafka IS NOT INSTALLED: make servers"):
        KafkaServer()


TWO_TESTS = """
import os, pathlib, pytest, time

SEEN = pathlib.Path(os.environ["SEEN"])

def is_alive(pid):
    return " Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text()

@pytest.mark.parametrize("number", [0, 1])
def test_one(number, kafka, kafka_topic):
    (SEEN / f"{number}.new").write_text(f"{os.getpid()} {kafka.port} {kafka.admin_port} {kafka_topic.name}")
    (SEEN / f"{number}.new").rename(SEEN / f"{number}")
    while not (other := SEEN / f"{1 - number}").exists():
        time.sleep(0.01)
    if number == 0:
        os.kill(os.getpid(), 9)
    while is_alive(other.read_text().split()[0]):
        time.sleep(0.01)
    kafka.produce(kafka_topic.name, ["1"])
"""


def test_all_of_pytests_processes_have_one_broker_which_ends_with_the_last_of_them(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(TWO_TESTS)
    (tmp_path / "conftest.py").write_text("from tests.kafka_server import kafka, kafka_numbers, kafka_topic")
    seen = tmp_path / "seen"
    seen.mkdir()
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    options = ["-n", "2", "--max-worker-restart=0", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}"]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "."],
        cwd=tmp_path,
        env=outside | {"SEEN": str(seen), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        text=True,
    )

    assert " 1 failed, 1 passed in " in done.stdout, done.stdout
    (first, port, admin_port, topic), (second, *others) = ((seen / number).read_text().split() for number in "01")
    assert first != second
    assert others[:2] == [port, admin_port]
    assert others[2] != topic
    while (tmp_path / "base" / "kafka-ports").exists():
        SystemClock().sleep(0.01)  # if its keeper has lost its parent, nobody waits for it
    with pytest.raises(KafkaException):
        KafkaBroker(int(port), int(admin_port)).admin().list_topics(timeout=0.2)
