"""Searches through what is shown, never through what is stored: a hit, or none, must not tell of a hidden value.

The store is asked without the text, so that neither a page nor its cursor depends on what is hidden; what comes is
matched as it would be shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.ops.api.hiding import hidden
from holdfast.ops.redact import redacted_text
from holdfast.ports import Page, Query, Store
from holdfast.types import Group, JobRecord

AT_ONCE: Final = 500
"""So many jobs are asked for in one go, whatever the caller's limit."""
LOOKED_AT: Final = 2_000
"""So many jobs are looked at for one page."""
_MOST_BYTES: Final = 8 * 1024 * 1024
_LONGEST_PAYLOAD: Final = 65_536


async def search(store: Store, query: Query) -> Page:
    """A page of the jobs that show the query's text, newest first; it may be short, or empty, and have a cursor.

    Up to 2,000 jobs are looked at, or 8 MB of them. Arguments of more than 64 kB are not searched.
    """
    if not query.text:
        return await store.find(query)
    found: list[JobRecord] = []
    looked_at = size = 0
    asked = replace(query, text="")
    while True:
        limit = AT_ONCE
        while True:
            page = await store.find(replace(asked, limit=limit))
            hits, looked, read = await asyncio.to_thread(
                _look, page.items, query.text, query.limit - len(found), _MOST_BYTES - size
            )
            if looked == len(page.items):
                break
            limit = looked  # only the store can say which cursor leads on from there
        found += hits
        looked_at += AT_ONCE
        size += read
        if not page.cursor or len(found) >= query.limit or size >= _MOST_BYTES or looked_at >= LOOKED_AT:
            return Page(found, cursor=page.cursor)
        asked = replace(asked, cursor=page.cursor)


async def every(store: Store, query: Query) -> AsyncIterator[Sequence[JobRecord]]:
    """All the jobs that show the query's text, newest first, some at a time."""
    asked = replace(query, text="", limit=AT_ONCE, cursor="")
    while True:
        page = await store.find(asked)
        found = list(page.items)
        if found and query.text:
            found = await asyncio.to_thread(_hits, found, query.text)
        if found:
            yield found
        if not page.cursor:
            return
        asked = replace(asked, cursor=page.cursor)


def groups_with(groups: Iterable[Group], text: str) -> list[Group]:
    """The groups whose cause shows a text: the error's name, its message, a task, the fingerprint."""
    part = _folded(text)
    return [
        group
        for group in groups
        if _is_in(part, (group.fingerprint, group.error_name, redacted_text(group.message), *group.tasks))
    ]


def shows(record: JobRecord, text: str) -> bool:
    """Whether a job, as it is shown, has this text in its ids, names, error, reason, arguments or key."""
    part = _folded(text)
    texts = (
        record.id,
        record.task,
        record.error_name,
        redacted_text(record.message),
        redacted_text(record.reason),
        redacted_text(record.idempotency_key or ""),
    )
    if _is_in(part, texts):
        return True
    if len(record.payload) > _LONGEST_PAYLOAD:
        return False
    return part in msgspec.json.encode(hidden(record.payload).value).lower()


def _look(records: Sequence[JobRecord], text: str, most: int, most_bytes: int) -> tuple[list[JobRecord], int, int]:
    """The hits, up to so many; how many jobs were looked at for them, and how many bytes of them."""
    hits: list[JobRecord] = []
    size = 0
    for i, record in enumerate(records):
        size += len(record.payload)
        if shows(record, text):
            hits.append(record)
        if len(hits) >= most or size >= most_bytes:
            return hits, i + 1, size
    return hits, len(records), size


def _hits(records: Iterable[JobRecord], text: str) -> list[JobRecord]:
    return [record for record in records if shows(record, text)]


def _is_in(part: bytes, texts: Iterable[str]) -> bool:
    return any(part in _folded(text) for text in texts)


def _folded(text: str) -> bytes:
    """Bytes, where `lower` is for a-z alone, as in the stores."""
    return text.encode("utf-8", "surrogatepass").lower()
