"""What the server is, and what it promises: looked at when it is opened, and said plainly."""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct

from holdfast.errors import StoreError
from holdfast.stores.redis.call import Call
from holdfast.stores.redis.connection import Address, Connection
from holdfast.stores.redis.scripts import OPEN

SCHEMA: Final = 2
_OLDEST: Final = (6, 2)
_KINDS: Final = {
    "always": (True, "Every write is on the server's disk before it is acknowledged."),
    "everysec": (
        False,
        "A power cut of the server's machine may take what was acknowledged since the last sync of its log that was "
        "finished, often two seconds, and the death of its process what came while one was under way.",
    ),
    "no": (
        False,
        "What is acknowledged survives the death of the server's process; a power cut of its machine may take what its "
        "system had not written yet, often half a minute.",
    ),
}
_NOTHING_KEPT: Final = "Jobs are in the server's memory alone: they are gone when it stops, with a plain restart too."
_SNAPSHOTS: Final = (
    "Jobs are in the server's memory, with a snapshot now and then: the death of its process takes all since the last "
    "one, often minutes."
)
_UNKNOWN: Final = "The server writes a log of its changes, but does not tell how soon that is on its disk."
_UNAWAITED: Final = (
    "the server has replicas, and nothing waits for them: a failover may lose what was acknowledged just before; set "
    "?wait_replicas=1 in the URL to wait"
)
_SET_AOF: Final = "set appendonly yes on the server, and appendfsync always if nothing that is acknowledged may be lost"


class Server(Struct, frozen=True):
    """A server that may be used."""

    version: str
    is_durable: bool
    durability: str
    warnings: tuple[str, ...]


def look_at_server(connection: Connection, address: Address) -> Server:
    """What it is; StoreError, with what to set, where it must not be used."""
    location = address.location
    _check_schema(connection, location)  # first: in a cluster it finds the node that has our keys
    info = _read_info(connection)
    version = _version_of(info, location)
    warnings: list[str] = []
    _check_eviction(connection, info, location, warnings)
    is_durable, durability = _durability_of(connection, info, warnings)
    if info.get("connected_slaves", "0") != "0" and not address.wait_replicas:
        warnings.append(_UNAWAITED)
    return Server(version, is_durable, durability, tuple(warnings))


def _read_info(connection: Connection) -> dict[str, str]:
    text = connection.command("INFO").decode(errors="replace")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))


def _version_of(info: dict[str, str], location: str) -> str:
    valkey = info.get("valkey_version")
    number = valkey or info.get("redis_version", "0")
    found = tuple(int(part) for part in re.findall(r"\d+", number)[:2])
    if found < _OLDEST:
        raise StoreError(f"{location}: this is Redis {number}; it must be 6.2 or newer, or Valkey")
    return f"{'Valkey' if valkey else 'Redis'} {number}"


def _config_of(connection: Connection, name: str) -> str | None:
    """A setting; None where the server does not tell it, as many that are run by somebody else."""
    try:
        answer: list[Any] = connection.command("CONFIG", "GET", name)
    except StoreError:
        return None
    return bytes(answer[1]).decode() if len(answer) == 2 else None


def _check_eviction(connection: Connection, info: dict[str, str], location: str, warnings: list[str]) -> None:
    policy = info.get("maxmemory_policy") or _config_of(connection, "maxmemory-policy")
    limit = info.get("maxmemory") or _config_of(connection, "maxmemory")
    if policy is None:
        warnings.append("the server does not tell its maxmemory-policy; with any but noeviction, jobs may vanish")
    elif limit in {None, "0"}:
        if policy != "noeviction":
            warnings.append(f"maxmemory-policy is {policy}: set it to noeviction before maxmemory is ever set")
    elif policy != "noeviction":
        raise StoreError(
            f"{location}: its maxmemory-policy is {policy}, so jobs would vanish when its memory is full; "
            "set maxmemory-policy noeviction"
        )


def _durability_of(connection: Connection, info: dict[str, str], warnings: list[str]) -> tuple[bool, str]:
    if info.get("aof_enabled") != "1":
        has_snapshots = bool(_config_of(connection, "save"))
        warnings.append(f"the server keeps no log of its changes: {_SET_AOF}")
        return False, _SNAPSHOTS if has_snapshots else _NOTHING_KEPT
    sync = _config_of(connection, "appendfsync")
    if sync not in _KINDS:
        warnings.append("the server does not tell appendfsync: unless it is always, what is acknowledged may be lost")
        return False, _UNKNOWN
    if sync != "always":
        warnings.append(f"appendfsync is {sync}: set it to always if nothing that is acknowledged may be lost")
    return _KINDS[sync]


def _check_schema(connection: Connection, location: str) -> None:
    found = connection.run(Call(OPEN, (SCHEMA,), lambda reply: int(reply[0])))
    if found != SCHEMA:
        raise StoreError(
            f"{location}: it holds jobs of schema {found} and this program knows {SCHEMA}; "
            f"{'update Holdfast here' if found > SCHEMA else 'remove them, or use another prefix'}"
        )
