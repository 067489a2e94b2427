"""Looks at streams without being a consumer: how far a group is behind, and everything that is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from redis.exceptions import ResponseError

from holdfast.ports import Lag
from holdfast.streams.redis_streams.connection import Connection
from holdfast.streams.redis_streams.counting import Counting
from holdfast.streams.redis_streams.entries import Batch, offset_of, read_entries
from holdfast.streams.redis_streams.faults import translated
from holdfast.streams.redis_streams.heart import group_facts
from holdfast.streams.redis_streams.layout import Stream
from holdfast.types import Message

PAGE: Final = 500


def read_lags(
    connection: Connection, streams: Sequence[Stream], group: bytes, counting: Counting, *, latest: bool
) -> list[Lag]:
    """What is not read yet, and what is pending, of each stream; a stream that is not there has nothing."""
    asks = [(b"XINFO", word, stream.key) for stream in streams for word in (b"STREAM", b"GROUPS")]
    replies = connection.try_all(*asks) if asks else []
    lags: list[Lag] = []
    for stream, about, groups in zip(streams, replies[::2], replies[1::2], strict=True):
        if isinstance(about, ResponseError):
            if "no such key" not in str(about):
                raise translated(about, stream.key.decode(errors="replace")) from about
            lags.append(Lag(topic=stream.topic, partition=stream.partition, lag=0))
            continue
        facts = dict(zip(about[::2], about[1::2], strict=True))
        lags.append(_lag(connection, stream, facts, group_facts(groups, group), counting, latest=latest))
    return lags


def _lag(
    connection: Connection,
    stream: Stream,
    facts: dict[bytes, Any],
    mine: dict[bytes, Any],
    counting: Counting,
    *,
    latest: bool,
) -> Lag:
    length = int(facts[b"length"])
    end = offset_of(facts[b"last-generated-id"])
    if not mine:
        return Lag(topic=stream.topic, partition=stream.partition, lag=0 if latest else length, end=end)
    delivered: bytes = mine[b"last-delivered-id"]
    unread = mine.get(b"lag")
    if unread is None:
        unread = _unread(connection, stream, facts, mine, counting)
    position = None if delivered == b"0-0" else offset_of(delivered) + 1
    pending = int(mine[b"pending"])
    if pending:
        (summary,) = connection.ask((b"XPENDING", stream.key, mine[b"name"]))
        position = offset_of(summary[1]) if summary[1] else position
    return Lag(topic=stream.topic, partition=stream.partition, lag=int(unread) + pending, position=position, end=end)


def _unread(
    connection: Connection, stream: Stream, facts: dict[bytes, Any], mine: dict[bytes, Any], counting: Counting
) -> int:
    """Since unread entries were deleted, or as it is Redis 6.2, the server does not know: they are counted.

    Where there are too many to count them in one look: at most so many as Redis 7 has numbers for, or else at least
    those that were counted so far.
    """
    count, is_all = counting.count(connection, stream.key, mine[b"last-delivered-id"], facts[b"last-generated-id"])
    count = min(count, int(facts[b"length"]))  # some of those that were counted may be trimmed by now
    added, read = facts.get(b"entries-added"), mine.get(b"entries-read")
    if is_all or added is None or read is None:
        return count
    return max(count, min(int(facts[b"length"]), int(added) - int(read)))


def unread_gone(connection: Connection, streams: Sequence[Stream], group: bytes) -> dict[Stream, int]:
    """At least so many entries were deleted or trimmed before the group had read them, where the server can tell."""
    asks = [(b"XINFO", word, stream.key) for stream in streams for word in (b"STREAM", b"GROUPS")]
    replies = connection.try_all(*asks) if asks else []
    gone: dict[Stream, int] = {}
    for stream, about, groups in zip(streams, replies[::2], replies[1::2], strict=True):
        if isinstance(about, ResponseError) or isinstance(groups, ResponseError):
            continue
        facts, mine = dict(zip(about[::2], about[1::2], strict=True)), group_facts(groups, group)
        added, read = facts.get(b"entries-added"), mine.get(b"entries-read")
        if added is not None and read is not None and (n := added - facts[b"length"] - read) > 0:
            gone[stream] = n
    return gone


def last_id(connection: Connection, stream: Stream) -> bytes | None:
    """The id of the last entry that a stream ever had; None where there is no stream."""
    (about,) = connection.try_all((b"XINFO", b"STREAM", stream.key))
    if isinstance(about, ResponseError):
        if "no such key" in str(about):
            return None
        raise translated(about, stream.key.decode(errors="replace")) from about
    found: bytes = dict(zip(about[::2], about[1::2], strict=True))[b"last-generated-id"]
    return found


def read_page(
    connection: Connection, stream: Stream, after: bytes | None, end: bytes, field: bytes
) -> tuple[list[Message], bytes | None]:
    """The next entries up to an id, and where to go on after; None at the end."""
    begin = b"-" if after is None else b"(" + after
    (entries,) = connection.ask((b"XRANGE", stream.key, begin, end, b"COUNT", PAGE))
    batch = Batch()
    read_entries(stream.topic, stream.partition, entries, field, batch)
    return batch.messages, entries[-1][0] if len(entries) == PAGE else None
