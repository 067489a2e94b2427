"""Options of a stream, which stand in its URL or are given as arguments, and not in both."""

from __future__ import annotations

import re
from typing import Final

from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.streams.redis_streams.address import Address

MOST_SHARDS: Final = 1024
_FIELD: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,100}")
_NUMBER: Final = re.compile(r"\d{1,9}(\.\d{1,6})?")


def shards_of(address: Address, shards: int | None = None) -> int:
    """How many streams the keys are spread over."""
    n = whole_of(address, "shards", shards) or 1
    if n > MOST_SHARDS:
        raise ConfigError(f"shards={n}: must be at most {MOST_SHARDS}")
    return n


def field_of(address: Address, field: str | None = None) -> bytes:
    """The field of an entry that is a message's value."""
    text = _in_url(address, "field", field)
    name = field or text or "value"
    if not is_name(name) or name == "key" or name.startswith(("header.", "null.")):
        raise ConfigError(f"field={name!r}: must be a name of its own, not key, header.… or null.…")
    return name.encode()


def whole_of(address: Address, option: str, value: int | None = None) -> int | None:
    """A whole number from 1 on; None where nobody says one."""
    text = _in_url(address, option, value)
    if text is None:
        return None if value is None else bounds.whole(option, value, low=1)
    return bounds.whole(option, int(text) if text.isdecimal() else text, low=1)


def seconds_of(address: Address, option: str, value: float | None, *, default_s: float, low: float) -> float:
    """A length of time; the argument's name ends in `_s`, that in the URL does not."""
    text = _in_url(address, option, value, argument=f"{option}_s")
    if text is None:
        return bounds.length(f"{option}_s", default_s if value is None else value, low=low)
    if not _NUMBER.fullmatch(text):
        raise ConfigError(f"url: {option}={text!r} must be a number of seconds, as in ?{option}=60")
    return bounds.length(option, float(text), low=low)


def is_name(text: object) -> bool:
    """Whether it is a text without blanks and control characters, and not too long."""
    return isinstance(text, str) and _FIELD.fullmatch(text) is not None


def _in_url(address: Address, option: str, value: object, argument: str = "") -> str | None:
    text = address.options.get(option)
    if text is not None and value is not None:
        raise ConfigError(f"{argument or option}={value!r}: stands in the URL already, as {text!r}")
    return text
