"""The errors of Redis in one line each, with what would help; the original stays as the cause."""

from __future__ import annotations

from typing import Final

from redis import exceptions

from holdfast.errors import SourceAway, SourceError

LOST: Final = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
"""The connection is of no more use, and whether the server has done what it was asked for is not known."""

_CLASSES: Final = (
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
)
"""redis-py takes the first word off the errors that it has a class for."""
CROSSSLOT: Final = (
    "a cluster keeps all keys of a stream together only where its name is in braces: write redis://host/{orders}"
)
_ELSEWHERE: Final = frozenset({"READONLY", "MASTERDOWN", "MOVED"})
_FOR_PEOPLE: Final = frozenset({"NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "CROSSSLOT", "DBINDEX"})
"""Waiting helps against the others."""
_WORDS: Final = {
    "OOM": "its memory is full; raise maxmemory, or trim the stream, and it goes on by itself",
    "READONLY": "this server is a replica, nothing was written; connect to the primary",
    "LOADING": "it is still reading its data from the disk; it will answer by itself",
    "BUSY": "it is busy with a script of somebody's; if that does not end, see SCRIPT KILL",
    "MISCONF": "it cannot save to its disk and refuses writes; make room there, or look into its log",
    "NOAUTH": "it wants a password; give one in the URL, as in redis://user:password@host/stream",
    "WRONGPASS": "the user name or the password is wrong",
    "NOPERM": "this user may not do that; it needs scripts, and all commands on keys that begin with the stream's name",
    "CLUSTERDOWN": "the cluster has lost some of its nodes; it goes on when they are back",
    "MOVED": "the cluster is handing our keys from node to node; it goes on when that is done",
    "ASK": "the cluster is moving our keys to another node; it goes on when that is done",
    "MASTERDOWN": "this replica has lost its primary; connect to the primary",
    "NOREPLICAS": "too few replicas are connected, nothing was written; see min-replicas-to-write",
    "WRONGTYPE": "a key of this name is there already and is no stream; choose another name, or remove it",
    "CROSSSLOT": CROSSSLOT,
    "DBINDEX": "there is no database of this number; there are 16 where nothing else is set, and in a cluster 0 alone",
}
_GONE: Final = ("NOGROUP", "UNBLOCKED")
"""The stream or its group is not there any more: the second is said to those who wait for it."""


_HOPELESS_CODES: Final = frozenset({"WRONGTYPE", "CROSSSLOT"})
_HOPELESS: Final = (
    "cannot write a message",
    "too large to be stored",
    "invalid bulk length",
    "invalid multibulk length",
)


class AnswerLost(SourceAway):
    """The connection broke before the answer: whether the server has done what it was asked for is not known."""


class NoGroup(SourceAway):
    """The consumer group is gone, perhaps with its stream; it can be made again."""


def code_of(error: BaseException) -> str:
    """The word that a server's error begins with; empty where it is none that we know."""
    if isinstance(error, exceptions.AuthenticationError):
        return "NOAUTH" if "required" in str(error).lower() else "WRONGPASS"
    for kind, code in _CLASSES:
        if isinstance(error, kind):
            return code
    text = str(error)
    if "DB index is out of range" in text or "SELECT is not allowed in cluster" in text:
        return "DBINDEX"
    if "do not hash to the same slot" in text or "non local key" in text:
        return "CROSSSLOT"
    word = text.partition(" ")[0]
    if word in _WORDS:
        return word
    inside = text.partition("-")[2].partition(" ")[0]  # "… @user_script: 1: -OOM command not allowed …"
    return inside if inside in _WORDS else ""


def is_for_another(error: BaseException) -> bool:
    """Whether another server may take it: after a failover the address is another's, and in a cluster a node's."""
    return code_of(error) in _ELSEWHERE


def is_hopeless(error: BaseException | None) -> bool:
    """Whether a message that was answered so will never be taken, whatever people do about rights and settings."""
    if not isinstance(error, exceptions.ResponseError):
        return False
    return code_of(error) in _HOPELESS_CODES or any(words in str(error) for words in _HOPELESS)


def translated(error: BaseException, location: str) -> SourceError:
    """The error to raise instead, `from` the original. What it says has no password in it."""
    detail = " ".join(str(error).split())
    if isinstance(error, exceptions.ResponseError) and any(word in detail for word in _GONE):
        return NoGroup(f"{location}: the consumer group is gone; it is made again")
    if code := code_of(error):
        kind = SourceError if code in _FOR_PEOPLE else SourceAway
        return kind(f"{location}: {_WORDS[code]}")
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        return SourceAway(f"{location}: no answer in time; check the server and the network")
    if isinstance(error, LOST):
        return SourceAway(f"{location}: cannot be reached ({detail}); check that it runs, and its address")
    return SourceError(f"{location}: {type(error).__name__}: {detail}")
