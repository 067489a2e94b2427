# ruff: noqa: S101
# The asserts here are steps of a test.
"""The steps that the suite's tests are made of: a lab that makes sources, and members that use them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol

from holdfast.clock import SystemClock
from holdfast.ports import Progress, Source
from holdfast.types import Message, Outgoing, Place

Start = Literal["earliest", "latest"]
CLOCK: Final = SystemClock()
LOOK_S: Final = 0.05
"""How long one look for messages waits, where there may be none."""


class Lab(Protocol):
    """What an adapter's test file gives the suite. Everything that it makes, it closes after the test."""

    patience_s: float
    """How long a test waits for what a server does by itself, such as finding out that a consumer has died."""
    quiet_s: float
    """How long nothing must come for a test to say that nothing comes."""

    async def topic(self, partitions: int = 1) -> str:
        """A new topic with so many partitions, under a name that no other test has."""

    def source(self, topic: str, group: str, *, start: Start = "earliest") -> Source:
        """A source for a consumer of this group, not opened."""

    async def kill(self, source: Source) -> None:
        """Let an open source die as SIGKILL would: it says nothing, and does nothing any more."""


class Member:
    """A consumer with an owner that keeps books: what it has, what it was given, and what is finished."""

    def __init__(self, lab: Lab, source: Source) -> None:
        self.lab = lab
        self.source = source
        self.owned: dict[Place, int] = {}
        self.revoked_places: list[Place] = []
        self.lost_places: list[Place] = []
        self.aways: list[str] = []
        self.received: list[Message] = []
        self._open: dict[Place, set[int]] = {}
        """The offsets that were received and are not finished."""
        self._ended: dict[Place, int] = {}
        """After the last offset that was received."""
        self._finished: dict[Place, set[int]] = {}
        """The offsets that are finished and not committed."""

    # ---------------------------------------------------------------- what an owner does

    def assigned(self, positions: Mapping[Place, int]) -> None:
        """These are ours from now on."""
        assert not self.owned.keys() & positions.keys(), "assigned what is ours already"
        self.owned.update(positions)

    async def revoked(self, places: Collection[Place]) -> Mapping[Place, Progress]:
        """These go; the answer says what is finished."""
        answer = {place: self._progress(place) for place in places}
        self.revoked_places += places
        self._drop(places)
        return answer

    def lost(self, places: Collection[Place]) -> None:
        """These are gone."""
        self.lost_places += places
        self._drop(places)

    def away(self, why: str) -> None:
        """The server is away, or back."""
        self.aways.append(why)

    def _drop(self, places: Collection[Place]) -> None:
        for place in places:
            assert self.owned.pop(place, None) is not None, "took what was not ours"
            for books in (self._open, self._finished, self._ended):
                books.pop(place, None)

    # ---------------------------------------------------------------- steps

    async def look(self, limit: int = 100, wait_s: float = LOOK_S) -> Sequence[Message]:
        """One call of `receive`."""
        messages = await self.source.receive(limit, wait_s)
        assert len(messages) <= limit
        for message in messages:
            assert message.place in self.owned, "a message of a partition that is not ours"
            self._open.setdefault(message.place, set()).add(message.offset)
            self._ended[message.place] = message.offset + 1
        self.received += messages
        return messages

    async def take(self, n: int, limit: int = 100) -> list[Message]:
        """Exactly so many messages, however many calls that needs."""
        messages: list[Message] = []
        await self.until(lambda: len(messages) >= n, messages, limit)
        assert len(messages) == n
        return messages

    async def until(self, is_so: Callable[[], bool], into: list[Message] | None = None, limit: int = 100) -> None:
        """Look for messages until something is so."""
        deadline = CLOCK.monotonic() + self.lab.patience_s
        while not is_so():
            assert CLOCK.monotonic() < deadline, "it did not happen in time"
            messages = await self.look(limit)
            if into is not None:
                into += messages

    async def nothing(self) -> None:
        """Nothing more comes."""
        end = CLOCK.monotonic() + self.lab.quiet_s
        while True:
            assert list(await self.look(wait_s=min(LOOK_S, self.lab.quiet_s))) == []
            if CLOCK.monotonic() >= end:
                return

    async def finish(self, *messages: Message) -> None:
        """These are finished: commit all progress."""
        self.note_finished(messages)
        await self.commit()

    def note_finished(self, messages: Iterable[Message]) -> None:
        """These are finished, and not committed yet."""
        for message in messages:
            self._open[message.place].discard(message.offset)
            self._finished.setdefault(message.place, set()).add(message.offset)

    async def commit(self, retries: Mapping[Message, int] | None = None) -> None:
        """Commit what is finished, with the counted attempts of what is not."""
        await self.source.commit(self.progress(retries))
        self._finished.clear()

    def progress(self, retries: Mapping[Message, int] | None = None) -> dict[Place, Progress]:
        """How far each partition is that anything was received of."""
        return {place: self._progress(place, retries) for place in self._ended}

    def _progress(self, place: Place, retries: Mapping[Message, int] | None = None) -> Progress:
        unfinished = self._open.get(place, set())
        return Progress(
            position=min(unfinished, default=self._ended.get(place, self.owned.get(place, 0))),
            finished=sorted(self._finished.get(place, ())),
            retries={one.offset: n for one, n in (retries or {}).items() if one.place == place},
        )


async def join(
    lab: Lab, topic: str, group: str = "billing", *, start: Start = "earliest", ours: Sequence[str] = ()
) -> Member:
    """A member that has opened its source."""
    member = Member(lab, lab.source(topic, group, start=start))
    await member.source.open(topic, ours, member)
    return member


async def own(member: Member, n: int = 1) -> None:
    """Wait until a member has exactly so many partitions."""
    await member.until(lambda: len(member.owned) == n)


async def together(*members: Member, until: Callable[[], bool]) -> None:
    """All of them look for messages until something is so."""
    deadline = CLOCK.monotonic() + members[0].lab.patience_s
    while not until():
        assert CLOCK.monotonic() < deadline, "it did not happen in time"
        await asyncio.gather(*(member.look() for member in members))


async def send(
    source: Source, topic: str, *values: bytes, key: bytes | None = None, partition: int | None = None
) -> None:
    """Messages of these values."""
    await source.send([Outgoing(topic, value, key, partition=partition) for value in values])


def values(messages: Iterable[Message]) -> list[bytes | None]:
    """What they say, in order."""
    return [message.value for message in messages]


def counted(messages: Iterable[Message]) -> Counter[bytes | None]:
    """What they say, and how often."""
    return Counter(message.value for message in messages)


def numbers(n: int, first: int = 0) -> list[bytes]:
    """So many different values."""
    return [b"%d" % number for number in range(first, first + n)]
