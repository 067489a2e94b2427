"""Reads the Lua scripts out of the files beside this module; some are put together of several."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from msgspec import Struct

FOLDER: Final = Path(__file__).parent / "lua"


class Script(Struct, frozen=True):
    """A script, and the name by which the server knows it once it has seen it."""

    name: str
    text: bytes
    sha: bytes
    is_write: bool
    """Whether replicas are to have what it did, where that is waited for."""


def _script(*files: str, is_write: bool = True) -> Script:
    """The last file, which says what to do, after the head of all and those with the functions that it needs."""
    text = b"\n".join((FOLDER / f"{file}.lua").read_bytes() for file in ("head", *files))
    return Script(files[-1], text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode(), is_write)


OPEN: Final = _script("jobs", "open", is_write=False)
ENQUEUE: Final = _script("marks", "enqueue_one", "jobs", "keys", "new_jobs", "enqueue")
ENQUEUE_ENDED: Final = _script(
    "marks", "enqueue_one", "jobs", "keys", "new_jobs", "claims", "letters", "leaving", "ends", "enqueue_ended"
)
EXCHANGE: Final = _script("jobs", "keys", "claims", "letters", "settle", "values", "claim", "exchange")
BEAT: Final = _script("jobs", "claims", "beat", is_write=False)
RECLAIM: Final = _script("jobs", "claims", "reclaim")
NOTE: Final = _script("jobs", "note")
CHANGE: Final = _script("jobs", "keys", "claims", "letters", "remove", "leaving", "change")
PRUNE: Final = _script("jobs", "keys", "letters", "remove", "marks", "prune")
GET: Final = _script("jobs", "records", "get", is_write=False)
FIND: Final = _script("jobs", "keys", "records", "find", is_write=False)
FACTS: Final = _script("jobs", "facts", is_write=False)
PLACES: Final = _script("jobs", "claims", "marks", "places", is_write=False)
CAUSES: Final = _script("causes", is_write=False)
GROUPS: Final = _script("jobs", "keys", "letters", "groups", is_write=False)
CLOCK: Final = _script("clock", is_write=False)
STATS: Final = _script("jobs", "stats", is_write=False)
