"""The lanes in the file: read, added, and dropped when they are empty."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import apsw
from msgspec import json

from holdfast.clock import new_secret
from holdfast.stores.lanes import LaneKey, LaneRow, gates_text
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_row, read_rows, read_value

_SQL = load("lanes.sql")
_SWEPT_AT_ONCE: Final = 2000
_decode_numbers = json.Decoder(list[int]).decode


class LaneReads:
    """Lanes, read by a connection."""

    __slots__ = ("_db",)

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def epoch(self) -> str:
        """Changes whenever lanes were dropped."""
        epoch: str = read_value(self._db, _SQL["epoch"])
        return epoch

    def state(self) -> tuple[int, str]:
        """The highest number, and the epoch."""
        newest, epoch = read_row(self._db, _SQL["state"])
        return newest, epoch

    def newer(self, after: int, limit: int) -> Sequence[LaneRow]:
        """The lanes above a number, lowest first."""
        return read_rows(self._db, _SQL["newer"], (after, limit))

    def these(self, numbers: Sequence[int]) -> Sequence[LaneRow]:
        """The lanes with these numbers."""
        return read_rows(self._db, _SQL["these"], (apsw.carray(array("q", numbers)),))

    def with_jobs(self, after: int, limit: int) -> list[int]:
        """The numbers above one of lanes that have a ready job, lowest first."""
        return _decode_numbers(read_value(self._db, _SQL["with_jobs"], (after, limit)))


def add_lane(db: apsw.Connection, key: LaneKey) -> int:
    """The number of the lane for these jobs; makes it where there is none. It may be rolled back."""
    queue, task, gates = key
    names = (queue, task, gates_text(gates))
    found = read_rows(db, _SQL["find"], names)
    if not found:
        db.execute(_SQL["add"], names)
        return db.last_insert_rowid()
    number: int = found[0][0]
    return number


def drop_empty_lanes(db: apsw.Connection, after: int) -> tuple[bool, int]:
    """Drop those without jobs among the next lanes; say whether there were any, and after which one to go on.

    Called inside of a transaction whose tallies are written.
    """
    last, n = read_row(db, _SQL["sweep_to"], (after, _SWEPT_AT_ONCE))
    if not n:
        return False, 0
    db.execute(_SQL["drop_tallies"], (after, last))
    db.execute(_SQL["drop"], (after, last))
    is_dropped = db.changes() > 0
    if is_dropped:
        db.execute(_SQL["begin_epoch"], (new_secret().hex(),))
    return is_dropped, last if n == _SWEPT_AT_ONCE else 0
