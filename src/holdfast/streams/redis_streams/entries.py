"""Messages as the entries of a stream, and back.

The value is the field `value` (or another that is named), the key `key`, and a header `header.<name>`, each with its
bytes as they are, so that anybody can write them with XADD. A None is an empty field with `null.` before its name.
An entry without a value is somebody else's: its value is then all its fields, as a JSON object.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

from msgspec import json

from holdfast.types import Header, Message, Outgoing

_KEY: Final = b"key"
_HEADER: Final = b"header."
_NULL: Final = b"null."
_NULL_HEADER: Final = _NULL + _HEADER
_NO_HEADERS: Final[tuple[Header, ...]] = ()
_SHIFT: Final = 64


class Batch:
    """Messages of one stream, with the ids of their entries by offset."""

    __slots__ = ("messages", "ids")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.ids: dict[int, bytes] = {}


def read_entries(topic: str, partition: int, entries: Sequence[Any], field: bytes, batch: Batch) -> None:
    """Add entries as the server sends them: an id, and fields and values by turns. This is the hot loop."""
    add, ids = batch.messages.append, batch.ids
    last, base, written_at = b"", 0, 0.0
    for id, fields in entries:  # noqa: A001
        first, _, second = id.partition(b"-")
        if first != last:
            last, ms = first, int(first)
            base, written_at = ms << _SHIFT, ms / 1000
        offset = base | int(second)
        ids[offset] = id
        if fields[0] == field:
            n = len(fields)
            if n == 2:
                add(Message(topic, partition, offset, None, fields[1], _NO_HEADERS, written_at))
                continue
            if n == 4 and fields[2] == _KEY:
                add(Message(topic, partition, offset, fields[3], fields[1], _NO_HEADERS, written_at))
                continue
        add(Message(topic, partition, offset, *_parts_of(fields, field), written_at))


def read_rows(topic: str, partition: int, rows: Sequence[Any], field: bytes, batch: Batch) -> None:
    """Add entries that were taken from others: id, fields (None: gone), counted attempts and deaths (None: none)."""
    for id, fields, retries, deaths in rows:  # noqa: A001
        offset = offset_of(id)
        parts = _parts_of(fields, field) if fields is not None else (None, None, _NO_HEADERS)
        written_at = (offset >> _SHIFT) / 1000
        batch.ids[offset] = id
        batch.messages.append(
            Message(
                *(topic, partition, offset, *parts, written_at, int(retries or 0)),
                is_gone=fields is None,
                deaths=int(deaths or 0),
            )
        )


def _parts_of(fields: Sequence[bytes], field: bytes) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
    key: bytes | None = None
    value: bytes | None = None
    has_value = False
    headers: list[Header] = []
    for name, data in zip(fields[::2], fields[1::2], strict=True):
        if name == field:
            value, has_value = data, True
        elif name == _KEY:
            key = data
        elif name.startswith(_HEADER):
            headers.append((_text(name[len(_HEADER) :]), data))
        elif name.startswith(_NULL_HEADER):
            headers.append((_text(name[len(_NULL_HEADER) :]), None))
        elif name == _NULL + field:
            has_value = True
    if not has_value:
        value = json.encode({_text(name): _text(data) for name, data in zip(fields[::2], fields[1::2], strict=True)})
    return key, value, tuple(headers)


def _text(data: bytes) -> str:
    """For JSON, and for names: what is no UTF-8 shows as an escape."""
    return data.decode(errors="backslashreplace")


def words_of(message: Outgoing, field: bytes) -> list[bytes]:
    """The fields and values of a message, by turns; the value first, where it is found soonest."""
    words = [_NULL + field, b""] if message.value is None else [field, message.value]
    if message.key is not None:
        words += (_KEY, message.key)
    for name, value in message.headers:
        words += (_NULL_HEADER + name.encode(), b"") if value is None else (_HEADER + name.encode(), value)
    return words


def offset_of(id: bytes) -> int:  # noqa: A002
    """The offset of an entry's id, as the server writes it."""
    first, _, second = id.partition(b"-")
    return int(first) << _SHIFT | int(second or 0)


def shard_of(key: bytes, shards: int) -> int:
    """The shard of a key: its CRC-32, as zlib has it, modulo the number of shards."""
    return zlib.crc32(key) % shards
