"""A URL names a source, whose package is loaded only then, or is refused in words that help."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.streams import Producer
from holdfast.streams.memory import MemoryBroker, MemorySource
from holdfast.streams.opening import open_source
from holdfast.testing import ManualClock


def test_a_source_in_memory_has_the_broker_and_as_many_partitions_as_it_is_given(clock: ManualClock) -> None:
    broker = MemoryBroker()
    source = open_source("memory://orders?partitions=3", "billing", clock, broker=broker)
    assert isinstance(source, MemorySource)
    assert source.capabilities.location == "memory://orders"
    assert broker.places("orders") == [("orders", n) for n in range(3)]


async def test_a_kafka_and_a_redis_source_are_made_without_a_connection(clock: ManualClock) -> None:
    for url in ("kafka://127.0.0.1:1/orders", "redis://127.0.0.1:1/orders"):
        source = open_source(url, "billing", clock, start="latest")
        assert source.capabilities.location == url
        await source.close()


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("kafka://host", {}, "names no topic"),
        ("memory://orders", {"group": ""}, "group=''"),
        ("memory://orders", {"start": "yesterday"}, "start='yesterday'"),
        ("memory://orders?partitions=x", {}, "partitions must be"),
        ("memory://orders?partitions=0", {}, "partitions must be"),
        ("memory://orders?shards=2", {}, "has no option 'shards'"),
        ("nats://host/orders", {}, "must be one such as"),
    ],
)
def test_what_names_no_source_is_refused(url: str, options: dict[str, Any], words: str, clock: ManualClock) -> None:
    given = {"group": "billing"} | options
    with pytest.raises(ConfigError, match=words):
        open_source(url, given.pop("group"), clock, **given)


@pytest.mark.parametrize(("scheme", "package"), [("kafka", "confluent_kafka"), ("redis", "redis")])
def test_a_missing_package_is_refused_with_the_line_to_type(scheme: str, package: str) -> None:
    code = f"""
import sys
sys.modules[{package!r}] = None
from holdfast.clock import SystemClock
from holdfast.streams import Producer
from holdfast.streams.opening import open_source
for make in (Producer, lambda url: open_source(url, "billing", SystemClock())):
    try:
        make("{scheme}://:secret@host/orders")
    except ValueError as error:
        print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    line = f"url='{scheme}://:…@host/orders': needs a package that is missing ({package}): "
    assert [text.startswith(f"{line}pip install 'holdfast[{scheme}]'") for text in found.stdout.splitlines()] == [
        True,
        True,
    ]


def test_the_package_loads_no_client() -> None:
    code = "import sys, holdfast.streams; print({'confluent_kafka', 'redis', 'fastapi'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "set()\n"


def test_a_producer_in_memory_makes_as_many_partitions_as_its_url_says() -> None:
    broker = MemoryBroker()
    with Producer("memory://orders?partitions=4", broker=broker) as producer:
        assert {producer.send(value=n, key=n).wait().partition for n in range(50)} == {0, 1, 2, 3}
