"""Marks say in which blocks of jobs some of a lane, a tenant, a user or a project are; they may be gone by now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import apsw

from holdfast.stores.looking import BLOCK
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_rows

_SQL = load("letters.sql")
_SWEPT_AT_ONCE: Final = 2000
Mark = tuple[str, int]
FIRST: Final[Mark] = ("", -1)


def names_of(tenant: str, user: str, project: str) -> Iterator[str]:
    """Under which names the jobs of these owners are to be found."""
    if tenant:
        yield f"t{tenant}"
    if user:
        yield f"u{user}"
    if project:
        yield f"p{project}"


def blocks_of(first: int, last: int) -> range:
    """The blocks that these places, and all between them, are in."""
    return range(first // BLOCK, last // BLOCK + 1)


def add_marks(db: apsw.Connection, marks: Iterable[Mark]) -> None:
    """There is a job of each name in its block."""
    for mark in marks:
        db.execute(_SQL["add_mark"], mark)


def sweep_marks(db: apsw.Connection, after: Mark) -> Mark:
    """Forget some of the marks whose block has no jobs; say where to go on."""
    rows: Sequence[tuple[str, int, int]] = read_rows(db, _SQL["marks_after"], (*after, _SWEPT_AT_ONCE))
    empty = [(name, block) for name, block, has_jobs in rows if not has_jobs]
    if empty:
        db.executemany(_SQL["drop_mark"], empty)
    return FIRST if len(rows) < _SWEPT_AT_ONCE else (rows[-1][0], rows[-1][1])
