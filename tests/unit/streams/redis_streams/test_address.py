"""URLs of streams, and options that cannot work."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError
from holdfast.streams.redis_streams import RedisSource
from holdfast.streams.redis_streams.address import address_of


@pytest.mark.parametrize(
    ("url", "redis_url", "location", "stream"),
    [
        ("redis://host/orders", "redis://host/0", "redis://host/orders", "orders"),
        ("redis://u:p@host:1/orders?db=3", "redis://u:p@host:1/3", "redis://host:1/orders", "orders"),
        ("rediss://[::1]:1/o?ssl_cert_reqs=none", "rediss://[::1]:1/0?ssl_cert_reqs=none", "rediss://[::1]:1/o", "o"),
        ("redis://host/%7Borders%7D.eu", "redis://host/0", "redis://host/{orders}.eu", "{orders}.eu"),
        ("redis://host/{orders}", "redis://host/0", "redis://host/{orders}", "{orders}"),
        ("unix://:p@/r.sock?stream=o&db=2", "unix://:p@/r.sock?db=2", "unix:///r.sock?stream=o", "o"),
    ],
)
def test_a_url_names_a_server_and_a_stream(url: str, redis_url: str, location: str, stream: str) -> None:
    address = address_of(url)
    assert (address.url, address.location, address.stream) == (redis_url, location, stream)


def test_options_of_the_stream_are_not_the_servers() -> None:
    options = {"shards": "8", "field": "payload", "max_entries": "1000", "claim_after": "60", "handover": "2.5"}
    address = address_of(f"redis://host/orders?{urlencode(options)}&client_name=me")
    assert address.options == options
    assert address.url == "redis://host/0?client_name=me"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("orders", "must be one such as redis://"),
        ("kafka://host/orders", "must be one such as redis://"),
        ("redis://host", "names no stream"),
        ("redis://host/", "names no stream"),
        ("redis://host/a/b", "names no stream"),
        ("redis://host/a%20b", "names no stream"),
        ("unix:///r.sock", "names no stream"),
        ("redis://host/orders?stream=o", "for unix:// alone"),
        ("redis://host/orders?db=x", "db='x' must be a number"),
        ("redis://host/orders?retry=1", "has no option 'retry'"),
        ("redis://host/orders?ssl_cert_reqs=none", "has no option 'ssl_cert_reqs'"),
        ("redis://host/orders?db=1&db=2", "each name once"),
        ("redis://host/orders?db", "db='' must be a number"),
        ("redis://host:port/orders", "must be one such as"),
        ("redis://u:secret/x@host/orders", "must be one such as"),
        ("redis://u:se#cret@host/orders", "must be one such as"),
        ("redis://host:99999/orders", "cannot be read"),
    ],
)
def test_a_url_that_cannot_work_is_refused_in_one_line_without_its_password(url: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        address_of(url)
    assert says in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"start": "middle"}, "start='middle'"),
        ({"shards": 0}, "shards=0"),
        ({"shards": 5000}, "shards=5000"),
        ({"claim_after_s": 0}, "claim_after_s=0"),
        ({"handover_s": -1}, "handover_s=-1"),
        ({"answer_within_s": 0}, "answer_within_s=0"),
        ({"max_entries": 1.5}, "max_entries=1.5"),
        ({"field": "key"}, "field='key'"),
        ({"field": "header.x"}, "field='header.x'"),
        ({"consumer": "a b"}, "consumer='a b'"),
        ({"group": "a b"}, "group='a b'"),
        ({"group": ""}, "group=''"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], says: str) -> None:
    settings = {"group": "billing", **options}
    with pytest.raises(ConfigError, match=says):
        RedisSource("redis://host/orders", clock=SystemClock(), **settings)


@pytest.mark.parametrize("argument", ["shards", "max_entries", "field", "claim_after_s", "handover_s"])
def test_an_option_stands_in_one_place(argument: str) -> None:
    value: Any = "f" if argument == "field" else 2
    option = argument.removesuffix("_s")
    with pytest.raises(ConfigError, match=f"{argument}=.* stands in the URL already"):
        RedisSource(f"redis://host/orders?{option}=2", "billing", SystemClock(), **{argument: value})


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("shards=many", "shards='many'"),
        ("claim_after=soon", "claim_after='soon' must be a number of seconds"),
        ("claim_after=0", "claim_after=0"),
        ("claim_after=nan", "claim_after='nan'"),
        ("handover=-1", "handover='-1'"),
        ("handover=0", "handover=0"),
    ],
)
def test_an_option_in_the_url_is_checked_too(option: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RedisSource(f"redis://host/orders?{option}", "billing", SystemClock())


def test_how_long_to_wait_for_others_may_stand_in_the_url() -> None:
    said = RedisSource("redis://host/orders?claim_after=60&handover=2.5", "billing", SystemClock())
    default = RedisSource("redis://host/orders", "billing", SystemClock())
    assert (said._claim_after_s, said._handover_s) == (60.0, 2.5)
    assert (default._claim_after_s, default._handover_s) == (30.0, 10.0)


def test_what_it_says_of_order_depends_on_shards() -> None:
    one = RedisSource("redis://:secret@host/orders", "billing", SystemClock()).capabilities
    many = RedisSource("redis://:secret@host/orders?shards=4", "billing", SystemClock()).capabilities
    assert one.keeps_order.startswith("within one consumer")
    assert many.keeps_order.startswith("over all consumers")
    assert one.location == "redis://host/orders"
