"""Writes messages: numbered, so that none is written twice when an answer is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.streams.redis_streams.connection import Connection, Words
from holdfast.streams.redis_streams.entries import offset_of, words_of
from holdfast.streams.redis_streams.layout import Layout
from holdfast.streams.redis_streams.scripts import SEND, Word
from holdfast.types import Outgoing

_MOST: Final = 500
"""Messages of one script: the server does nothing else meanwhile."""
_MOST_BYTES: Final = 1 << 20


class Sender:
    """Makes the commands that write, and sends them. It is used by one thread at a time."""

    def __init__(
        self, connection: Connection, layout: Layout, stream: str, field: bytes, max_entries: int | None
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._prefix = f"{stream}.producer.".encode()
        self._field = field
        self._topic = stream
        self._trims = () if max_entries is None else (b"MAXLEN", b"~", b"%d" % max_entries)
        """For the topic alone: retries and dead letters must not vanish unseen."""

    def send(
        self, producer: str, first: int, messages: Sequence[Outgoing], remember_s: float
    ) -> list[tuple[int, int] | None]:
        """Write messages in order, the first with this number; those whose number was written before are skipped.

        Says the partition and the offset of each; None where it was skipped.
        """
        commands: list[Words] = []
        start = 0
        while start < len(messages):
            n, command = self._command(producer, first + start, messages, start, remember_s)
            commands.append(command)
            start += n
        ids: list[bytes] = []
        for command in commands:  # one after the other: when one fails, nothing that comes after it is written
            ids += self._connection.ask(command)[0]
        partition_of = self._layout.partition_of
        return [
            (partition_of(one.topic, one.key, one.partition, first + n), offset_of(entry)) if entry else None
            for n, (one, entry) in enumerate(zip(messages, ids, strict=True))
        ]

    def _command(
        self, producer: str, number: int, messages: Sequence[Outgoing], start: int, remember_s: float
    ) -> tuple[int, Words]:
        keys = [self._prefix + producer.encode()]
        places: dict[bytes, int] = {}
        words: list[Word] = [number, max(1, int(remember_s * 1000))]
        n = size = 0
        for message in messages[start : start + _MOST]:
            key = self._layout.key_of(message.topic, message.key, message.partition, number + n)
            if key not in places:
                places[key] = len(keys)
                keys.append(key)
            fields = words_of(message, self._field)
            trims = self._trims if message.topic == self._topic else ()
            words += (places[key], len(trims) + 1 + len(fields), *trims, b"*", *fields)
            n += 1
            size += sum(map(len, fields))
            if size >= _MOST_BYTES:
                break
        return n, SEND.call(keys, *words)
