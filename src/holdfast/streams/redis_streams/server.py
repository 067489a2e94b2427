"""What the server is, looked at when a source is opened; and the groups of its streams."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from redis.exceptions import ResponseError

from holdfast.errors import SourceError
from holdfast.streams.redis_streams.connection import Connection
from holdfast.streams.redis_streams.faults import CROSSSLOT, translated
from holdfast.streams.redis_streams.layout import Stream

_OLDEST: Final = (6, 2)
_TAG: Final = re.compile(r"\{[^}]+\}")
"""What a cluster looks at, in the name of a key, to choose its node."""
_NO_LOG: Final = (
    "the server keeps no log of its changes, so messages and what is finished may be gone when it stops: "
    "set appendonly yes"
)


def look_at_server(connection: Connection, location: str, stream: str) -> tuple[str, ...]:
    """What people should know; SourceError where it is too old, or a cluster would tear our keys apart."""
    (reply,) = connection.ask((b"INFO",))
    lines = reply.decode(errors="replace").splitlines()
    info = dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
    number = info.get("valkey_version") or info.get("redis_version", "0")
    if tuple(int(part) for part in re.findall(r"\d+", number)[:2]) < _OLDEST:
        raise SourceError(f"{location}: this is Redis {number}; it must be 6.2 or newer, or Valkey")
    if info.get("cluster_enabled") == "1" and not _TAG.search(stream):
        raise SourceError(f"{location}: {CROSSSLOT}")
    warnings = [] if info.get("aof_enabled") == "1" else [_NO_LOG]
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        warnings.append(
            f"maxmemory-policy is {policy}: when memory is full, streams or the signs of life of consumers may vanish; "
            "set noeviction"
        )
    return tuple(warnings)


def make_groups(
    connection: Connection, streams: Sequence[Stream], group: bytes, location: str, *, latest: bool
) -> list[Stream]:
    """Make the groups that are missing, and streams with them; which were missing.

    A group of our own topics always begins with the earliest message: nothing there is for anybody else.
    """
    commands = [
        (b"XGROUP", b"CREATE", one.key, group, b"$" if latest and not one.deletes else b"0", b"MKSTREAM")
        for one in streams
    ]
    made: list[Stream] = []
    for stream, reply in zip(streams, connection.try_all(*commands), strict=True):
        if not isinstance(reply, ResponseError):
            made.append(stream)
        elif "BUSYGROUP" not in str(reply):
            raise translated(reply, location) from reply
    return made
