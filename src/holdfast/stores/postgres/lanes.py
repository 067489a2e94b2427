"""The lanes in the database: read, added, and dropped when they are empty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final

import psycopg

from holdfast.clock import new_secret
from holdfast.stores.lanes import LaneKey, LaneRow, Lanes, gates_text
from holdfast.stores.postgres.arrays import blobs, ints, plain, texts
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.queries import load

_SQL = load("lanes.sql")
_SWEPT_AT_ONCE: Final = 2000
_FEW: Final = 100
"""So many empty lanes harm nobody, and dropping stops those who enqueue for a moment."""


class LaneReads:
    """Lanes, read by a connection."""

    __slots__ = ("_db",)

    def __init__(self, db: Db) -> None:
        self._db = db

    def state(self) -> tuple[int, str]:
        """The highest number, and the epoch."""
        newest, epoch = self._db.row(_SQL["state"])
        return newest, epoch

    def newer(self, after: int, limit: int) -> Sequence[LaneRow]:
        """The lanes above a number, lowest first."""
        return [_plain(row) for row in self._db.rows(_SQL["newer"], after=after, limit=limit)]

    def these(self, numbers: Sequence[int]) -> Sequence[LaneRow]:
        """The lanes with these numbers."""
        return [_plain(row) for row in self._db.rows(_SQL["these"], numbers=ints(numbers))]

    def with_jobs(self, after: int, limit: int) -> list[int]:
        """The numbers above one of lanes that have a ready job, lowest first."""
        return [lane for (lane,) in self._db.rows(_SQL["with_jobs"], after=after, limit=limit)]


def lanes_for(
    db: Db, lanes: Lanes, keys: Iterable[LaneKey], store: str, *, is_checked: bool = False
) -> dict[LaneKey, int]:
    """The numbers of the lanes for these jobs; makes those that are not there, and commits them.

    What is known is not looked at again, unless it is to be checked.
    """
    numbers: dict[LaneKey, int] = {}
    missing: list[LaneKey] = []
    for key in set(keys):
        number = None if is_checked else lanes.get(key)
        if number is None:
            missing.append(key)
        else:
            numbers[key] = number
    if missing:
        numbers |= _find_or_add(db, missing, store)
        for key in missing:
            lanes.remember(key, numbers[key])
    return numbers


def _find_or_add(db: Db, keys: list[LaneKey], store: str) -> dict[LaneKey, int]:
    digests = {key: _digest(key) for key in keys}
    named = {digest: key for key, digest in digests.items()}  # gates in another order make the same lane
    find = {"digests": blobs(list(named))}
    found = dict(db.rows(_SQL["find"], **find))
    if len(found) < len(named):
        new = [(key, digest) for digest, key in named.items() if digest not in found]
        values = {
            "queues": texts(queue for (queue, _, _), _ in new),
            "tasks": texts(task for (_, task, _), _ in new),
            "gates": texts(gates_text(gates) for (_, _, gates), _ in new),
            "digests": blobs([digest for _, digest in new]),
        }
        with db.together():
            db.run(_SQL["lock"], store=store)
            db.run(_SQL["add"], **values)
            rows = db.run(_SQL["find"], **find)  # before the commit: after it they may be dropped again
        found = dict(rows.fetchall())
    return {key: found[digest] for key, digest in digests.items()}


def _digest(key: LaneKey) -> bytes:
    queue, task, gates = key
    name = f"{len(queue)}:{queue}{len(task)}:{task}{gates_text(gates)}"
    return sha256(name.encode()).digest()


def _plain(row: LaneRow) -> LaneRow:
    number, queue, task, gates = row
    return number, plain(queue), plain(task), plain(gates)


def drop_empty_lanes(db: Db, after: int) -> int:
    """Drop those without jobs among the next lanes, if they are many; say after which one to go on."""
    last, n = db.row(_SQL["sweep_to"], after=after, limit=_SWEPT_AT_ONCE)
    empty = {lane for (lane,) in db.rows(_SQL["empty"], after=after, last=last)}
    if len(empty) >= _FEW:
        with suppress(psycopg.errors.LockNotAvailable), db.transaction():  # somebody enqueues: the next sweep will do
            db.run("SET LOCAL lock_timeout = '50ms'")
            db.run(_SQL["stop_enqueuers"])
            db.run(_SQL["drop"], lanes=ints(sorted(empty)))
            db.run(_SQL["begin_epoch"], epoch=new_secret().hex())
    return last if n == _SWEPT_AT_ONCE else 0
