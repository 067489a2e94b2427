"""What takes messages to each kind of server, imported only when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.ports import Clock
from holdfast.streams.buffer import Buffer, Carrier
from holdfast.streams.opening import broker_for, wanted
from holdfast.streams.url import StreamURL

if TYPE_CHECKING:
    from holdfast.streams.memory import MemoryBroker


def carrier_for(
    url: str,
    place: StreamURL,
    buffer: Buffer,
    *,
    size: int,
    batch: int,
    timeout_s: float,
    clock: Clock,
    broker: MemoryBroker | None,
) -> Carrier:
    """The one for this URL."""
    if place.scheme == "memory":
        from holdfast.streams.memory_producer import MemoryCarrier  # noqa: PLC0415

        return MemoryCarrier(place.location, buffer, clock, broker_for(place, broker))
    if place.scheme == "kafka":
        with wanted("kafka", place):
            from holdfast.streams.kafka_producer import KafkaCarrier  # noqa: PLC0415
        return KafkaCarrier(url, buffer, size=size, batch=batch, timeout_s=timeout_s)
    with wanted("redis", place):
        from holdfast.streams.redis_producer import RedisCarrier  # noqa: PLC0415
    return RedisCarrier(url, place, buffer, batch=batch, timeout_s=timeout_s, clock=clock)
