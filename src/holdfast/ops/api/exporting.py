"""Dead letters as a stream: lines of JSON, or a table that no spreadsheet takes for formulas."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from holdfast.ops.api.hiding import hidden
from holdfast.ops.redact import redacted_text
from holdfast.ports import Query, Store
from holdfast.runtime.export import BATCH, FORMAT
from holdfast.types import JobRecord, JobState

COLUMNS: Final = (
    "id task queue tenant user project state created_at ended_at attempt replays reason failure_type severity "
    "error_name message fingerprint first_failed_at last_failed_at arguments"
).split()
"""Of the table."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


async def lines_of(store: Store, query: Query) -> AsyncIterator[bytes]:
    """Each letter with every attempt as a line of JSON, as `holdfast dlq export` has it but without secrets."""
    async for records in _pages(store, query, with_attempts=True):
        yield b"".join(msgspec.json.encode(_line(record)) + b"\n" for record in records)


async def csv_of(store: Store, query: Query) -> AsyncIterator[bytes]:
    """The letters as a table, with a header."""
    yield _rows([COLUMNS])
    async for records in _pages(store, query, with_attempts=False):
        yield _rows([_cells(record) for record in records])


async def _pages(store: Store, query: Query, *, with_attempts: bool) -> AsyncIterator[list[JobRecord]]:
    query = replace(query, states=(JobState.DEAD_LETTER,), limit=BATCH, cursor="")
    while True:
        page = await store.find(query)
        found = list(page.items)
        if with_attempts and found:
            whole = await store.get([record.id for record in found])
            found = [one for one in whole if one is not None and one.state is JobState.DEAD_LETTER]
        if found:
            yield found
        if not page.cursor:
            return
        query = replace(query, cursor=page.cursor)


def _line(record: JobRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {"holdfast": FORMAT} | asdict(record)
    for name in ("payload", "original_payload", "result"):
        fields[name] = hidden(fields[name]).value
    for name in ("reason", "message"):
        fields[name] = redacted_text(fields[name])
    fields["attempts"] = [
        replace(one, message=redacted_text(one.message), traceback=redacted_text(one.traceback))
        for one in record.attempts
    ]
    return fields


def _cells(record: JobRecord) -> list[str]:
    fields = asdict(record) | {
        "arguments": msgspec.json.encode(hidden(record.payload).value).decode(),
        "reason": redacted_text(record.reason),
        "message": redacted_text(record.message),
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
