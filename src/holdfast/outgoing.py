"""From what a program gives to the bytes of a message: values as JSON, keys and headers as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.errors import Invalid
from holdfast.json_values import ENCODER, UNSTORABLE, refuse_lies, shown, why
from holdfast.types import Header, Outgoing

Key = bytes | str | int | None
Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]] | None

_encode = ENCODER.encode
_BYTES: Final = (bytes, bytearray, memoryview)  # as tuples: a union would be made anew for each message
_KEYS: Final = (str, int)


def outgoing(
    topic: str, value: Any, key: Key = None, headers: Headers = None, partition: int | None = None
) -> Outgoing:
    """The message to be sent; Invalid says what of it cannot be.

    Bytes go as they are, text as UTF-8, None as nothing at all; any other value as JSON; a key that is a
    whole number in digits.
    """
    if partition is not None and (type(partition) is not int or partition < 0):
        raise Invalid(f"partition={partition!r}: must be a whole number of at least 0")
    return Outgoing(
        topic,
        value if type(value) is bytes else value_bytes(value),
        key if type(key) is bytes else key_bytes(key),
        header_pairs(headers) if headers else (),
        partition,
    )


def value_bytes(value: Any) -> bytes | None:
    """A value as it is written; a NaN is refused, as it would be read as None."""
    if value is None or isinstance(value, _BYTES):
        return None if value is None else bytes(value)
    try:
        if isinstance(value, str):
            return value.encode()
        data = _encode(value)
        refuse_lies(value, data)
    except UNSTORABLE as error:
        raise Invalid(f"the value ({type(value).__name__}) cannot be sent: {why(error)}") from error
    return data


def key_bytes(key: Key) -> bytes | None:
    """A message key as it is written."""
    if key is None or isinstance(key, _BYTES):
        return None if key is None else bytes(key)
    if isinstance(key, bool) or not isinstance(key, _KEYS):
        raise Invalid(f"the key ({type(key).__name__}) cannot be sent: it must be bytes, text or a whole number")
    return _text("the key", key) if isinstance(key, str) else b"%d" % key


def header_pairs(headers: Headers) -> tuple[Header, ...]:
    """Headers as they are written, in their order; a name may be there more than once."""
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return tuple([(_name(name), _header(name, value)) for name, value in pairs])
    except (TypeError, ValueError) as error:  # of the unpacking
        raise Invalid("headers must be a mapping, or pairs of a name and a value") from error


def _name(name: object) -> str:
    if isinstance(name, str) and name and "\0" not in name:
        _text("the name of a header", name)
        return name
    raise Invalid(f"a header is named {shown(name)}: its name must be text, not empty, and without NUL")


def _header(name: str, value: object) -> bytes | None:
    if value is None or isinstance(value, _BYTES):
        return None if value is None else bytes(value)
    if isinstance(value, str):
        return _text(f"the header {shown(name)}", value)
    raise Invalid(f"the header {shown(name)} ({type(value).__name__}) cannot be sent: it must be bytes or text")


def _text(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{what} cannot be sent: {why(error)}") from error
