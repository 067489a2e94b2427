"""Reads new entries, on a thread and a connection of its own: those may wait in the server."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from holdfast.errors import SourceAway, SourceError
from holdfast.streams.redis_streams.connection import Connection, Words
from holdfast.streams.redis_streams.entries import Batch, read_entries
from holdfast.streams.redis_streams.layout import SHARED, Stream
from holdfast.streams.redis_streams.scripts import READ

LONGEST_S: Final = 1.0
"""One wait in the server."""
SHORT_S: Final = 0.05
"""One wait where it cannot be ended before its time, as the server does not tell clients their ids."""
Got = list[tuple[Stream, int, Batch]]
"""What came of each stream, and in which tenure it was read."""


class Reader:
    """What a `receive` does in the server. `wake` may be called from the event loop; all else is the thread's."""

    def __init__(self, connection: Connection, control: Connection, group: bytes, base: bytes, field: bytes) -> None:
        self._connection = connection
        self._control = control
        self._group = group
        self._base = base
        self._field = field
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)

    @property
    def losses(self) -> int:
        """How often an answer was lost, which may have had entries in it."""
        return self._connection.losses

    # ---------------------------------------------------------------- the event loop

    def wake(self) -> None:
        """End the wait that is under way, if there is one."""
        with suppress(BlockingIOError):  # it is full of calls that nobody has heard yet: one is enough
            self._rope.send(b"!")

    def hush(self) -> None:
        """Forget calls of before: the next read looks at everything anew."""
        with suppress(BlockingIOError):
            while self._bell.recv(1024):
                pass

    def hang_up(self) -> None:
        """End whatever the thread does, with an error."""
        self._connection.hang_up()
        self._control.hang_up()

    # ---------------------------------------------------------------- the thread

    def read(self, streams: Sequence[Stream], consumer: bytes, count: int, wait_s: float) -> Got:
        """New entries, at most so many of each stream; waits so long for the first."""
        tenures = [stream.tenure for stream in streams]
        if streams[0].shard == SHARED:
            reply = self._read_shared(streams, consumer, count, wait_s)
        else:
            reply = self._read_shards(streams, consumer, count, wait_s)
        if not reply:
            return []
        found = dict(reply)
        got: Got = []
        for stream, tenure in zip(streams, tenures, strict=True):
            if entries := found.get(stream.key):
                batch = Batch()
                read_entries(stream.topic, stream.partition, entries, self._field, batch)
                got.append((stream, tenure, batch))
        return got

    def close(self) -> None:
        """Give both connections back."""
        self._connection.close()
        self._control.close()
        self._bell.close()
        self._rope.close()

    def _read_shared(self, streams: Sequence[Stream], consumer: bytes, count: int, wait_s: float) -> Any:
        blocks = (b"BLOCK", max(1, int(wait_s * 1000))) if wait_s > 0 else ()
        keys = [stream.key for stream in streams]
        marks = [b">"] * len(keys)
        command: Words = (
            *(b"XREADGROUP", b"GROUP", self._group, consumer, b"COUNT", count, *blocks, b"STREAMS"),
            *keys,
            *marks,
        )
        return self._wait(command, wait_s)

    def _read_shards(self, streams: Sequence[Stream], consumer: bytes, count: int, wait_s: float) -> Any:
        """The wait takes nothing: only a script can tell, at that very moment, whether a shard is still ours."""
        keys = [self._base, *(stream.key for stream in streams)]
        command = READ.call(keys, self._group, consumer, count, *(stream.shard for stream in streams))
        reply = self._connection.ask_once(command)
        if reply[0] or wait_s <= 0:
            return reply[0]
        _, mine, ids = reply
        if not mine:  # we have lost them all, and are about to be told
            select.select([self._bell], [], [], min(wait_s, SHORT_S))
            return None
        milliseconds = max(1, int(wait_s * 1000))
        if self._wait((b"XREAD", b"COUNT", 1, b"BLOCK", milliseconds, b"STREAMS", *mine, *ids), wait_s):
            return self._connection.ask_once(command)[0]
        return None

    def _wait(self, command: Words, wait_s: float) -> Any:
        return self._connection.wait(command, wait_s, self._bell, self._unblock)

    def _unblock(self, client: bytes) -> None:
        self._control.follow(self._connection)
        try:
            self._control.ask((b"CLIENT", b"UNBLOCK", client))
        except SourceAway:
            return  # then the wait ends with an error, or by itself
        except SourceError:  # this user may not do it: from now on waits are short
            self._connection.can_wake = False
