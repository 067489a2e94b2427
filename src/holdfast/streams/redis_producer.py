"""Takes a producer's messages to Redis Streams: in numbered batches, of which the server writes each once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from holdfast.ports import Clock
from holdfast.streams.batches import Batches
from holdfast.streams.buffer import Buffer
from holdfast.streams.redis_streams.address import address_of
from holdfast.streams.redis_streams.connection import Connection
from holdfast.streams.redis_streams.layout import Layout
from holdfast.streams.redis_streams.options import field_of, shards_of, whole_of
from holdfast.streams.redis_streams.sender import Sender
from holdfast.streams.url import StreamURL
from holdfast.types import Outgoing

_NO_TOPIC: Final = "holdfast"
"""Stands for the topic in the names of the producer's keys, where the URL names none."""
_NO_GROUP: Final = b"producer"
_ANSWER_WITHIN_S: Final = 5.0
_REMEMBER_S: Final = 3600.0
"""For so long after the last try the server knows what it has written."""


class RedisLink:
    """A connection that only sends. It needs no thread but its caller's: at the end of a process none can be had."""

    def __init__(self, url: str, place: StreamURL, *, timeout_s: float) -> None:
        self._remember_s = timeout_s + _REMEMBER_S
        address = address_of(url if place.topic else _with_topic(url))
        layout = Layout(address.stream, _NO_GROUP, shards_of(address), shards_all=True)
        self._connection = Connection(address, _ANSWER_WITHIN_S)
        self._sender = Sender(self._connection, layout, field_of(address), whole_of(address, "max_entries"))

    def send_once(self, producer_id: str, first_number: int, messages: Sequence[Outgoing]) -> Sequence[tuple[int, int]]:
        return self._sender.send(producer_id, first_number, messages, self._remember_s)

    def close(self) -> None:
        self._connection.close()


class RedisCarrier(Batches):
    """Batches, one after the other, on a connection of their own."""

    def __init__(
        self, url: str, place: StreamURL, buffer: Buffer, *, batch: int, timeout_s: float, clock: Clock
    ) -> None:
        link = RedisLink(url, place, timeout_s=timeout_s)
        super().__init__(link, buffer, batch=batch, timeout_s=timeout_s, clock=clock)


def _with_topic(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        query = f"{parts.query}{'&' if parts.query else ''}stream={_NO_TOPIC}"
        return parts._replace(query=query).geturl()
    return parts._replace(path=f"/{_NO_TOPIC}").geturl()
