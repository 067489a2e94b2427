"""What is stored, as it may be shown: without secrets. The rules are `redact.py`'s."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.ports import RingReport
from holdfast.redact import (
    HIDDEN,
    NAME_KEYS,
    hidden_items,
    hidden_keys,
    hides,
    is_secret,
    redacted,
    redacted_text,
)

__all__ = [
    "HIDDEN",
    "NAME_KEYS",
    "hidden_items",
    "hidden_keys",
    "hides",
    "is_secret",
    "redacted",
    "redacted_text",
    "ring_shown",
    "shown",
    "without_secrets",
]

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R", bound=RingReport)
_TEXTS: Final = ("message", "reason", "traceback", "cause", "user", "project", "idempotency_key")


def shown(data: bytes | None) -> Any:
    """Stored JSON as it may be shown: without secrets; what is no JSON, as text."""
    if data is None:
        return None
    try:
        return redacted(msgspec.json.decode(data))
    except (ValueError, RecursionError):
        return redacted_text(data.decode("utf-8", "backslashreplace"))


def without_secrets(record: T) -> T:
    """The same job, attempt, group or breaker, with its texts as they may be shown."""
    texts = {name: getattr(record, name, None) for name in _TEXTS}
    changes: dict[str, Any] = {name: redacted_text(text) for name, text in texts.items() if isinstance(text, str)}
    if attempts := getattr(record, "attempts", ()):
        changes["attempts"] = [without_secrets(one) for one in attempts]
    return replace(record, **changes)


def ring_shown(ring: R) -> R:
    """The same ring, with what its consumers say as it may be shown."""
    consumers = tuple(
        replace(one, doing=redacted_text(one.doing), checkpoint_error=redacted_text(one.checkpoint_error))
        for one in ring.consumers
    )
    return replace(ring, consumers=consumers)
