"""From what a program gives to the bytes of a message: values as JSON, keys and headers as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.errors import Invalid
from holdfast.json_values import ENCODER, UNSTORABLE
from holdfast.types import Header, Outgoing

Key = bytes | str | int | None
Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]] | None


def outgoing(
    topic: str, value: Any, key: Key = None, headers: Headers = None, partition: int | None = None
) -> Outgoing:
    """The message to be sent; Invalid says what of it cannot be.

    Bytes go as they are, text as UTF-8, None as nothing at all; any other value as JSON, a key or a header as text.
    """
    return Outgoing(topic, value_bytes(value), key_bytes(key), header_pairs(headers), partition)


def value_bytes(value: Any) -> bytes | None:
    """A value as it is written."""
    if value is None or isinstance(value, bytes):
        return value
    try:
        return value.encode() if isinstance(value, str) else ENCODER.encode(value)
    except UNSTORABLE as error:
        raise Invalid(f"the value cannot be sent: {error}") from error


def key_bytes(key: Key) -> bytes | None:
    """A message key as it is written."""
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise Invalid(f"key={key!r}: must be bytes, text or a whole number")
    return _text("the key", str(key))


def header_pairs(headers: Headers) -> tuple[Header, ...]:
    """Headers as they are written, in their order; a name may be there more than once."""
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((_name(name), _header(name, value)) for name, value in pairs)


def _name(name: object) -> str:
    if isinstance(name, str) and name:
        return name
    raise Invalid(f"a header is named {name!r}: its name must be text")


def _header(name: str, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return _text(f"the header {name!r}", value)
    raise Invalid(f"the header {name!r} is {value!r}: it must be bytes or text")


def _text(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{what} cannot be written as UTF-8: {error}") from error
