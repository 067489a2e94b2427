"""Arrays and texts as the server takes them: psycopg's own lists cost ten times as much, and change their types."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

_NULL: Final = b"\xff\xff\xff\xff"
_ESCAPE: Final = "\x01"


class Array(bytes):
    """A one-dimensional array in the server's binary format."""

    __slots__ = ()


class Bools(Array):
    """For boolean[]."""

    __slots__ = ()


class Ints(Array):
    """For bigint[]."""

    __slots__ = ()


class Floats(Array):
    """For float8[]."""

    __slots__ = ()


class Texts(Array):
    """For text[]."""

    __slots__ = ()


class Blobs(Array):
    """For bytea[]."""

    __slots__ = ()


class _BoolsDumper(Dumper):
    format = Format.BINARY
    oid = 1000

    def dump(self, obj: Array) -> bytes:
        return obj


class _IntsDumper(_BoolsDumper):
    oid = 1016


class _FloatsDumper(_BoolsDumper):
    oid = 1022


class _TextsDumper(_BoolsDumper):
    oid = 1009


class _BlobsDumper(_BoolsDumper):
    oid = 1001


class _IntDumper(Dumper):
    """Every number as bigint: by default its type follows from its size, and each type is another statement."""

    format = Format.BINARY
    oid = 20

    def dump(self, obj: int) -> bytes:
        return obj.to_bytes(8, "big", signed=True)


def register(adapters: AdaptersMap, *, is_own: bool = False) -> None:
    """Teach a connection these types; our own ones also to send every int as bigint and every str as text."""
    adapters.register_dumper(Bools, _BoolsDumper)
    adapters.register_dumper(Ints, _IntsDumper)
    adapters.register_dumper(Floats, _FloatsDumper)
    adapters.register_dumper(Texts, _TextsDumper)
    adapters.register_dumper(Blobs, _BlobsDumper)
    if is_own:
        adapters.register_dumper(int, _IntDumper)


def bools(items: Sequence[bool]) -> Bools:
    """A boolean[]."""
    body = b"".join([b"\x00\x00\x00\x01\x01" if item else b"\x00\x00\x00\x01\x00" for item in items])
    return Bools(_head(16, len(items)) + body)


def ints(items: Sequence[int | None]) -> Ints:
    """A bigint[]."""
    return Ints(_head(20, len(items)) + _fixed("q", items))


def floats(items: Sequence[float | None]) -> Floats:
    """A float8[]."""
    return Floats(_head(701, len(items)) + _fixed("d", items))


def texts(items: Iterable[str | None]) -> Texts:
    """A text[], each text escaped."""
    encoded = [None if item is None else escaped(item).encode() for item in items]
    return Texts(_head(25, len(encoded)) + _variable(encoded))


def blobs(items: Sequence[bytes | None]) -> Blobs:
    """A bytea[]."""
    return Blobs(_head(17, len(items)) + _variable(items))


def escaped(text: str) -> str:
    """A text without the zero character, which the server cannot hold; `plain` undoes it."""
    if "\x00" in text or _ESCAPE in text:
        return text.replace(_ESCAPE, f"{_ESCAPE}1").replace("\x00", f"{_ESCAPE}0")
    return text


def plain(text: Any) -> Any:
    """A text that was escaped, as it was; None stays None."""
    if text is not None and _ESCAPE in text:
        return text.replace(f"{_ESCAPE}0", "\x00").replace(f"{_ESCAPE}1", _ESCAPE)
    return text


def _head(oid: int, n: int) -> bytes:
    """Dimensions, whether there are nulls (it may say so without any), type, length, lower bound."""
    return struct.pack(">iiiii", 1, 1, oid, n, 1) if n else struct.pack(">iii", 0, 0, oid)


def _fixed(code: str, items: Sequence[float | None]) -> bytes:
    if None in items:
        one = struct.Struct(f">i{code}")
        return b"".join([_NULL if item is None else one.pack(8, item) for item in items])
    flat: list[float] = [8] * (2 * len(items))
    flat[1::2] = items  # type: ignore[assignment]
    return struct.pack(">" + f"i{code}" * len(items), *flat)


def _variable(items: Iterable[bytes | None]) -> bytes:
    parts: list[bytes] = []
    for item in items:
        if item is None:
            parts.append(_NULL)
        else:
            parts.append(len(item).to_bytes(4, "big"))
            parts.append(item)
    return b"".join(parts)
