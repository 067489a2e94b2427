"""From a URL to the adapter of a stream: the one place here that names them, each imported only when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.errors import ConfigError
from holdfast.extras import how_to_install
from holdfast.ports import Clock, Source
from holdfast.streams.url import StreamURL, parse

if TYPE_CHECKING:
    from holdfast.streams.memory import MemoryBroker

__all__ = ["StreamURL", "broker_for", "open_source", "parse", "wanted"]

_MOST_PARTITIONS: Final = 1000
_PACKAGES: Final = {"kafka": "confluent_kafka", "redis": "redis"}


def open_source(
    url: str, group: str, clock: Clock, *, start: Literal["earliest", "latest"] = "earliest", **options: Any
) -> Source:
    """The source that a URL names, for a group, not yet opened; ConfigError when it names none.

    start: from where a group reads that has never committed anything.
    options: what this kind of source takes besides.
    """
    if not isinstance(group, str) or not group:
        raise ConfigError(f"group={group!r}: must be text, and not empty")
    if start not in {"earliest", "latest"}:
        raise ConfigError(f'start={start!r}: must be "earliest" or "latest"')
    place = parse(url)
    if not place.topic:
        raise place.refusal("names no topic")
    if place.scheme == "memory":
        from holdfast.streams.memory import MemorySource  # noqa: PLC0415

        broker = broker_for(place, options.pop("broker", None))
        return MemorySource(place.topic, group, clock, start=start, broker=broker, **options)
    if place.scheme == "kafka":
        with wanted("kafka", place):
            from holdfast.streams.kafka import KafkaSource  # noqa: PLC0415
        return KafkaSource(url, group, clock, start=start, **options)
    with wanted("redis", place):
        from holdfast.streams.redis_streams import RedisSource  # noqa: PLC0415
    return RedisSource(url, group, clock, start=start, **options)


def broker_for(place: StreamURL, broker: MemoryBroker | None = None) -> MemoryBroker:
    """The topics of a memory:// URL: the broker given, or a new one, with as many partitions as the URL says."""
    from holdfast.streams.memory import MemoryBroker  # noqa: PLC0415

    found = MemoryBroker() if broker is None else broker
    options = dict(place.options)
    partitions = options.pop("partitions", None)
    if options:
        raise place.refusal(f"has no option {min(options)!r}; there is partitions")
    if partitions is not None:
        if not place.topic or not partitions.isdecimal() or not 0 < int(partitions) <= _MOST_PARTITIONS:
            raise place.refusal(f"partitions must be a number of the topic's, from 1 to {_MOST_PARTITIONS}")
        found.create_topic(place.topic, int(partitions))
    return found


@contextmanager
def wanted(extra: str, place: StreamURL) -> Iterator[None]:
    """Where the block misses the package of an extra: ConfigError, with the line to type."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != _PACKAGES[extra]:
            raise
        why = f"needs a package that is missing ({_PACKAGES[extra]}): {how_to_install(extra)}"
        raise place.refusal(why) from None
