"""Takes over what is pending with others: with dead consumers, in shards that are ours now, and with lost answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from holdfast.streams.redis_streams.connection import Connection
from holdfast.streams.redis_streams.entries import Batch, read_rows
from holdfast.streams.redis_streams.layout import SHARED, Layout, Stream
from holdfast.streams.redis_streams.scripts import ADOPT, RESCUE

MOST: Final = 500
"""Entries that are taken at once: the server does nothing else meanwhile."""


class Rescued(Struct, frozen=True):
    """What was taken of one stream."""

    stream: Stream
    tenure: int
    batch: Batch
    pending: int
    """How many entries are pending there that should be ours: more than we hold means that answers were lost."""


class Adopted(Struct, frozen=True):
    """A piece of what was pending in one stream."""

    stream: Stream
    tenure: int
    batch: Batch
    cursor: bytes | None
    """Where to go on; None at the end."""
    is_ours: bool


def rescue(
    connection: Connection,
    layout: Layout,
    streams: Sequence[Stream],
    *,
    group: bytes,
    consumer: bytes,
    claim_after_s: float,
    limit: int,
    field: bytes,
) -> tuple[bool, bool, list[Rescued]]:
    """Take from the dead, and remove them; whether we are a member, whether there is more, and what was taken.

    `streams` are all of the group's, since a consumer is removed only when nothing is pending with it in any.
    """
    tenures = [stream.tenure for stream in streams]
    keys = [layout.base, *(key for stream in streams for key in stream.keys)]
    wanted = [int(one.shard == SHARED and one.is_owned and not one.is_paused) for one in streams]
    idle_ms = int(claim_after_s * 1000)
    (reply,) = connection.ask(RESCUE.call(keys, group, consumer, idle_ms, min(limit, MOST), *wanted))
    is_member, is_more, answers = reply
    rescued: list[Rescued] = []
    for stream, tenure, (rows, own, total) in zip(streams, tenures, answers or (), strict=False):
        batch = Batch()
        read_rows(stream.topic, stream.partition, rows, field, batch)
        rescued.append(Rescued(stream, tenure, batch, own if stream.shard == SHARED else total))
    return is_member == 1, is_more == 1, rescued


def adopt(
    connection: Connection, layout: Layout, stream: Stream, *, group: bytes, consumer: bytes, field: bytes
) -> Adopted:
    """Take the next piece of what is pending in a shard of ours, or with us in a stream that is shared."""
    tenure, cursor = stream.tenure, stream.cursor or b"-"
    begin = cursor if cursor == b"-" else b"(" + cursor
    keys = [layout.base, *stream.keys]
    (reply,) = connection.ask(ADOPT.call(keys, group, consumer, stream.shard_word, begin, MOST))
    is_ours, rows, last = reply
    batch = Batch()
    read_rows(stream.topic, stream.partition, rows, field, batch)
    return Adopted(stream, tenure, batch, last or None, is_ours == 1)
