"""A producer on real servers: each message once and in order, whatever becomes of connections, replies and servers."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, cast

import pytest
from confluent_kafka import KafkaError

from holdfast.clock import SystemClock
from holdfast.errors import BufferFull, NotSent, SourceError
from holdfast.streams import Producer
from holdfast.testing import FaultProxy
from holdfast.types import entry_offset
from tests.kafka_broker import KafkaBroker
from tests.kafka_mock import ApiKey, MockCluster
from tests.kafka_server import KafkaServer, KafkaTopic
from tests.servers import RedisServer

_COUNT: Final = 20_000
_THREADS: Final = 3
_KEYS: Final = 7


class Senders:
    """Threads that send numbers, each under keys of its own; `reached` waits until so many were taken in all."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._taken = [0] * _THREADS
        self._errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._send, args=(n,), daemon=True) for n in range(_THREADS)]
        for thread in self._threads:
            thread.start()

    def _send(self, name: int) -> None:
        try:
            for number in range(name, _COUNT, _THREADS):
                self._producer.send(value=number, key=f"{name}:{number % _KEYS}")
                self._taken[name] += 1
        except Exception as error:
            self._errors.append(error)

    def reached(self, count: int) -> None:
        _until(lambda: sum(self._taken) >= count or bool(self._errors))

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(60)
        assert self._errors == []
        assert sum(self._taken) == _COUNT


