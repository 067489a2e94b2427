"""The Redis source: the verbs, each handed to the connection that it belongs to."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from holdfast.clock import new_secret
from holdfast.errors import ConfigError, SourceError
from holdfast.policy import bounds
from holdfast.ports import Clock, Lag, Owner, Progress, Source, SourceCapabilities
from holdfast.streams.redis_streams.address import address_of, group_of
from holdfast.streams.redis_streams.connection import Connection
from holdfast.streams.redis_streams.counting import Counting
from holdfast.streams.redis_streams.desk import Desk
from holdfast.streams.redis_streams.layout import Layout
from holdfast.streams.redis_streams.looks import last_id, read_lags, read_page
from holdfast.streams.redis_streams.options import field_of, is_name, seconds_of, shards_of, whole_of
from holdfast.streams.redis_streams.seat import Seat
from holdfast.streams.redis_streams.sender import Sender
from holdfast.types import Message, Outgoing, Place

_CLAIM_AFTER_S: Final = 30.0
_HANDOVER_S: Final = 10.0
_REMEMBER_S: Final = 3600.0
"""How long the numbers of our own `send` are kept: much longer than one call takes."""
_SHARED: Final = (
    "within one consumer: several share the stream, and entries of one key may be handled side by side by two of them; "
    "shards keep the order over any number of consumers"
)
_SHARDED: Final = (
    "over all consumers of a group: each shard is one consumer's at a time, and a key is always in one shard"
)


class RedisSource:
    """A consumer of a group on Redis Streams (Redis 6.2 or newer, or Valkey). A forked child makes one of its own.

    The URL is `redis://user:password@host:port/stream?db=0`, `rediss://…` for TLS, `unix:///path?stream=orders`. These
    may stand in it too: `shards` [1]: keys are spread over so many streams, `<stream>.0` and so on. `field` ["value"]:
    that of an entry which is a message's value. `max_entries` [none]: to about so many a stream of the topic is trimmed
    with each message that this source sends to it. `claim_after_s` [30], in the URL `claim_after`: a consumer that was
    silent for so long has lost what it had. `handover_s` [10], in the URL `handover`: how long an owner may take to
    give shards up. Others cannot: `start` ["earliest"]: where a new group begins. `answer_within_s` [5]: how long an
    answer is waited for. `consumer` [host and process]: what the consumer's name begins with.
    """

    def __init__(
        self,
        url: str,
        group: str,
        clock: Clock,
        *,
        consumer: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        claim_after_s: float | None = None,
        handover_s: float | None = None,
        answer_within_s: float = 5.0,
        shards: int | None = None,
        field: str | None = None,
        max_entries: int | None = None,
    ) -> None:
        if start not in {"earliest", "latest"}:
            raise ConfigError(f"start={start!r}: must be earliest or latest")
        self._address = address_of(url)
        self._group = group_of(group)
        self._clock = clock
        self._latest = start == "latest"
        address = self._address
        self._claim_after_s = seconds_of(address, "claim_after", claim_after_s, default_s=_CLAIM_AFTER_S, low=0.1)
        self._handover_s = seconds_of(address, "handover", handover_s, default_s=_HANDOVER_S, low=0.001)
        self._answer_within_s = bounds.length("answer_within_s", answer_within_s, above=0.0)
        self._field = field_of(address, field)
        if consumer is not None and not is_name(consumer):
            raise ConfigError(f"consumer={consumer!r}: must be a name without blanks")
        self._consumer = consumer if consumer is not None else f"{socket.gethostname()}.{os.getpid()}"
        self._layout = Layout(address.stream, self._group, shards_of(address, shards))
        self._producer = new_secret().hex()
        self._number_sent = 0
        self._sends = self._desk("sends")
        self._sender = Sender(
            self._sends.connection, self._layout, self._field, whole_of(address, "max_entries", max_entries)
        )
        self._counting = Counting()
        self._looks = self._desk("looks")
        self._seat: Seat | None = None
        self._is_closed = False
        self._warnings: tuple[str, ...] = ()

    @property
    def capabilities(self) -> SourceCapabilities:
        return SourceCapabilities(
            name="redis",
            location=self._address.location,
            has_positions=False,
            keeps_order=_SHARED if self._layout.shards == 1 else _SHARDED,
            warnings=self._warnings,
        )

    # ---------------------------------------------------------------- consuming

    async def open(self, topic: str, ours: Sequence[str], owner: Owner) -> None:
        self._check_open()
        if self._seat is not None:
            raise SourceError(f"{self._address.location}: is open already")
        if topic != self._address.stream:
            raise SourceError(f"{self._address.location}: the topic is {self._address.stream!r}, not {topic!r}")
        self._layout.add(ours)
        seat = Seat(
            self._address,
            self._layout,
            [stream for name in (topic, *ours) for stream in self._layout.streams(name)],
            owner,
            self._clock,
            group=self._group,
            field=self._field,
            name=self._consumer,
            latest=self._latest,
            claim_after_s=self._claim_after_s,
            handover_s=self._handover_s,
            answer_within_s=self._answer_within_s,
        )
        self._warnings = await seat.take()
        self._seat = seat

    async def ensure(self, topics: Sequence[str], like: str) -> None:
        self._check_open()  # the first message makes a stream

    async def receive(self, limit: int, wait_s: float) -> Sequence[Message]:
        return await self._seated().receive(limit, wait_s)

    def pause(self, places: Collection[Place]) -> None:
        self._seated().pause(places)

    def resume(self, places: Collection[Place]) -> None:
        self._seated().resume(places)

    async def commit(self, progress: Mapping[Place, Progress]) -> None:
        await self._seated().commit(progress)

    async def transact(self, messages: Sequence[Outgoing], progress: Mapping[Place, Progress]) -> None:
        raise SourceError(f"{self._address.location}: Redis Streams have no transactions; see capabilities")

    # ---------------------------------------------------------------- sending

    async def send(self, messages: Sequence[Outgoing]) -> None:
        first = self._number_sent + 1
        self._number_sent += len(messages)
        await self.send_once(self._producer, first, messages, remember_s=_REMEMBER_S)

    async def send_once(
        self, producer_id: str, first_number: int, messages: Sequence[Outgoing], *, remember_s: float = 86_400.0
    ) -> Sequence[tuple[int, int]]:
        """Write messages in order, numbered from `first_number` on, and none with a number that this producer has used.

        So the same call may be made again after any error. Numbers must rise from call to call, from 1; the last one is
        remembered for `remember_s` [a day] after the latest call. Says the partition and the offset of each; -1 where
        it was written before. NotSent when one of them can never be written.
        """
        self._check_open()
        bounds.whole("first_number", first_number, low=1)
        seconds = bounds.length("remember_s", remember_s, above=0.0)
        if not is_name(producer_id) or "/" in producer_id:
            raise ConfigError(f"producer_id={producer_id!r}: must be a name without blanks and slashes")
        if not messages:
            return []
        return await self._sends.ask(lambda _: self._sender.send(producer_id, first_number, messages, seconds))

    # ---------------------------------------------------------------- looking

    async def lags(self, topics: Sequence[str]) -> list[Lag]:
        self._check_open()
        streams = [stream for topic in topics for stream in self._layout.streams(topic)]
        return await self._looks.ask(
            lambda line: read_lags(line, streams, self._group, self._counting, latest=self._latest)
        )

    async def read(self, topic: str) -> AsyncIterator[Sequence[Message]]:
        self._check_open()
        streams = self._layout.streams(topic)
        ends = await self._looks.ask(lambda line: [last_id(line, stream) for stream in streams])
        for stream, end in zip(streams, ends, strict=True):
            after: bytes | None = None
            is_more = end is not None
            while is_more and end is not None:
                page = (stream, after, end, self._field)
                messages, after = await self._looks.ask(lambda line, page=page: read_page(line, *page))  # type: ignore[misc]
                is_more = after is not None
                if messages:
                    yield messages

    # ---------------------------------------------------------------- the end

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        seat, self._seat = self._seat, None
        if seat is not None:
            await seat.leave()
        await asyncio.gather(*(asyncio.to_thread(desk.close) for desk in (self._sends, self._looks)))

    # ---------------------------------------------------------------- inside

    def _check_open(self) -> None:
        if self._is_closed:
            raise SourceError(f"{self._address.location}: the source is closed")

    def _seated(self) -> Seat:
        self._check_open()
        if self._seat is None:
            raise SourceError(f"{self._address.location}: is not open; await open() first")
        return self._seat

    def _desk(self, name: str) -> Desk:
        return Desk(name, self._address.location, Connection(self._address, self._answer_within_s))


if TYPE_CHECKING:
    _contract: type[Source] = RedisSource
