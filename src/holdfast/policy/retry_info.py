"""Google's RetryInfo in the metadata of a gRPC call, read without the protobuf package.

The metadata `grpc-status-details-bin` is a google.rpc.Status: field 3 holds details, each an Any of type (1) and bytes
(2); the bytes of a RetryInfo hold a Duration (1), which is seconds (1) and nanoseconds (2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.policy.foreign import quietly

_KEY = "grpc-status-details-bin"
_TYPE = b"/google.rpc.RetryInfo"
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5


def retry_delay_in(metadata: object) -> float | None:
    """The wait in seconds that the server asked for; None when it did not, or when this is no such metadata."""
    return None if metadata is None else quietly(_read, metadata)


def _read(metadata: Any) -> float | None:
    status = next((value for key, value in metadata if key == _KEY), b"")
    for number, detail in _fields(status):
        parts = dict(_fields(detail)) if number == 3 else {}
        if bytes(parts.get(1, b"")).endswith(_TYPE):
            duration = dict(_fields(dict(_fields(parts[2]))[1]))
            return float(duration.get(1, 0) + duration.get(2, 0) / 1e9)
    return None


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message: their numbers with an int or bytes; raises on what is no message."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        else:
            size = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}[kind]
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
