"""Takes a producer's messages to Redis Streams: in numbered batches, of which the server writes each once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from holdfast.ports import Clock
from holdfast.streams.batches import Batches
from holdfast.streams.buffer import Buffer
from holdfast.streams.redis_streams import RedisSource
from holdfast.streams.url import StreamURL
from holdfast.types import Outgoing

_NO_TOPIC: Final = "holdfast"
"""Stands for the topic in the names of the producer's keys, where the URL names none."""
_NO_GROUP: Final = "producer"
_REMEMBER_S: Final = 3600.0
"""For so long after the last try the server knows what it has written."""


class RedisLink:
    """A source that only sends, and the event loop that it wants."""

    def __init__(self, url: str, place: StreamURL, *, timeout_s: float, clock: Clock) -> None:
        self._remember_s = timeout_s + _REMEMBER_S
        self._source = RedisSource(url if place.topic else _with_topic(url), _NO_GROUP, clock)
        self._runner = asyncio.Runner()

    def send_once(
        self, producer_id: str, first_number: int, messages: Sequence[Outgoing]
    ) -> Sequence[tuple[int, int] | None]:
        return self._runner.run(
            self._source.send_once(producer_id, first_number, messages, remember_s=self._remember_s)
        )

    def close(self) -> None:
        self._runner.run(self._source.close())
        self._runner.close()


class RedisCarrier(Batches):
    """Batches, one after the other, on a connection of their own."""

    def __init__(
        self, url: str, place: StreamURL, buffer: Buffer, *, batch: int, timeout_s: float, clock: Clock
    ) -> None:
        link = RedisLink(url, place, timeout_s=timeout_s, clock=clock)
        super().__init__(link, buffer, batch=batch, timeout_s=timeout_s, clock=clock)


def _with_topic(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        query = f"{parts.query}{'&' if parts.query else ''}stream={_NO_TOPIC}"
        return parts._replace(query=query).geturl()
    return parts._replace(path=f"/{_NO_TOPIC}").geturl()
