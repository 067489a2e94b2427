"""Messages on their way to an isolated process, and what their handler sends on the way back."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, msgpack

from holdfast.ports import Delivery
from holdfast.types import Header, Message, Outgoing


class _Parcel(Struct, frozen=True, array_like=True):
    topic: str
    partition: int
    offset: str  # that of a Redis entry has 128 bits
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: float
    retries: int
    is_gone: bool
    deaths: int


def packed(delivery: Delivery, messages: Sequence[Message]) -> Delivery:
    """A delivery of messages, with these in its payload."""
    parcels = [
        _Parcel(
            one.topic,
            one.partition,
            str(one.offset),
            one.key,
            one.value,
            one.headers,
            one.timestamp,
            one.retries,
            one.is_gone,
            one.deaths,
        )
        for one in messages
    ]
    fields = {name: getattr(delivery, name) for name in Delivery.__struct_fields__}
    return Delivery(**fields | {"payload": msgpack.encode(parcels)})


def unpacked(delivery: Delivery) -> list[Message]:
    """The messages of such a delivery."""
    parcels = msgpack.decode(delivery.payload, type=list[_Parcel])
    return [
        Message(
            one.topic,
            one.partition,
            int(one.offset),
            one.key,
            one.value,
            one.headers,
            one.timestamp,
            one.retries,
            one.is_gone,
            one.deaths,
        )
        for one in parcels
    ]


def packed_outputs(messages: Sequence[Outgoing]) -> bytes:
    """What a handler has sent; empty where it has sent nothing."""
    return msgpack.encode(messages) if messages else b""


def unpacked_outputs(data: bytes) -> list[Outgoing]:
    """The same, as it was sent."""
    return msgpack.decode(data, type=list[Outgoing]) if data else []
