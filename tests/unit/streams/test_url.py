"""The URL of a stream is taken apart, or refused in words that help and show no secret."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError, Invalid
from holdfast.streams.url import parse, shown


@pytest.mark.parametrize(
    ("url", "servers", "topic", "options"),
    [
        ("kafka://host", ("host:9092",), "", {}),
        ("kafka://host/orders", ("host:9092",), "orders", {}),
        ("kafka://a:1,[::1]:2,c/orders", ("a:1", "[::1]:2", "c:9092"), "orders", {}),
        ("kafka://h/o?linger.ms=5&client.id=a+b", ("h:9092",), "o", {"linger.ms": "5", "client.id": "a+b"}),
        ("redis://host/shop:orders?db=3&shards=8", ("host:6379",), "shop:orders", {"db": "3", "shards": "8"}),
        ("rediss://host:7000/orders", ("host:7000",), "orders", {}),
        ("unix:///run/redis.sock?stream=orders&db=1", ("/run/redis.sock",), "orders", {"db": "1"}),
        ("memory://", (), "", {}),
        ("memory://orders", (), "orders", {}),
    ],
)
def test_a_url_names_servers_a_topic_and_options(
    url: str, servers: tuple[str, ...], topic: str, options: dict[str, str]
) -> None:
    place = parse(url)
    assert (place.servers, place.topic, place.options) == (servers, topic, options)
    assert place.location == url


def test_a_user_and_a_password_are_read_and_not_shown() -> None:
    place = parse("kafka://ann:p%40ss%2Fword@host:9092/orders?sasl.password=other&linger.ms=5")
    assert (place.username, place.password) == ("ann", "p@ss/word")
    assert place.location == repr(place) == "kafka://ann:…@host:9092/orders?sasl.password=…&linger.ms=5"
    only = parse("redis://:secret@host/orders")
    assert (only.username, only.password) == (None, "secret")
    assert only.location == "redis://:…@host/orders"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (7, "must be text"),
        ("orders", "must be one such as kafka://"),
        ("http://host/orders", "must be one such as kafka://"),
        ("kafka:host/orders", "must be one such as kafka://"),
        ("kafka:///orders", "names no server"),
        ("kafka://user:pass/word@host/orders", "write %2F"),
        ("kafka://user:pass@word@host/orders", "write %2F"),
        ("kafka://user:pass#word@host/orders", "must have no #"),
        ("kafka://user:pass?word@host/orders", "="),
        ("kafka://host:99999/orders", "from 1 to 65535"),
        ("kafka://[::1/orders", "cannot be read"),
        ("kafka://host/a%20b", "letters, digits"),
        ("kafka://host/..", "letters, digits"),
        ("kafka://host/orders?acks", "name=value"),
        ("kafka://host/orders?linger.ms=1&linger.ms=2", "given twice"),
        ("kafka://host/orders?A%20B=1", "an option's name"),
        ("redis://a,b/orders", "more than one host"),
        ("redis://host/a%20b", "without blanks"),
        ("unix://host/run/redis.sock", "unix:///path"),
        ("unix:///", "unix:///path"),
        ("memory://server/orders", "memory://orders"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line_without_a_secret(url: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse(url)
    assert "\n" not in str(caught.value)
    assert "word" not in str(caught.value).replace("password", "")


_SECRET = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=12).map(
    lambda text: f"Z{text}Z"
)


@given(_SECRET)
def test_no_password_is_ever_shown_however_badly_it_is_written(secret: str) -> None:
    for url in (
        f"kafka://user:{secret}@host/orders",
        f"redis://:{secret}@host:6379/orders?db=1",
        f"kafka://host/orders?sasl.password={secret.replace('&', '')}",
    ):
        assert secret.replace("&", "") not in shown(url).replace("&", "")


def test_a_topic_is_checked_by_the_rules_of_its_server() -> None:
    kafka, redis = parse("kafka://host"), parse("redis://host")
    assert kafka.check_topic("a.b_c-1") == "a.b_c-1"
    assert redis.check_topic("shop:{orders}") == "shop:{orders}"
    for topic in ("", "a:b", "x" * 250, ".", 7, None):
        with pytest.raises(Invalid, match="topic="):
            kafka.check_topic(topic)
    for topic in ("", "a b", "a\0b", "x" * 501, 7):
        with pytest.raises(Invalid, match="topic="):
            redis.check_topic(topic)
