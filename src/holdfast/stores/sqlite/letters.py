"""Dead letters, counted by cause as they come and go, in the transaction that makes them so."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

import apsw
from msgspec import json

from holdfast.stores.causes import first_hour, hour_of
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_rows, text_list

_SQL = load("letters.sql")


def add_letters(db: apsw.Connection, ids: Sequence[str]) -> None:
    """These jobs were given up just now."""
    question = {"ids": text_list(ids)}
    db.execute(_SQL["count_causes"], question)
    added = read_rows(db, _SQL["add"], question)
    db.execute(_SQL["count_hours"], (_hours_of(added),))


def forget_letters(db: apsw.Connection, seqs: Sequence[int]) -> None:
    """These jobs are dead letters no more; those that were none do not matter."""
    if not seqs:
        return
    gone = read_rows(db, _SQL["forget"], (apsw.carray(array("q", seqs)),))
    if not gone:
        return
    hours, causes = _hours_of(gone), _encoded(list(Counter(cause for cause, _ in gone).items()))
    db.execute(_SQL["uncount_hours"], (hours,))
    db.execute(_SQL["drop_hours"], (hours,))
    db.execute(_SQL["uncount_causes"], (causes,))
    db.execute(_SQL["drop_causes"], (causes,))


def forget_hours(db: apsw.Connection, now: float) -> None:
    """Forget the hours that nobody is told of any more."""
    db.execute(_SQL["drop_old_hours"], (first_hour(now),))


def _hours_of(rows: Sequence[tuple[int, float]]) -> str:
    """By hour and cause, how many there are in these rows."""
    counts = Counter((hour_of(ended_at), cause) for cause, ended_at in rows)
    return _encoded([(hour, cause, n) for (hour, cause), n in counts.items()])


def _encoded(rows: Sequence[tuple[Any, ...]]) -> str:
    return json.encode(rows).decode()
