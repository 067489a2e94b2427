"""Secrets are left out of everything that is shown, by the names they go under."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

HIDDEN: Final = "[redacted]"
"""What stands in a secret's place."""

_SECRET: Final = re.compile(
    r"passw(or)?d|passphrase|passcode|(^|_)(pwd|pin|otp|cvv|cvc|auth|jwt|bearer|sid)($|_)|secret|token(?!s_|s$|ize)|api_?key"
    r"|access_?key|private_?key|signing_?key|encryption_?key|credential|authorization|cookie|session_?(id|key)"
    r"|card_?number|connection_?string|(^|_)dsn($|_)"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS: Final = re.compile(r"[\s.\-]+")


def is_secret(name: str) -> bool:
    """Whether what goes under this name is not to be shown: `password`, `apiKey`, `X-Auth-Token` and the like."""
    return _SECRET.search(_SEPARATORS.sub("_", _CAMEL.sub("_", name)).lower()) is not None


def redacted(value: Any) -> Any:
    """The same JSON value without its secrets, however deep they are. Under a secret's name null and "" stay."""
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if is_secret(str(key)) and one not in (None, "") else redacted(one)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(one) for one in value]
    return value


def shown(data: bytes | None) -> Any:
    """Stored JSON as it may be shown: without secrets; what is no JSON, as text."""
    if data is None:
        return None
    try:
        return redacted(msgspec.json.decode(data))
    except (ValueError, RecursionError):
        return data.decode("utf-8", "backslashreplace")
