"""A consumer's place in its group, renewed on a thread of its own so that no handler can hold it up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from holdfast.clock import new_secret
from holdfast.errors import SourceError
from holdfast.ports import Clock
from holdfast.streams.redis_streams.connection import Connection
from holdfast.streams.redis_streams.entries import offset_of
from holdfast.streams.redis_streams.layout import Layout, Stream
from holdfast.streams.redis_streams.scripts import BEAT
from holdfast.types import Place

_OTHERS: Final = 2
"""What the server answers when living members have another number of shards."""
_OFTEN_S: Final = 1.0
"""So often it beats at least: how soon shards are handed over depends on it."""


class Beat(Struct, frozen=True):
    """What a heartbeat has told."""

    consumer: bytes
    dead: int
    """Members whose entries may be taken."""
    surplus: int
    """Shards that are more than our share."""
    mine: frozenset[int]
    new: Mapping[Place, int]
    """Partitions that are ours since this beat, and where their messages begin."""


class Heart:
    """Keeps a consumer alive for `alive_s` after each beat, and says when it was given up.

    A consumer that cannot renew its place in time has lost it, whatever the reason: `on_lost` is told. So it is when
    others have given it up meanwhile; it then joins again under a new name. What it tells is called on the event loop.
    """

    def __init__(
        self,
        connection: Connection,
        layout: Layout,
        streams: Sequence[Stream],
        *,
        group: bytes,
        name: str,
        alive_s: float,
        clock: Clock,
        on_beat: Callable[[Beat], None],
        on_lost: Callable[[], None],
        on_error: Callable[[SourceError], None],
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._streams = streams
        self._group = group
        self._name = name
        self._alive_s = alive_s
        self._every_s = min(_OFTEN_S, alive_s / 4)
        self._clock = clock
        self._on_beat = on_beat
        self._on_lost = on_lost
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._mutex = threading.Lock()
        self._is_stopped = False
        self._poked = threading.Event()
        self._releases: set[int] = set()
        self._told: frozenset[int] = frozenset()
        """The shards that the owner knows of."""
        self._renewed_s = clock.monotonic()
        self._joins = True
        self._before = b""
        self.consumer = self._new_consumer()
        self._thread = threading.Thread(target=self._run, name="holdfast-stream-heart", daemon=True)

    def join(self) -> Beat:
        """The first beat, which makes us a member; blocks."""
        beat = self._beat()
        if beat is None:
            raise SourceError("the server does not take this consumer")
        return beat

    def start(self) -> None:
        """Go on beating."""
        self._thread.start()

    def release(self, shards: Iterable[int] = ()) -> None:
        """Beat at once, and give these shards back."""
        with self._mutex:
            self._releases.update(shards)
        self._poked.set()

    def stop(self) -> None:
        """Beat no more; blocks until the last beat is over."""
        self._is_stopped = True
        self._poked.set()
        self._connection.hang_up()
        if self._thread.ident is not None:
            self._thread.join()
        self._connection.close()

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        while True:
            self._clock.wait(self._poked, self._every_s)
            self._poked.clear()
            if self._is_stopped:
                return
            self._beat_once()

    def _beat_once(self) -> None:
        try:
            beat = self._beat()
        except SourceError as error:
            if not self._is_stopped:
                self._tell(self._on_error, error)
                if self._told and self._clock.monotonic() - self._renewed_s > self._alive_s:
                    self._told = frozenset()
                    self._tell(self._on_lost)
            return
        if beat is not None:
            self._tell(self._on_beat, beat)
            return
        self._told = frozenset()
        self._before, self.consumer = self.consumer, self._new_consumer()
        self._joins = True
        self._tell(self._on_lost)
        self._poked.set()

    def _beat(self) -> Beat | None:
        """One beat; None when we were given up."""
        began_s = self._clock.monotonic()
        with self._mutex:
            releases = frozenset(self._releases)
        command = BEAT.call(
            [self._layout.base],
            self.consumer,
            max(1, int(self._alive_s * 1000)),
            self._layout.shards,
            int(self._joins),
            self._before,
            *releases,
        )
        (reply,) = self._connection.ask(command)
        if not reply[0]:
            return None
        if reply[0] == _OTHERS:
            raise SourceError(
                f"{self._layout.topic}: the group {self._group.decode()} is at work with ?shards={reply[1]}, and "
                f"cannot be with {self._layout.shards} at once; stop all its workers, then change the URL everywhere"
            )
        _, dead, surplus, shards = reply
        mine = frozenset(shards)
        new = mine - (self._told - releases)
        positions = self._positions(new)
        with self._mutex:
            self._releases -= releases
        self._renewed_s, self._joins, self._before, self._told = began_s, False, b"", mine
        return Beat(self.consumer, dead, surplus, mine, positions)

    def _positions(self, shards: frozenset[int]) -> dict[Place, int]:
        """Where the messages of these begin: with the first that is pending, or after the last that was delivered."""
        streams = [stream for stream in self._streams if max(0, stream.shard) in shards]
        if not streams:
            return {}
        asks = [command for one in streams for command in _about(one, self._group)]
        replies = self._connection.try_all(*asks)
        positions: dict[Place, int] = {}
        for stream, pending, groups in zip(streams, replies[::2], replies[1::2], strict=True):
            facts = {} if isinstance(groups, Exception) else group_facts(groups, self._group)
            position = offset_of(facts[b"last-delivered-id"]) + 1 if facts else 0
            if not isinstance(pending, Exception) and pending[1]:
                position = min(position, offset_of(pending[1]))
            positions[stream.place] = position
        return positions

    def _new_consumer(self) -> bytes:
        """A name that nobody has had: others may still take what is pending under one that was used before."""
        return f"{self._name}.{new_secret().hex()[:12]}".encode()

    def _tell(self, listener: Callable[..., None], *about: object) -> None:
        try:
            self._loop.call_soon_threadsafe(listener, *about)
        except RuntimeError:  # the loop was closed without closing us: nobody is at work any more
            self._is_stopped = True


def _about(stream: Stream, group: bytes) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    return (b"XPENDING", stream.key, group), (b"XINFO", b"GROUPS", stream.key)


def group_facts(reply: Sequence[Any], group: bytes) -> dict[bytes, Any]:
    """What XINFO GROUPS says about one group; nothing when it is not there."""
    for about in reply:
        facts = dict(zip(about[::2], about[1::2], strict=True))
        if facts.get(b"name") == group:
            return facts
    return {}
