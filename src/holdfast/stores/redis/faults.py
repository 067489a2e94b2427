"""The errors of Redis in one line each, with what would help; the original stays as the cause."""

from __future__ import annotations

from typing import Final

from redis import exceptions

from holdfast.errors import StoreAway, StoreError

LOST: Final = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
"""The connection is of no more use, and whether the server has done what it was asked for is not known."""

_ELSEWHERE: Final = frozenset({"READONLY", "MASTERDOWN", "MOVED"})
_FOR_PEOPLE: Final = frozenset({"NOAUTH", "WRONGPASS", "NOPERM", "DBINDEX", "WRONGTYPE"})
"""Waiting helps against the others."""
_WORDS: Final = {
    "OOM": "its memory is full, nothing was written; raise maxmemory, or prune what is kept, and it goes on by itself",
    "READONLY": "this server is a replica, nothing was written; connect to the primary",
    "LOADING": "it is still reading its data from the disk; it will answer by itself",
    "BUSY": "it is busy with a script of somebody's; if that does not end, see SCRIPT KILL",
    "MISCONF": "it cannot save to its disk and refuses writes; make room there, or look into its log",
    "NOAUTH": "it wants a password; give one in the URL, as in redis://user:password@host",
    "WRONGPASS": "the user name or the password is wrong",
    "NOPERM": "this user may not do that; it needs scripts, and all commands on the keys and channels of the prefix",
    "CLUSTERDOWN": "the cluster has lost some of its nodes, nothing was written; it goes on when they are back",
    "MOVED": "the cluster is handing our keys from node to node; it goes on when that is done",
    "ASK": "the cluster is moving our keys to another node; it goes on when that is done",
    "MASTERDOWN": "this replica has lost its primary; connect to the primary",
    "DBINDEX": (
        "there is no database of this number; there are 16 where nothing else is set, /0 to /15, and "
        "in a cluster /0 alone: write /0, and keep products apart by ?prefix="
    ),
    "WRONGTYPE": "another program has keys under this prefix, nothing was written; give another one by ?prefix=",
    "NOREPLICAS": "too few replicas are connected, nothing was written; see min-replicas-to-write",
}

_TLS: Final = "that this port speaks TLS (redis:// is for one that does not), with a certificate that is known here"


def code_of(error: BaseException) -> str:
    """The word that a server's error begins with."""
    match error:
        case exceptions.OutOfMemoryError():
            return "OOM"
        case exceptions.ReadOnlyError():
            return "READONLY"
        case exceptions.BusyLoadingError():
            return "LOADING"
        case exceptions.AuthenticationError():
            return "NOAUTH" if "required" in str(error).lower() else "WRONGPASS"
        case exceptions.NoPermissionError():
            return "NOPERM"
        case exceptions.MovedError():
            return "MOVED"
        case exceptions.AskError():
            return "ASK"
        case exceptions.MasterDownError():
            return "MASTERDOWN"
        case exceptions.ClusterDownError():
            return "CLUSTERDOWN"
        case _:
            return _code_in(str(error))


def _code_in(text: str) -> str:
    if "DB index is out of range" in text or "SELECT is not allowed in cluster" in text:
        return "DBINDEX"
    word = text.partition(" ")[0]
    if word in _WORDS:
        return word
    inside = text.partition("-")[2].partition(" ")[0]  # "… @user_script: 1: -OOM command not allowed …"
    return inside if inside in _WORDS else ""


def is_for_another(error: BaseException) -> bool:
    """Whether another server may take it: after a failover the address is another's, and in a cluster a node's."""
    return code_of(error) in _ELSEWHERE


def translated(error: BaseException, location: str) -> StoreError:
    """The error to raise instead, `from` the original. What it says has no password in it."""
    code = code_of(error)
    if code:
        kind = StoreError if code in _FOR_PEOPLE else StoreAway
        return kind(f"{location}: {_WORDS[code]}")
    detail = " ".join(str(error).split())
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        help_ = f", and {_TLS}" if location.startswith("rediss:") else ""
        return StoreAway(f"{location}: no answer in time; check the server and the network{help_}")
    if isinstance(error, LOST):
        if "SSL" in detail or "certificate" in detail.lower():
            return StoreAway(f"{location}: no TLS connection ({detail}); check {_TLS}")
        return StoreAway(f"{location}: cannot be reached ({detail}); check that it runs, and its address")
    return StoreError(f"{location}: {type(error).__name__}: {detail}")
