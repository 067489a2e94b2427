"""PostgreSQL's errors in one line each, with what would help; the original stays as the cause."""

from __future__ import annotations

import re
from typing import Final

import psycopg

from holdfast.errors import StoreAway, StoreError

_SECRET: Final = re.compile(r"(password\s*[=:]\s*)\S+", re.IGNORECASE)
_AGAIN: Final = frozenset({"40P01", "40001", "55P03"})
"""Deadlock, serialization failure, a lock not had in time: the same again may work at once."""
_WORDS: Final[dict[str, str]] = {
    "53100": "the server's disk is full, nothing was written; free some space there and it goes on by itself",
    "53200": "the server is out of memory; give it more, or let it serve fewer connections",
    "53300": "the server has no connection left; raise its max_connections, or start fewer workers",
    "25006": "the server is read-only, as a standby is; give the address of the primary",
    "28P01": "the server does not accept the password; mend it in the URL, or in PGPASSWORD or ~/.pgpass",
    "28000": "the server does not let this user in; check the user in the URL and the server's pg_hba.conf",
    "3D000": "there is no such database on the server; create it, or give another name in the URL",
    "3F000": "there is no such schema in the database; create it, or give another",
    "42501": "the user may not do this in the database; grant it CREATE and USAGE on the schema, and its tables",
    "57P01": "the server was told to end the connection; it is opened anew by itself",
    "57P02": "the server has crashed and recovers; connections are opened anew by themselves",
    "57P03": "the server starts up, shuts down or recovers; it goes on by itself when it is ready",
    "57014": "a statement took longer than it may; look for a lock in pg_stat_activity, or a server under load",
    "55P03": "others hold a lock for too long; look for a long transaction in pg_stat_activity",
    "40P01": "transactions wait for each other again and again; send it again",
    "25P03": "a transaction was left open for too long, so the server ended it",
    "42P01": "Holdfast's tables are not there any more; restart to have them made again",
}
_AWAY: Final = frozenset({"53100", "53200", "53300", "25006", "57P01", "57P02", "57P03", "57014", "25P03", *_AGAIN})
"""The same call may work later without a change."""


class NoAnswer(psycopg.OperationalError):
    """The server has not answered in time: it is stalled, or the network swallows what is sent."""


def in_a_line(error: BaseException) -> str:
    """What an error says, in one line without a password."""
    return _SECRET.sub(r"\1…", " ".join(str(error).split()))[:300]


def is_broken(error: BaseException) -> bool:
    """Whether the connection is gone, so that the same may be sent again on another one."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    state = error.sqlstate
    return state is None or state.startswith("08") or state in {"57P01", "57P02", "57P03", "25P03"}


def is_worth_again(error: BaseException) -> bool:
    """Whether it came from others who were in the way just then."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _AGAIN


def translated(error: psycopg.Error, location: str) -> StoreError:
    """The error to raise instead, `from` the original."""
    state = error.sqlstate or ""
    detail = in_a_line(error)
    if isinstance(error, NoAnswer):
        return StoreAway(f"{location}: {detail}")
    if state in _WORDS:
        kind = StoreAway if state in _AWAY else StoreError
        return kind(f"{location}: {_WORDS[state]} ({detail})")
    if "28P01" in detail or "password authentication failed" in detail:
        return StoreError(f"{location}: {_WORDS['28P01']} ({detail})")
    if 'database "' in detail and "does not exist" in detail:
        return StoreError(f"{location}: {_WORDS['3D000']} ({detail})")
    if is_broken(error):
        return StoreAway(f"{location}: the server cannot be reached ({detail}); check that it runs, and the address")
    return StoreError(f"{location}: {type(error).__name__}: {detail}")
