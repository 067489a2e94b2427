"""Small shared values with versions, and counts by the minute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import json

from holdfast.ports import Count, Value, ValueChange
from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_value

_SQL = load("values.sql")
_decode = json.Decoder(list[tuple[str, int, str | None]]).decode
COUNTS_KEPT_MINUTES: Final = 8 * 24 * 60
"""Older ones are pruned: a week, and a day to look at it."""


def change_values(batch: Batch, changes: Sequence[ValueChange], now: float) -> list[bool]:
    """Compare and set, one after the other."""
    answers = []
    for change in changes:
        values = {"key": change.key, "expected": change.expected, "data": change.data, "now": now}
        batch.db.execute(_SQL["change"], values)
        answers.append(batch.db.changes() > 0)
    batch.has_news = batch.has_news or any(answers)
    return answers


def newest_version(batch: Batch) -> int:
    """Of all values."""
    version: int = read_value(batch.db, _SQL["newest"])
    return version


def values_above(batch: Batch, version: int) -> list[Value]:
    """All values with a higher version, oldest first."""
    text = read_value(batch.db, _SQL["newer"], (version,))
    if text == "[]":
        return []
    return [Value(key, number, None if data is None else bytes.fromhex(data)) for key, number, data in _decode(text)]


def add_counts(batch: Batch, counts: Sequence[Count], counted: tuple[str, int] | None = None) -> None:
    """So many more of each, unless they were counted under this name before."""
    if counted is not None:
        batch.db.execute(_SQL["is_new"], counted)
        if not batch.db.changes():
            return
    rows = [(count.minute, count.task, count.name, count.n) for count in counts]
    batch.db.execute(_SQL["count"], (json.encode(rows).decode(),))
