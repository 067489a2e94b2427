"""A source on Kafka: partitions of a group, read by one thread, committed only as far as everything is finished."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import new_id
from holdfast.errors import ConfigError, Invalid, LeaseLost, SourceAway, SourceError
from holdfast.policy import bounds
from holdfast.ports import Clock, Lag, Owner, Progress, Source, SourceCapabilities
from holdfast.streams.kafka.admin import Admin
from holdfast.streams.kafka.logs import log
from holdfast.streams.kafka.member import Member
from holdfast.streams.kafka.reach import Reach, missing_words
from holdfast.streams.kafka.reader import read
from holdfast.streams.kafka.sender import Sender
from holdfast.streams.kafka.settings import KafkaSettings, Start
from holdfast.streams.kafka.transactions import Transactions, Unknown
from holdfast.types import Message, Outgoing, Place

_LOOK_AGAIN_S: Final = 1.0
_CLOSE_S: Final = 5.0


class KafkaSource:
    """The topic of `kafka://host:port[,host:port]/topic?option=value`, for one consumer of a group.

    Options in the URL are librdkafka's; those that a promise of ours depends on are refused. A user and a password
    log in by SASL. One event loop uses it; it must not be used after a fork.

    start: from where a group reads that has never committed anything.
    session_timeout_s: without a heartbeat for so long, a member counts as dead [45 s, as librdkafka has it].
    rebalance_s: how long the owner may take to give partitions back; then they are taken.
    transactional_id: names the producer of `transact`; whoever uses one takes it from whoever had it [a new one for
        each source, so that nobody is ever shut out by accident].
    send_s: how long a message may take to be acknowledged.
    """

    def __init__(
        self,
        url: str,
        group: str,
        clock: Clock,
        *,
        start: Start = "earliest",
        session_timeout_s: float | None = None,
        rebalance_s: float = 10.0,
        transactional_id: str | None = None,
        send_s: float = 30.0,
    ) -> None:
        self._settings = KafkaSettings(url, session_timeout_s)
        self._group = _text("group", group)
        if start not in {"earliest", "latest"}:
            raise ConfigError(f'start={start!r}: must be "earliest" or "latest"')
        self._start: Start = start
        self._rebalance_s = bounds.length("rebalance_s", rebalance_s, above=0.0)
        if self._rebalance_s > self._settings.max_poll_s / 2:
            limit_s = self._settings.max_poll_s / 2
            raise ConfigError(f"rebalance_s={rebalance_s!r}: must be at most half of max.poll.interval.ms, {limit_s:g}")
        self._send_s = bounds.length("send_s", send_s, low=0.1)
        self._clock = clock
        self._location = repr(self._settings)
        self._admin = Admin(self._settings, clock)
        self._sender = Sender(self._settings, clock, self._send_s)
        name = (
            f"holdfast.{group}.{new_id()}" if transactional_id is None else _text("transactional_id", transactional_id)
        )
        self._transactions = Transactions(self._settings, name, clock)
        self._reach: Reach | None = None
        self._member: Member | None = None
        self._is_closed = False
        self._closing: asyncio.Future[None] | None = None

    @property
    def capabilities(self) -> SourceCapabilities:
        return SourceCapabilities(
            name="kafka",
            location=self._location,
            has_positions=True,
            keeps_order="over all consumers of the group",
            has_transactions=True,
        )

    @property
    def deleted_unread(self) -> int:
        """How many messages the broker has deleted before this consumer came to read them."""
        return self._member.deleted if self._member is not None else 0

    # ---------------------------------------------------------------- topics

    async def open(self, topic: str, ours: Sequence[str], owner: Owner) -> None:
        self._check_open()
        if self._member is not None:
            raise SourceError(f"{self._location}: it is open already")
        topics = [topic, *ours]
        try:
            for name in topics:
                self._settings.place.check_topic(name)
        except Invalid as error:  # one that begins with ^ would be a pattern
            raise SourceError(f"{self._location}: {error}") from None
        reach = Reach(self._admin, topics, owner.away, self._clock)
        await self._waited_for(topic, reach)
        # One partition is enough, and with more a member may be given those alone, and none of the topic.
        await self._ensure(ours, 1)
        self._check_open()
        self._reach = reach
        self._member = Member(
            self._settings,
            self._group,
            topics,
            owner,
            reach,
            self._clock,
            start=self._start,
            rebalance_s=self._rebalance_s,
        )

    async def _waited_for(self, topic: str, reach: Reach) -> int:
        """How many partitions it has, once it is there."""
        while True:
            found = await self._admin.partitions([topic])
            if topic in found:
                reach.say("")
                return found[topic]
            reach.say(missing_words([topic]))
            await self._clock.asleep(_LOOK_AGAIN_S)
            self._check_open()

    async def ensure(self, topics: Sequence[str], like: str) -> None:
        self._check_open()
        found = await self._admin.partitions([like])
        if like not in found:
            raise SourceError(f"{self._location}: {missing_words([like])}")
        await self._ensure(topics, found[like])

    async def _ensure(self, topics: Sequence[str], partitions: int) -> None:
        found = await self._admin.partitions(topics)
        if missing := [topic for topic in topics if topic not in found]:
            await self._admin.create(missing, partitions)

    # ---------------------------------------------------------------- messages that come

    async def receive(self, limit: int, wait_s: float) -> Sequence[Message]:
        return await self._joined.receive(limit, wait_s)

    def pause(self, places: Collection[Place]) -> None:
        self._joined.pause(places)

    def resume(self, places: Collection[Place]) -> None:
        self._joined.resume(places)

    async def commit(self, progress: Mapping[Place, Progress]) -> None:
        await self._joined.commit(progress)

    @property
    def _joined(self) -> Member:
        if self._member is None:
            self._check_open()
            raise SourceError(f"{self._location}: it is not open")
        return self._member

    # ---------------------------------------------------------------- messages that go

    async def send(self, messages: Sequence[Outgoing]) -> None:
        self._check_open()
        await self._sender.send(messages)

    async def transact(self, messages: Sequence[Outgoing], progress: Mapping[Place, Progress]) -> None:
        member = self._joined
        membership = await self._membership(member, progress)
        try:
            await self._transactions.run(messages, progress, membership)
        except Unknown as error:
            if not await self._was_committed(progress):
                await self._membership(member, progress)
                raise SourceAway(str(error)) from error
        except SourceAway:
            await self._membership(member, progress)
            raise

    async def _membership(self, member: Member, progress: Mapping[Place, Progress]) -> Any:
        proof = await member.membership(progress.keys())
        if proof is None:
            places = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(progress))
            raise LeaseLost(f"{self._location}: not all of {places} is ours any more; nothing was written")
        return proof

    async def _was_committed(self, progress: Mapping[Place, Progress]) -> bool:
        """After a commit without an answer: once the transaction has ended, the group's position tells how."""
        while True:
            try:
                await self._transactions.recover()
                found = await self._admin.committed(self._group, progress.keys())
            except SourceAway as error:
                self._check_open()
                log.debug("%s: %s", self._location, error)
                await self._clock.asleep(_LOOK_AGAIN_S)
            else:
                return bool(progress) and all(found.get(place) == how.position for place, how in progress.items())

    # ---------------------------------------------------------------- for those who look

    async def lags(self, topics: Sequence[str]) -> list[Lag]:
        self._check_open()
        return await self._admin.lags(self._group, topics, self._start)

    async def read(self, topic: str) -> AsyncIterator[Sequence[Message]]:
        self._check_open()
        found = await self._admin.partitions([topic])
        if topic not in found:
            return
        extent = await self._admin.extent(topic, found[topic])
        async for batch in read(self._settings, topic, extent, self._clock):
            yield batch

    # ---------------------------------------------------------------- its end

    async def close(self) -> None:
        self._is_closed = True
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        closing = [self._sender.close(_CLOSE_S), self._transactions.close(_CLOSE_S)]
        if self._member is not None:
            closing.append(self._member.close(_CLOSE_S))
        if self._reach is not None:
            closing.append(self._reach.close())
        await asyncio.gather(*closing)
        await self._admin.close(_CLOSE_S)

    def _check_open(self) -> None:
        if self._is_closed:
            raise SourceError(f"{self._location}: it is closed")


def _text(field: str, value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise ConfigError(f"{field}={value!r}: must be text, and not empty")


if TYPE_CHECKING:
    _contract: type[Source] = KafkaSource
