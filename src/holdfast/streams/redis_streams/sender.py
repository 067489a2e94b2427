"""Writes messages: numbered, so that none is written twice when an answer is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.errors import NotSent, SourceError
from holdfast.streams.redis_streams.connection import Connection, Words
from holdfast.streams.redis_streams.entries import offset_of, words_of
from holdfast.streams.redis_streams.faults import is_hopeless
from holdfast.streams.redis_streams.layout import Layout
from holdfast.streams.redis_streams.scripts import SEND, Word
from holdfast.types import Outgoing

_MOST: Final = 500
"""Messages of one script: the server does nothing else meanwhile."""
_MOST_BYTES: Final = 1 << 20
_MOST_WORDS: Final = 4000
"""Names and values of one message: Lua can hand over a few thousand to a command, and nobody has so many headers."""
_LARGEST: Final = 512 * 1024 * 1024
"""Bytes of one message. A server takes no larger value, unless it is told to, and closes the connection over it."""
_UNKNOWN: Final = -1
"""Instead of an offset: it is written, and the answer that said where was lost."""


class Sender:
    """Makes the commands that write, and sends them. It is used by one thread at a time."""

    def __init__(self, connection: Connection, layout: Layout, field: bytes, max_entries: int | None) -> None:
        self._connection = connection
        self._layout = layout
        self._prefix = f"{layout.topic}/producer:".encode()
        self._field = field
        self._trims = () if max_entries is None else (b"MAXLEN", b"~", b"%d" % max_entries)
        """For the topic alone: retries and dead letters must not vanish unseen."""

    def send(self, producer: str, first: int, messages: Sequence[Outgoing], remember_s: float) -> list[tuple[int, int]]:
        """Write messages in order, the first with this number; those whose number was written before are skipped.

        Says the partition and the offset of each, -1 where it was skipped. NotSent when one of them can never be
        written; where that shows before anything is asked of the server, nothing is.
        """
        partition_of, key_of = self._layout.partition_of, self._layout.key_of
        partitions: list[int] = []
        entries: list[tuple[bytes, list[bytes]]] = []
        for number, one in enumerate(messages, first):
            partition = partition_of(one.topic, one.key, one.partition, number)
            partitions.append(partition)
            entries.append((key_of(one.topic, partition), self._words(one)))
        commands: list[Words] = []
        start = 0
        while start < len(entries):
            n, command = self._command(producer, first + start, entries[start : start + _MOST], remember_s)
            commands.append(command)
            start += n
        ids: list[bytes] = []
        for command in commands:  # one after the other: when one fails, nothing that comes after it is written
            ids += self._ask(command)
        return [
            (partition, offset_of(entry) if entry else _UNKNOWN)
            for partition, entry in zip(partitions, ids, strict=True)
        ]

    def _ask(self, command: Words) -> list[bytes]:
        try:
            ids: list[bytes] = self._connection.ask(command)[0]
        except SourceError as error:
            if is_hopeless(error.__cause__):
                raise NotSent(str(error)) from error.__cause__
            raise
        return ids

    def _words(self, message: Outgoing) -> list[bytes]:
        """What follows the stream's name in XADD."""
        fields = words_of(message, self._field)
        if len(fields) > _MOST_WORDS:
            raise NotSent(
                f"topic {message.topic!r}: a message has {len(message.headers):,} headers; 1,998 may be written"
            )
        if sum(map(len, fields)) > _LARGEST:
            raise NotSent(f"topic {message.topic!r}: a message is larger than 512 MB, and Redis takes none that is")
        return [*self._trims, b"*", *fields] if message.topic == self._layout.topic else [b"*", *fields]

    def _command(
        self, producer: str, number: int, entries: Sequence[tuple[bytes, list[bytes]]], remember_s: float
    ) -> tuple[int, Words]:
        """How many of these go into one script, and its call; the first has this number."""
        keys = [self._prefix + producer.encode()]
        places: dict[bytes, int] = {}
        words: list[Word] = [number, max(1, int(remember_s * 1000))]
        n = size = 0
        for key, parts in entries:
            if key not in places:
                places[key] = len(keys)
                keys.append(key)
            words += (places[key], len(parts), *parts)
            n += 1
            size += sum(map(len, parts))
            if size >= _MOST_BYTES:
                break
        return n, SEND.call(keys, *words)
