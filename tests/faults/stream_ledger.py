"""What handlers of messages have done, and what their workers had and said, in files that every process appends to."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, json

from holdfast.clock import SystemClock
from holdfast.ports import Owner, Progress, Source
from holdfast.types import Outgoing, Place

What = Literal["start", "end", "fail", "stop"]
Name = tuple[str, int]
"""A message, whatever the server calls it: its key, and its number there."""

_FIELDS = 10
_CLOSED = "."


class Handling(Struct, frozen=True):
    """One line of a handler: that it began, ended, failed by itself or was stopped; `at` is monotonic time."""

    stream: str
    message: str
    """Its id: where it was written."""
    key: str
    n: int
    attempt: int
    what: What
    pid: int = 0
    parent: int = 0
    """The worker, where it ran in a process of its own."""
    at: float = 0.0

    @property
    def name(self) -> Name:
        """Which message it was."""
        return self.key, self.n


class StreamLedger:
    """An O_APPEND file: one write for all messages of a call, so that a batch is noted whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clock = SystemClock()
        self._fd: int | None = None

    def write(self, rows: Iterable[tuple[str, str, str, int, int, What]]) -> None:
        """Add lines. Each begins with its newline, so that one torn by a kill spoils no other."""
        if self._fd is None:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        who, at = f"{os.getpid()} {os.getppid()}", self._clock.monotonic()
        lines = "".join(f"\n{' '.join(map(str, row))} {who} {at!r} {_CLOSED}" for row in rows)
        os.write(self._fd, lines.encode())

    def read(self) -> list[Handling]:
        """Every whole line, in order."""
        if not self.path.exists():
            return []
        return [_handling(words) for words in map(str.split, self.path.read_text().splitlines()) if _is_whole(words)]


def _is_whole(words: Sequence[str]) -> bool:
    return len(words) == _FIELDS and words[-1] == _CLOSED


def _handling(words: Sequence[str]) -> Handling:
    stream, message, key, n, attempt, what, pid, parent, at, _ = words
    numbers = (int(pid), int(parent), float(at))
    return Handling(stream, message, key, int(n), int(attempt), what, *numbers)  # type: ignore[arg-type]


# ---------------------------------------------------------------- what workers had and said

Word = Literal["have", "give", "gave", "lost", "tell", "told", "untold"]
"""Partitions are ours; are asked back; are given back as far as is said; are somebody else's. The server is being told
how far we are; it has said yes; it has not."""


class Fact(Struct, frozen=True, array_like=True):
    """One line of a worker: what happened to some of its partitions; `at` is monotonic time."""

    stream: str
    pid: int
    at: float
    word: Word
    positions: Sequence[tuple[str, int, int]] = ()
    """Topic, partition, and before which offset everything is finished."""
    finished: Sequence[tuple[str, int, int]] = ()
    """Messages that are finished, for a server that is told of each."""

    def covers(self, place: Place, offset: int, *, has_positions: bool) -> bool:
        """Whether it says that a message is finished."""
        if has_positions:
            return any((topic, n) == place and offset < end for topic, n, end in self.positions)
        return (*place, offset) in self.finished


class FactLedger:
    """An O_APPEND file of JSON lines; one that a kill has torn is passed over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clock = SystemClock()
        self._fd: int | None = None

    def write(self, stream: str, word: Word, progress: Mapping[Place, Progress]) -> None:
        """Add a line, which begins with its newline, so that one torn by a kill spoils no other."""
        if self._fd is None:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        positions = [(*place, how.position) for place, how in progress.items()]
        finished = [(*place, offset) for place, how in progress.items() for offset in how.finished]
        fact = Fact(stream, os.getpid(), self._clock.monotonic(), word, positions, finished)
        os.write(self._fd, b"\n" + json.encode(fact))

    def read(self) -> list[Fact]:
        """Every whole line, in order."""
        found = []
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            with suppress(msgspec.DecodeError):
                found.append(json.decode(line, type=Fact))
        return found


class _NotedOwner:
    """Notes what an owner is told and answers."""

    def __init__(self, owner: Owner, stream: str, ledger: FactLedger) -> None:
        self._owner = owner
        self._stream = stream
        self._ledger = ledger
        self.away = owner.away

    def assigned(self, positions: Mapping[Place, int]) -> None:
        have = {place: Progress(position=position) for place, position in positions.items()}
        self._ledger.write(self._stream, "have", have)
        self._owner.assigned(positions)

    async def revoked(self, places: Collection[Place]) -> Mapping[Place, Progress]:
        self._ledger.write(self._stream, "give", _nothing_of(places))
        progress = await self._owner.revoked(places)
        self._ledger.write(self._stream, "gave", progress)
        return progress

    def lost(self, places: Collection[Place]) -> None:
        self._ledger.write(self._stream, "lost", _nothing_of(places))
        self._owner.lost(places)


class NotedSource:
    """Notes which partitions a source has, and what its server is told of them; all else is the source's own."""

    def __init__(self, source: Source, stream: str, ledger: FactLedger) -> None:
        self._source = source
        self._stream = stream
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    async def open(self, topic: str, ours: Sequence[str], owner: Owner) -> None:
        """As the source does it."""
        await self._source.open(topic, ours, _NotedOwner(owner, self._stream, self._ledger))

    async def commit(self, progress: Mapping[Place, Progress]) -> None:
        """As the source does it."""
        await self._noted(self._source.commit(progress), progress)

    async def transact(self, messages: Sequence[Outgoing], progress: Mapping[Place, Progress]) -> None:
        """As the source does it."""
        await self._noted(self._source.transact(messages, progress), progress)

    async def _noted(self, telling: Any, progress: Mapping[Place, Progress]) -> None:
        self._ledger.write(self._stream, "tell", progress)
        try:
            await telling
        except BaseException:  # also when it is given up
            self._ledger.write(self._stream, "untold", progress)
            raise
        self._ledger.write(self._stream, "told", progress)


def _nothing_of(places: Collection[Place]) -> dict[Place, Progress]:
    return {place: Progress(position=0) for place in places}


if TYPE_CHECKING:
    _owner_contract: type[Owner] = _NotedOwner
