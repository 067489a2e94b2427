"""A source over topics in memory: the oracle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace

from holdfast.errors import ConfigError, LeaseLost, SourceAway, SourceError
from holdfast.policy import bounds
from holdfast.ports import Clock, Lag, Owner, Progress, Source, SourceCapabilities
from holdfast.streams.memory.broker import MemoryBroker
from holdfast.streams.memory.group import Member
from holdfast.types import Message, Outgoing, Place

_PAGE: Final = 500


class MemorySource:
    """One consumer of a group, on topics in the memory of this process: for tests, as nothing outlives the process.

    `broker`: what it shares with other sources [one of its own]. `start` ["earliest"]: where a group begins that has
    committed nothing. `handover_s` [10]: how long an owner may take to give up partitions.
    """

    def __init__(
        self,
        name: str,
        group: str,
        clock: Clock,
        *,
        broker: MemoryBroker | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        handover_s: float = 10.0,
    ) -> None:
        if start not in {"earliest", "latest"}:
            raise ConfigError(f"start={start!r}: must be earliest or latest")
        self._name = name
        self._clock = clock
        self._broker = broker or MemoryBroker()
        self._group = self._broker.group(group)
        self._latest = start == "latest"
        self._handover_s = bounds.length("handover_s", handover_s, above=0.0)
        self._member: Member | None = None
        self._turn = 0
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._is_closed = False

    @property
    def capabilities(self) -> SourceCapabilities:
        return SourceCapabilities(
            name="memory",
            location=f"memory://{self._name}",
            has_positions=True,
            keeps_order="over all consumers of a group: each partition is one consumer's at a time",
            has_transactions=True,
            warnings=("messages are in the memory of this process alone, and gone with it",),
        )

    async def open(self, topic: str, ours: Sequence[str], owner: Owner) -> None:
        self._check_open()
        if self._member is not None:
            raise SourceError(f"memory://{self._name}: is open already")
        await self.ensure(ours, like=topic)
        self._member = Member(owner, (topic, *ours), self._clock, self._handover_s, latest=self._latest)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._broker.listen(self._wake)
        self._group.join(self._member)

    async def ensure(self, topics: Sequence[str], like: str) -> None:
        self._check_open()
        self._broker.check()
        n = len(self._broker.places(like))
        for topic in topics:
            if topic != like:
                self._broker.create_topic(topic, n)

    async def receive(self, limit: int, wait_s: float) -> Sequence[Message]:
        member = self._joined()
        try:
            async with self._clock.timeout(wait_s):
                while not (messages := self._take(member, limit)):
                    self._news.clear()
                    await self._news.wait()
                    self._joined()
        except TimeoutError:
            self._broker.check()
            return []
        return messages

    def pause(self, places: Collection[Place]) -> None:
        self._joined().paused.update(places)

    def resume(self, places: Collection[Place]) -> None:
        self._joined().paused.difference_update(places)
        self._news.set()

    async def commit(self, progress: Mapping[Place, Progress]) -> None:
        member = self._joined()
        self._broker.check()
        self._group.commit(member, progress)

    async def send(self, messages: Sequence[Outgoing]) -> None:
        self._check_open()
        self._broker.check()
        self._broker.append(messages, self._clock.now())

    async def transact(self, messages: Sequence[Outgoing], progress: Mapping[Place, Progress]) -> None:
        member = self._joined()
        self._broker.check()
        if foreign := [place for place in progress if place not in member.next]:
            raise LeaseLost(f"partition {foreign[0][1]} of {foreign[0][0]} is somebody else's")
        self._broker.append(messages, self._clock.now())
        self._group.commit(member, progress)

    async def lags(self, topics: Sequence[str]) -> list[Lag]:
        self._check_open()
        self._broker.check()
        return [self._lag(place) for topic in topics for place in self._broker.places(topic)]

    async def read(self, topic: str) -> AsyncIterator[Sequence[Message]]:
        self._check_open()
        self._broker.check()
        ends = [(place, len(self._broker.log(place))) for place in self._broker.places(topic)]
        for place, end in ends:
            for begin in range(0, end, _PAGE):
                yield self._broker.log(place)[begin : min(begin + _PAGE, end)]

    async def close(self) -> None:
        self._is_closed = True
        if self._member is not None:
            self._broker.forget(self._wake)
            self._group.leave(self._member)
            self._member = None
            self._news.set()

    def expelled(self) -> None:
        """The broker has taken it out of its group."""
        if self._member is not None:
            self._group.expel(self._member)

    # ---------------------------------------------------------------- inside

    def _wake(self) -> None:
        """Something may have changed; a producer says so from threads of its own."""
        if threading.get_ident() == self._thread:
            self._news.set()
        elif self._loop is not None:
            with suppress(RuntimeError):  # it is closed: nobody waits there any more
                self._loop.call_soon_threadsafe(self._news.set)

    def _check_open(self) -> None:
        if self._is_closed:
            raise SourceError(f"memory://{self._name}: the source is closed")

    def _joined(self) -> Member:
        self._check_open()
        if self._member is None:
            raise SourceError(f"memory://{self._name}: is not open; await open() first")
        return self._member

    def _take(self, member: Member, limit: int) -> list[Message]:
        """What there is, from each partition in turn, so that none waits for another to be empty."""
        try:
            self._broker.check()
        except SourceAway:
            return []
        if not self._group.has(member):
            self._group.join(member)
        places = [place for place in member.next if place not in member.paused | member.leaving]
        self._turn += 1
        messages: list[Message] = []
        for n in range(len(places)):
            place = places[(self._turn + n) % len(places)]
            begin = member.next[place]
            some = self._broker.log(place)[begin : begin + limit - len(messages)]
            member.next[place] = begin + len(some)
            retries = self._group.retries(place)
            messages += [replace(one, retries=retries[one.offset]) if one.offset in retries else one for one in some]
        return messages

    def _lag(self, place: Place) -> Lag:
        end = len(self._broker.log(place))
        position = self._group.position(place)
        begin = self._group.begin(place) if self._group.is_begun(place) or not self._latest else end
        return Lag(topic=place[0], partition=place[1], lag=end - begin, position=position, end=end)


if TYPE_CHECKING:
    _contract: type[Source] = MemorySource
