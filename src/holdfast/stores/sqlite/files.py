"""Which files a database and its log are: under their names there may be others by now."""

from __future__ import annotations

import os

from msgspec import Struct

Identity = tuple[int, int]
"""Device and number: nobody else has them for as long as somebody has the file open."""


class Files(Struct, frozen=True):
    """A database and its log."""

    database: Identity
    log: Identity


def files_of(path: str) -> Files | None:
    """What is there now; None where one of the two is missing."""
    database, log = identity_of(path), identity_of(f"{path}-wal")
    return None if database is None or log is None else Files(database, log)


def identity_of(path: str) -> Identity | None:
    """What is there now; None where nothing is."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
