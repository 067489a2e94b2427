"""Small shared values with versions, and counts by the minute."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from holdfast.ports import Count, Value, ValueChange
from holdfast.stores.postgres.arrays import escaped, ints, plain, texts
from holdfast.stores.postgres.db import Cursor, Db
from holdfast.stores.postgres.queries import load

_SQL = load("values.sql")
_LETTERS = load("letters.sql")
COUNTS_KEPT_MINUTES: Final = 8 * 24 * 60
"""Older ones are pruned: a week, and a day to look at it."""
_SUMMED_AT_ONCE: Final = 1000


def send_changes(db: Db, changes: Sequence[ValueChange], store: str) -> list[Cursor]:
    """Compare and set, one after the other; a row in the answer says that it took effect.

    The last of a transaction: until its end nobody else can change a value.
    """
    db.run(_SQL["lock"], store=store)
    return [
        db.run(
            _SQL["change"],
            digest=sha256(change.key.encode()).digest(),
            key=escaped(change.key),
            expected=change.expected,
            data=change.data,
        )
        for change in changes
    ]


def send_newer(db: Db, seen: int) -> Cursor:
    """All values with a higher version, oldest first."""
    return db.run(_SQL["newer"], seen=seen)


def values_of(rows: list[Any]) -> list[Value]:
    """The rows of `send_newer` as values."""
    return [Value(plain(key), version, data) for key, version, data in rows]


def add_counts(db: Db, counts: Sequence[Count], counted: tuple[str, int] | None = None) -> None:
    """So many more of each, unless they were counted under this name before."""
    columns = {
        "minutes": ints([one.minute for one in counts]),
        "tasks": texts([one.task for one in counts]),
        "names": texts([one.name for one in counts]),
        "ns": ints([one.n for one in counts]),
    }
    if counted is None:
        db.run(_SQL["count"], **columns)
    else:
        worker, number = counted
        db.run(_SQL["count_once"], worker=escaped(worker), number=number, **columns)


def sum_up(db: Db) -> None:
    """Put single changes of tallies, of the last hour's counts, of the totals and of dead letters, together."""
    db.run(_SQL["sum_tallies"], limit=_SUMMED_AT_ONCE)
    db.run(_SQL["sum_counts"], limit=_SUMMED_AT_ONCE)
    sum_up_letters(db)


def sum_up_letters(db: Db) -> None:
    """The same of what is counted of dead letters."""
    db.run(_LETTERS["sum_causes"], limit=_SUMMED_AT_ONCE)
    db.run(_LETTERS["sum_hours"], limit=_SUMMED_AT_ONCE)
