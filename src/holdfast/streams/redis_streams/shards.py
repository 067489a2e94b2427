"""Whether the number of shards has changed: messages in those of before would never be read, or out of order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from redis.exceptions import ResponseError

from holdfast.errors import SourceError
from holdfast.streams.redis_streams.connection import Connection
from holdfast.streams.redis_streams.faults import translated
from holdfast.streams.redis_streams.heart import group_facts
from holdfast.streams.redis_streams.layout import Layout, stream_key
from holdfast.streams.redis_streams.options import MOST_SHARDS

_SHOWN: Final = 5


def look_at_shards(
    connection: Connection, layout: Layout, topics: Sequence[str], group: bytes, location: str
) -> tuple[str, ...]:
    """SourceError where the group has unfinished messages in another number of shards.

    What people should know: there are streams beside ours that look like shards, and hold what the group never reads.
    """
    (known,) = connection.ask((b"GET", layout.base + b"shards"))
    before = int(known) if known is not None else layout.shards
    if before != layout.shards:
        streams = [key for topic in topics for key in _streams(topic, before)]
        if left := _unfinished(connection, streams, group, location):
            raise SourceError(
                f"{location}: the group {group.decode()} has messages left in {_named(left)}, of ?shards={before}; "
                f"let it finish with that, then change it to {layout.shards} in the URLs of all workers and producers"
            )
    beside = _beside(connection, layout)
    if not (unread := _unfinished(connection, beside, group, location) if beside else []):
        return ()
    return (
        f"with ?shards={layout.shards} the group {group.decode()} does not read {_named(unread)}, where messages are: "
        "do producers have another number of shards?",
    )


def _streams(topic: str, shards: int) -> list[str]:
    return [topic] if shards == 1 else [stream_key(topic, shard) for shard in range(shards)]


def _beside(connection: Connection, layout: Layout) -> list[str]:
    """Streams of the topic that another number of shards would have."""
    ours = set(_streams(layout.topic, layout.shards))
    names = [one for one in (layout.topic, *_streams(layout.topic, MOST_SHARDS)) if one not in ours]
    (count,) = connection.try_all((b"EXISTS", *names))
    if isinstance(count, ResponseError) or not count:  # whoever may not ask does without
        return []
    found = connection.try_all(*((b"TYPE", name) for name in names))
    return [name for name, kind in zip(names, found, strict=True) if kind == b"stream"]


def _unfinished(connection: Connection, streams: Sequence[str], group: bytes, location: str) -> list[str]:
    """Those of the streams with entries that are pending, or were never read."""
    replies = connection.try_all(*((b"XINFO", b"GROUPS", name) for name in streams))
    asks: list[tuple[bytes | str | int, ...]] = []
    left: list[str] = []
    asked: list[str] = []
    for name, groups in zip(streams, replies, strict=True):
        facts: dict[bytes, Any] = {} if isinstance(groups, ResponseError) else group_facts(groups, group)
        if facts and int(facts[b"pending"]):
            left.append(name)
            continue
        asked.append(name)
        asks.append((b"XRANGE", name, b"(" + facts.get(b"last-delivered-id", b"0-0"), b"+", b"COUNT", 1))
    for name, entries in zip(asked, connection.try_all(*asks) if asks else [], strict=True):
        if isinstance(entries, ResponseError):
            raise translated(entries, location) from entries
        if entries:
            left.append(name)
    return left


def _named(streams: Sequence[str]) -> str:
    names = ", ".join(streams[:_SHOWN])
    return names if len(streams) <= _SHOWN else f"{names} and {len(streams) - _SHOWN} more"
