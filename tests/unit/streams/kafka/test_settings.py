"""From the URL of a stream to the configuration of librdkafka's clients."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError
from holdfast.streams.kafka import KafkaSource
from holdfast.streams.kafka.settings import KafkaSettings

_OURS = (
    "bootstrap.servers group.id group.protocol partition.assignment.strategy enable.auto.commit "
    "auto.commit.interval.ms enable.auto.offset.store auto.offset.reset enable.partition.eof enable.idempotence acks "
    "request.required.acks transactional.id log.queue plugin.library.paths"
).split()


def test_servers_and_options_reach_the_clients() -> None:
    settings = KafkaSettings("kafka://a:1,b/orders?fetch.min.bytes=7&isolation.level=read_uncommitted")
    config = settings.consumer("billing")
    assert config["bootstrap.servers"] == "a:1,b:9092"
    assert config["fetch.min.bytes"] == "7"
    assert config["group.id"] == "billing"
    assert settings.reads_uncommitted
    assert settings.producer()["fetch.min.bytes"] == "7"


def test_nothing_is_committed_or_stored_by_the_client_itself() -> None:
    config = KafkaSettings("kafka://a/orders").consumer("billing")
    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False
    assert config["auto.offset.reset"] == "error"


def test_an_option_of_the_url_goes_before_our_default() -> None:
    settings = KafkaSettings("kafka://a/orders?fetch.queue.backoff.ms=3&partitioner=consistent&client.id=me")
    assert settings.consumer("g")["fetch.queue.backoff.ms"] == "3"
    assert settings.producer()["partitioner"] == "consistent"
    assert settings.client()["client.id"] == "me"


@pytest.mark.parametrize("name", _OURS)
def test_what_a_promise_depends_on_cannot_be_set(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be set: ") as refused:
        KafkaSettings(f"kafka://a/orders?{name}=x")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["error_cb", "on_commit", "logger_", "log_level"])
def test_what_is_no_property_of_librdkafka_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no option"):
        KafkaSettings(f"kafka://a/orders?{name}=x")


def test_librdkafka_takes_all_of_it() -> None:
    settings = KafkaSettings("kafka://127.0.0.1:1/orders?linger.ms=3", 2.0)
    Consumer(settings.consumer("billing", **{"partition.assignment.strategy": "cooperative-sticky"})).close()
    Producer(settings.producer())


@pytest.mark.parametrize(("option", "words"), [("nosuch=1", "nosuch"), ("linger.ms=soon", "Invalid value")])
async def test_what_librdkafka_does_not_take_is_one_line_when_it_is_used(option: str, words: str) -> None:
    source = KafkaSource(f"kafka://127.0.0.1:1/orders?{option}", "billing", SystemClock())
    with pytest.raises(ConfigError, match=words) as refused:
        await source.lags(["orders"])
    assert "\n" not in str(refused.value)
    await source.close()


def test_a_user_and_a_password_log_in_by_sasl_and_encrypted() -> None:
    config = KafkaSettings("kafka://app:p%40ss@a/orders").client()
    assert (config["sasl.username"], config["sasl.password"]) == ("app", "p@ss")
    assert (config["security.protocol"], config["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")


def test_how_to_log_in_may_be_said() -> None:
    url = "kafka://app:pass@a/orders?security.protocol=SASL_PLAINTEXT&sasl.mechanism=SCRAM-SHA-512"
    config = KafkaSettings(url).client()
    assert (config["security.protocol"], config["sasl.mechanism"]) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")


def test_passwords_are_never_shown() -> None:
    url = "kafka://app:hunter2@a/orders?ssl.key.password=hunter3"
    source = KafkaSource(url, "billing", SystemClock())
    for text in (repr(KafkaSettings(url)), source.capabilities.location, repr(source.capabilities)):
        assert "hunter" not in text
    for bad in ("kafka://app:hunter2@a/orders?group.id=x", "kafka://app:hunter2@a/orders?sasl.password=hunter3"):
        with pytest.raises(ConfigError) as refused:
            KafkaSettings(bad)
        assert "hunter" not in str(refused.value)


def test_a_user_needs_a_password() -> None:
    with pytest.raises(ConfigError, match="a user needs a password"):
        KafkaSettings("kafka://app@a/orders")


def test_a_short_session_has_room_for_several_heartbeats() -> None:
    config = KafkaSettings("kafka://a/orders", 1.0).consumer("g")
    assert (config["session.timeout.ms"], config["heartbeat.interval.ms"]) == ("1000", "200")
    config = KafkaSettings("kafka://a/orders?heartbeat.interval.ms=50", 1.0).consumer("g")
    assert config["heartbeat.interval.ms"] == "50"


def test_a_session_is_said_once() -> None:
    with pytest.raises(ConfigError, match="say it once"):
        KafkaSettings("kafka://a/orders?session.timeout.ms=6000", 6.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": "middle"}, "start="),
        ({"group": ""}, "group="),
        ({"rebalance_s": 0}, "rebalance_s="),
        ({"rebalance_s": 200.0}, "rebalance_s=.*max.poll.interval.ms"),
        ({"send_s": 0.0}, "send_s="),
        ({"session_timeout_s": -1}, "session_timeout_s="),
        ({"transactional_id": ""}, "transactional_id="),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, object], words: str) -> None:
    given: dict[str, object] = {"group": "billing", **options}
    with pytest.raises(ConfigError, match=words):
        KafkaSource("kafka://a/orders", clock=SystemClock(), **given)  # type: ignore[arg-type]


def test_another_kind_of_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="kafka://host:9092/orders"):
        KafkaSettings("redis://a/orders")