def check_all_there_once_and_in_order(written: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    by_key: dict[bytes | None, list[int]] = defaultdict(list)
    for key, value in written:
        by_key[key].append(int(value or b""))
    for numbers in by_key.values():
        assert numbers == sorted(numbers)
    assert sorted(number for numbers in by_key.values() for number in numbers) == list(range(_COUNT))


# ---------------------------------------------------------------- Kafka


def test_20_000_messages_of_three_threads_are_in_kafka_once_and_in_order_whatever_happens_on_the_way() -> None:
    server = KafkaServer()
    with FaultProxy("127.0.0.1", server.port) as proxy:
        server.advertised_port = proxy.port
        with server:
            server.create_topic("orders", partitions=4)
            with Producer(server.url("orders"), buffer=500, timeout=60) as producer:
                senders = Senders(producer)
                for count in (1_000, 3_000, 5_000):
                    senders.reached(count)
                    proxy.drop_reply(to=b"orders")
                senders.reached(8_000)
                proxy.reset()
                senders.reached(10_000)
                server.kill()
                server.start()
                senders.reached(14_000)
                proxy.drop_reply(to=b"orders")
                senders.finish()
                producer.flush()
            lost = proxy.traffic.replies_dropped
            written = [(message.key(), message.value()) for message in server.read("orders")]
    assert lost == 4
    check_all_there_once_and_in_order(written)


def test_a_message_is_in_kafka_with_its_key_headers_and_partition(kafka: KafkaBroker, kafka_topic: KafkaTopic) -> None:
    kafka.create_topic(kafka_topic.name, partitions=3)
    with Producer(kafka_topic.url) as producer:
        first = producer.send(value={"id": 1}, key="ann", headers=[("h", "ü"), ("h", None)], partition=2)
        second = producer.send(kafka_topic.name, None, key=7, partition=2)
        assert first.wait(30) == (kafka_topic.name, 2, 0)
        assert second.wait(30) == (kafka_topic.name, 2, 1)
        assert producer.unsent == 0
    one, two = kafka.read(kafka_topic.name)
    assert (one.key(), one.value(), one.headers()) == (b"ann", b'{"id":1}', [("h", "ü".encode()), ("h", None)])
    assert (two.key(), two.value(), two.headers()) == (b"7", None, None)


async def test_async_code_sends_to_kafka_through_a_buffer_of_ten(kafka: KafkaBroker, kafka_topic: KafkaTopic) -> None:
    kafka.create_topic(kafka_topic.name)
    async with Producer(kafka_topic.url, buffer=10) as producer:
        sents = await asyncio.gather(*(producer.asend(value=n) for n in range(300)))
        written = await asyncio.gather(*sents)
    assert [one.offset for one in written] == list(range(300))
    assert [message.value() for message in kafka.read(kafka_topic.name)] == [b"%d" % n for n in range(300)]


def test_a_message_that_kafka_can_never_take_is_refused_and_the_others_go_on(
    kafka: KafkaBroker, kafka_topic: KafkaTopic
) -> None:
    kafka.create_topic(kafka_topic.name, config={"max.message.bytes": "2000"})
    with Producer(kafka_topic.url) as producer:
        with pytest.raises(SourceError, match=r"raise message\.max\.bytes"):
            producer.send(value=b"x" * 2_000_000)  # more than the client takes
        refused = producer.send(value=bytes(range(256)) * 20)  # more than the topic takes
        with pytest.raises(NotSent, match="MSG_SIZE_TOO_LARGE"):
            refused.wait(30)
        with pytest.raises(SourceError, match=f"topic {kafka_topic.name}: .*partition"):
            producer.send(value="x", partition=9).wait(30)
        assert producer.send(value="fine").wait(30).offset == 0
        with pytest.raises(NotSent, match="1 message was given up"):
            producer.flush()


def test_a_broker_that_is_away_fills_the_buffer_and_no_more(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("orders")
    producer = Producer(mock_kafka.url("orders"), buffer=5, when_full="error")
    producer.send(value="first").wait(30)
    mock_kafka.set_down()
    for n in range(5):
        producer.send(value=n)
    with pytest.raises(BufferFull, match="5 messages are unsent"):
        producer.send(value="refused")
    assert producer.unsent == 5
    mock_kafka.set_up()
    producer.close(30)


def test_what_kafka_has_not_taken_in_time_is_given_up_loudly_and_the_next_goes_on(
    mock_kafka: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    mock_kafka.create_topic("orders")
    mock_kafka.set_down()
    with Producer(mock_kafka.url("orders"), timeout=0.6) as producer:
        lost = producer.send(value="lost")
        with pytest.raises(NotSent, match=r"topic orders: not acknowledged within 0\.6 s; .*refused"):
            lost.wait(30)
        mock_kafka.set_up()
        with pytest.raises(NotSent, match="1 message was given up since the last flush"):
            producer.flush()
        assert [record.levelno for record in caplog.records if record.name == "holdfast.streams"] == [logging.ERROR]
        _again(lambda: producer.send(value="next").wait(30))
        with suppress(NotSent):  # of those that came too early
            producer.flush()


def test_passing_errors_of_the_broker_are_not_seen_by_the_sender(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("orders")
    with Producer(f"{mock_kafka.url('orders')}?retry.backoff.ms=10") as producer:
        mock_kafka.push_errors(
            ApiKey.PRODUCE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REQUEST_TIMED_OUT, KafkaError._TRANSPORT
        )
        sents = [producer.send(value=n) for n in range(10)]
        assert [sent.wait(30).offset for sent in sents] == list(range(10))


def test_after_an_error_that_the_client_cannot_go_on_from_a_new_one_takes_over(
    mock_kafka: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    mock_kafka.create_topic("orders")
    with Producer(f"{mock_kafka.url('orders')}?linger.ms=100") as producer:
        producer.send(value="first").wait(30)
        mock_kafka.push_errors(ApiKey.PRODUCE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
        lost = [producer.send(value="lost") for _ in range(5)]
        for sent in lost:
            with pytest.raises(NotSent, match=r"out of order sequence|nobody knows"):
                sent.wait(30)
        assert producer.send(value="next").wait(30).offset == 1
        with pytest.raises(NotSent, match="5 messages were given up"):
            producer.flush()
    assert "cannot go on, and a new one takes over" in caplog.text


# ---------------------------------------------------------------- Redis


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    with RedisServer({"appendonly": "yes", "appendfsync": "always"}) as server:
        yield server


def test_20_000_messages_of_three_threads_are_in_redis_once_and_in_order_whatever_happens_on_the_way(
    own_redis: RedisServer,
) -> None:
    with FaultProxy("127.0.0.1", own_redis.port) as proxy:
        url = f"redis://:{own_redis.password}@127.0.0.1:{proxy.port}/orders?shards=4"
        with Producer(url, buffer=500, timeout=60) as producer:
            senders = Senders(producer)
            for count in (1_000, 3_000, 5_000):
                senders.reached(count)
                proxy.drop_reply(to=b"EVALSHA")
            senders.reached(8_000)
            proxy.reset()
            senders.reached(10_000)
            own_redis.kill()
            own_redis.start()
            senders.reached(14_000)
            proxy.refuse()  # so that the batch whose reply is lost cannot be sent again at once
            proxy.drop_reply(to=b"EVALSHA")
            _until(lambda: proxy.traffic.replies_dropped == 4)
            proxy.heal()
            senders.finish()
            producer.flush()
    entries = [fields for shard in range(4) for _, fields in _entries(own_redis, f"orders.{shard}")]
    check_all_there_once_and_in_order((fields[b"key"], fields[b"value"]) for fields in entries)


def test_a_message_is_in_redis_with_its_key_and_headers(redis_server: RedisServer) -> None:
    topic = redis_server.fresh_prefix()
    with Producer(f"redis://:{redis_server.password}@127.0.0.1:{redis_server.port}") as producer:
        sent = producer.send(topic, {"id": 1}, key="ann", headers={"h": "ü"})
        written = sent.wait(30)
        lost = producer.send(topic, "x", partition=3)
        with pytest.raises(NotSent, match="has no partition 3"):
            lost.wait(30)
        with pytest.raises(NotSent, match="1 message was given up"):
            producer.flush()
    ((entry, fields),) = _entries(redis_server, topic)
    assert (written.topic, written.partition, written.offset) == (topic, 0, entry_offset(entry.decode()))
    assert fields == {b"value": b'{"id":1}', b"key": b"ann", b"header.h": "ü".encode()}


def test_a_topic_that_is_no_stream_fails_alone(redis_server: RedisServer) -> None:
    topic = redis_server.fresh_prefix()
    redis_server.client().set(f"{topic}.text", "x")
    with Producer(f"redis://:{redis_server.password}@127.0.0.1:{redis_server.port}/{topic}") as producer:
        sents = [producer.send(name, n) for n in range(20) for name in (topic, f"{topic}.text")]
        with pytest.raises(NotSent, match="20 messages were given up"):
            producer.flush()
        assert [sent.error is None for sent in sents] == [True, False] * 20
    assert [fields[b"value"] for _, fields in _entries(redis_server, topic)] == [b"%d" % n for n in range(20)]


_ENDS_WITHOUT_CLOSING: Final = """
import sys
from holdfast.streams import Producer

producer = Producer(sys.argv[1])
for number in range(1000):
    producer.send("orders", number)
"""


def test_a_process_that_ends_without_closing_its_producer_has_sent_everything(redis_server: RedisServer) -> None:
    topic = redis_server.fresh_prefix()
    program = _ENDS_WITHOUT_CLOSING.replace("orders", topic)
    url = f"redis://:{redis_server.password}@127.0.0.1:{redis_server.port}"
    ended = subprocess.run(
        [sys.executable, "-c", program, url], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [fields[b"value"] for _, fields in _entries(redis_server, topic)] == [b"%d" % n for n in range(1000)]


@pytest.mark.parametrize("topic_in_url", ["", "/other"])
def test_the_shards_of_a_url_are_those_of_every_topic_that_is_sent_to(
    redis_server: RedisServer, topic_in_url: str
) -> None:
    topic = redis_server.fresh_prefix()
    url = f"redis://:{redis_server.password}@127.0.0.1:{redis_server.port}{topic_in_url}?shards=8"
    with Producer(url) as producer:
        assert producer.send(topic, "x", key="customer-42").wait(30).partition == 5
        assert producer.send(topic, "y", partition=7).wait(30).partition == 7
    assert [fields[b"value"] for shard in (5, 7) for _, fields in _entries(redis_server, f"{topic}.{shard}")] == [
        *(b"x", b"y")
    ]


def test_a_message_whose_reply_was_lost_knows_its_shard(redis_server: RedisServer) -> None:
    topic = redis_server.fresh_prefix()
    with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        url = f"redis://:{redis_server.password}@127.0.0.1:{proxy.port}/{topic}?shards=8"
        with Producer(url) as producer:
            producer.send(value="first").wait(30)
            proxy.drop_reply(to=b"EVALSHA")
            assert producer.send(value="x", key="customer-42").wait(30) == (topic, 5, -1)
            assert proxy.traffic.replies_dropped == 1
    assert len(_entries(redis_server, f"{topic}.5")) == 1


def test_a_message_with_more_headers_than_redis_takes_is_given_up_alone(redis_server: RedisServer) -> None:
    topic = redis_server.fresh_prefix()
    with Producer(f"redis://:{redis_server.password}@127.0.0.1:{redis_server.port}/{topic}") as producer:
        for n in range(60):
            producer.send(value=n, headers=[(f"h{i}", "") for i in range(5000)] if n == 30 else None)
        with pytest.raises(NotSent, match=r"1 message was given up .* has 5,000 headers"):
            producer.flush()
    written = [fields[b"value"] for _, fields in _entries(redis_server, topic)]
    assert written == [b"%d" % n for n in range(60) if n != 30]


# ---------------------------------------------------------------- inside


def _entries(server: RedisServer, stream: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    return cast("list[tuple[bytes, dict[bytes, bytes]]]", server.client().xrange(stream))


def _until(holds: Callable[[], bool]) -> None:
    """Other threads are about to make it so."""
    clock = SystemClock()
    end = clock.monotonic() + 60
    while not holds():
        assert clock.monotonic() < end
        clock.sleep(0.001)


def _again(work: Callable[[], object]) -> None:
    """A server that is back is not found again at once, and what is sent meanwhile may be given up."""

    def works() -> bool:
        try:
            work()
        except NotSent:
            return False
        return True

    _until(works)
