"""Dead letters as a stream: lines of JSON, or a table that no spreadsheet takes for formulas."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from holdfast.ops.api.hiding import hidden
from holdfast.ops.api.searching import every
from holdfast.ops.redact import origin_shown, redacted_text
from holdfast.ports import Query, Store
from holdfast.runtime.export import FORMAT
from holdfast.types import JobRecord, JobState

COLUMNS: Final = (
    "id task queue tenant user project state created_at ended_at attempt replays reason failure_type severity "
    "error_name message fingerprint first_failed_at last_failed_at arguments origin"
).split()
"""Of the table."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


async def lines_of(store: Store, query: Query) -> AsyncIterator[bytes]:
    """Each letter with every attempt as a line of JSON, as `holdfast dlq export` has it but without secrets.

    `redacted` has JSON pointers to what was left out; a line without some of its arguments cannot be imported.
    """
    async for records in _pages(store, query, with_attempts=True):
        yield b"".join(msgspec.json.encode(_line(record)) + b"\n" for record in records)


async def csv_of(store: Store, query: Query) -> AsyncIterator[bytes]:
    """The letters as a table, with a header."""
    yield _rows([COLUMNS])
    async for records in _pages(store, query, with_attempts=False):
        yield _rows([_cells(record) for record in records])


async def _pages(store: Store, query: Query, *, with_attempts: bool) -> AsyncIterator[list[JobRecord]]:
    async for found in every(store, replace(query, states=(JobState.DEAD_LETTER,))):
        records = list(found)
        if with_attempts:
            whole = await store.get([record.id for record in found])
            records = [one for one in whole if one is not None and one.state is JobState.DEAD_LETTER]
        if records:
            yield records


def _line(record: JobRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {"holdfast": FORMAT} | asdict(record)
    del fields["notes"]
    left_out: list[str] = []
    for name in ("payload", "original_payload", "result"):
        shown = hidden(fields[name])
        fields[name] = shown.value
        left_out += [f"/{name}{pointer}" for pointer in shown.pointers]
    fields["redacted"] = left_out
    fields["origin"] = origin_shown(record)
    for name in ("reason", "message", "user", "project"):
        fields[name] = redacted_text(fields[name])
    if record.idempotency_key is not None:
        fields["idempotency_key"] = redacted_text(record.idempotency_key)
    fields["attempts"] = [
        replace(one, message=redacted_text(one.message), traceback=redacted_text(one.traceback))
        for one in record.attempts
    ]
    return fields


def _cells(record: JobRecord) -> list[str]:
    fields = asdict(record) | {
        "arguments": msgspec.json.encode(hidden(record.payload).value).decode(),
        "origin": msgspec.json.encode(origin_shown(record)).decode(),
        **{name: redacted_text(getattr(record, name)) for name in ("reason", "message", "user", "project")},
    }
    return [_cell(fields[name]) for name in COLUMNS]


def _cell(value: Any) -> str:
    """Text that a spreadsheet takes for text: what would begin a formula gets an apostrophe in front."""
    text = "" if value is None else str(value)
    is_number = isinstance(value, int | float)
    return f"'{text}" if not is_number and text.startswith(_FORMULA) else text


def _rows(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")
