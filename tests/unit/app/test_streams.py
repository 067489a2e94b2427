"""`@app.stream(…)`: what is refused when it is written, and what a user's own test sees of it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.app import App
from holdfast.errors import ConfigError, Permanent, Transient
from holdfast.policy.retry import RetryPolicy
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.types import JobState, Message

URL = "memory://orders"


async def bill(order: dict[str, int], msg: Message) -> None: ...
async def bills(orders: list[dict[str, int]]) -> None: ...
async def ship(order: dict[str, int]) -> None: ...


@pytest.fixture
def app() -> App:
    return App("memory://")


# ---------------------------------------------------------------- registration


def test_a_stream_has_defaults_that_are_safe(app: App) -> None:
    assert app.stream(URL, group="billing")(bill) is bill
    (spec,) = app.stream_specs.values()
    assert spec.name.endswith("test_streams.bill")
    assert (spec.topic, spec.group, spec.location) == ("orders", "billing", URL)
    assert (spec.in_flight, spec.max_gap, spec.batch) == (100, 10_000, 0)
    assert (spec.is_ordered, spec.is_blocking, spec.is_bisected, spec.is_transactional) == (True, True, False, False)
    assert (spec.start, spec.steps) == ("earliest", ())
    assert spec.task.breaker == spec.name
    assert spec.task.has_dead_letters
    assert spec.task.retry.max_retries == 3
    assert spec.task.retry.total_timeout is None


def test_two_batches_are_in_flight_unless_it_is_said_otherwise(app: App) -> None:
    app.stream(URL, group="billing", name="b", batch=500)(bills)
    assert app.stream_specs["b"].in_flight == 1_000
    app.stream(URL, group="other", name="c", batch=10)(bills)
    assert app.stream_specs["c"].in_flight == 100


def test_non_blocking_retries_have_one_topic_for_each_delay(app: App) -> None:
    app.stream(URL, group="billing", name="b", blocking=False, retry=RetryPolicy(max_retries=3, jitter=False))(bill)
    assert app.stream_specs["b"].steps[:3] == (1.0, 3.0, 9.0)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"in_flight": 0}, r"^in_flight=0: must be"),
        ({"in_flight": 2.5}, r"^in_flight=2.5: must be"),
        ({"batch": 0}, r"^batch=0: must be"),
        ({"batch": 50, "in_flight": 20}, r"^in_flight=20: must be at least batch, which is 50$"),
        ({"max_gap": 0}, r"^max_gap=0: must be"),
        ({"max_gap": 99}, r"^max_gap=99: must be at least in_flight, which is 100$"),
        ({"order": "value"}, r'^order=\'value\': must be "key" or "none"$'),
        ({"start": "now"}, r'^start=\'now\': must be "earliest" or "latest"$'),
        ({"bisect": True}, r"^bisect=True: only a handler of batches"),
        ({"transactional": True}, r"^transactional=True: a transaction covers a batch"),
        ({"transactional": True, "batch": 5, "blocking": False}, r"^transactional=True: its retries are in place"),
        ({"group": ""}, r"^group='': must be printable text$"),
        ({"group": "a\nb"}, r"^group='a\\nb': must be printable text$"),
        ({"decode": "json"}, r"^decode='json': must be a function of the Message$"),
        ({"when_open": "drop"}, r"^when_open='drop': must be"),
        ({"timeout": 0}, r"^timeout=0: must be"),
        ({"dlq_retention_days": 0}, r"^dlq_retention_days=0: must be"),
        ({"retry": 3}, r"^retry=3: must be"),
        ({"rate": "often"}, r"rate"),
        ({"name": ""}, r"^name='': must be"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(app: App, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        app.stream(URL, **{"group": "billing", **options})(bill)
    assert "\n" not in str(caught.value)
    assert app.stream_specs == {}


@pytest.mark.parametrize("url", ["", "orders", "memory://", "amqp://host/orders", "kafka://host:9092", "redis://host"])
def test_a_url_that_names_no_topic_is_refused(app: App, url: str) -> None:
    with pytest.raises(ConfigError):
        app.stream(url, group="billing")(bill)


def test_redis_streams_have_no_transactions(app: App) -> None:
    with pytest.raises(ConfigError, match=r"^transactional=True: Redis Streams have no transactions"):
        app.stream("redis://localhost/orders", group="billing", batch=5, transactional=True)(bills)


def test_a_group_whose_retry_topics_kafka_would_refuse_is_refused_at_once(app: App) -> None:
    with pytest.raises(ConfigError, match=r"Kafka takes letters, digits"):
        app.stream("kafka://localhost:9092/orders", group="my group")(bill)
    with pytest.raises(ConfigError, match=r"Kafka takes 249"):
        app.stream("kafka://localhost:9092/" + "o" * 240, group="billing")(bill)


def test_a_stream_and_a_task_may_not_have_one_name(app: App) -> None:
    app.stream(URL, group="billing", name="bill")(bill)
    with pytest.raises(ConfigError, match=r"named 'bill'"):
        app.task(name="bill")(ship)
    app.task(name="ship")(ship)
    with pytest.raises(ConfigError, match=r"named 'ship'"):
        app.stream(URL, group="shipping", name="ship")(bill)
    with pytest.raises(ConfigError, match=r"named 'bill'"):
        app.stream(URL, group="shipping", name="bill")(ship)


def test_two_streams_may_not_share_a_topic_as_one_group(app: App) -> None:
    app.stream(URL, group="billing", name="bill")(bill)
    with pytest.raises(ConfigError, match=r"read 'orders' as one group, 'billing'"):
        app.stream(URL, group="billing", name="ship")(ship)
    app.stream(URL, group="shipping", name="ship")(ship)
    app.stream(URL, group="billing", name="bill")(bill)  # the same one again, as a reload does
    assert sorted(app.stream_specs) == ["bill", "ship"]


def test_two_configurations_of_one_breaker_are_refused(app: App) -> None:
    app.stream(URL, group="billing", name="bill", breaker=CircuitBreaker("ledger", failure_threshold=3))(bill)
    with pytest.raises(ConfigError, match="ledger"):
        app.stream(URL, group="b", name="ship", breaker=CircuitBreaker("ledger", failure_threshold=4))(ship)


def test_a_breaker_that_is_configured_later_holds_for_a_stream_that_named_it_before(app: App) -> None:
    app.stream(URL, group="billing", name="bill", breaker="ledger")(bill)
    app.task(name="pay", breaker=CircuitBreaker("ledger", failure_threshold=2))(ship)
    assert app.stream_specs["bill"].task.breaker_config.failure_threshold == 2


# ---------------------------------------------------------------- a test of a user's own


def test_messages_are_run_until_none_is_left_with_retries_and_letters(app: App) -> None:
    """On the real clock, as users run it: what waits for its time does not make anybody wait."""
    seen: list[int] = []

    @app.stream(URL, group="billing", name="bill")
    def handle(order: int, msg: Message) -> None:
        seen.append(order)
        if order == 2 and msg.retries < 2:
            raise Transient("busy")
        if order == 3:
            raise Permanent("no such account")

    with app.producer(URL) as producer:
        for n in range(5):
            producer.send(value=n, key="a")
    app.run_until_idle()
    assert seen == [0, 1, 2, 2, 2, 3, 4]
    (letter,) = app.dead_letters.list().items
    assert (letter.task, letter.state) == ("bill", JobState.DEAD_LETTER)
    app.dead_letters.retry(letter.id)
    app.run_until_idle()
    assert seen[-1] == 3
    assert len(app.dead_letters.get(letter.id).attempts) == 2
