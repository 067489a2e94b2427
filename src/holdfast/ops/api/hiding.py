"""Stored JSON without its secrets, and edits of it that leave the hidden values as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.errors import Invalid
from holdfast.ops.redact import HIDDEN, is_secret, redacted_text

_ABSENT: Final = object()


class Hidden(msgspec.Struct, frozen=True):
    """A value as it may be shown, and where something was left out of it."""

    value: Any
    pointers: tuple[str, ...] = ()
    """JSON pointers (RFC 6901)."""


def hidden(data: bytes | None) -> Hidden:
    """Stored JSON without secrets: by the names they go under, and what looks like one in a text."""
    if data is None:
        return Hidden(None)
    try:
        value = msgspec.json.decode(data)
        pointers: list[str] = []
        shown = _shown(value, "", pointers)
    except (ValueError, RecursionError):
        return Hidden(redacted_text(data.decode("utf-8", "backslashreplace")))
    return Hidden(shown, tuple(pointers))


def _shown(value: Any, pointer: str, pointers: list[str]) -> Any:
    if isinstance(value, dict):
        found = {}
        for key, one in value.items():
            below = f"{pointer}/{_escaped(key)}"
            if is_secret(key) and one not in (None, ""):
                pointers.append(below)
                found[key] = HIDDEN
            else:
                found[key] = _shown(one, below, pointers)
        return found
    if isinstance(value, list):
        return [_shown(one, f"{pointer}/{i}", pointers) for i, one in enumerate(value)]
    if isinstance(value, str) and (text := redacted_text(value)) != value:
        pointers.append(pointer)
        return text
    return value


def unhidden(edited: Mapping[str, Any], stored: bytes) -> dict[str, Any]:
    """The edited arguments, where what still reads as it was shown keeps its stored value.

    Invalid where nobody can know which stored value is meant: a hidden one that was moved, or is in a list whose
    length has changed.
    """
    try:
        before = msgspec.json.decode(stored)
    except (ValueError, RecursionError):
        before = {}
    found: dict[str, Any] = _restored(dict(edited), before, "", is_certain=True)
    return found


def _restored(edited: Any, before: Any, pointer: str, *, is_certain: bool) -> Any:
    if isinstance(edited, dict):
        known = before if isinstance(before, dict) else {}
        return {
            key: _leaf(one, known.get(key, _ABSENT), f"{pointer}/{_escaped(key)}", key, is_certain)
            for key, one in edited.items()
        }
    if isinstance(edited, list):
        items = before if isinstance(before, list) else []
        is_certain = is_certain and len(items) == len(edited)
        return [
            _leaf(one, items[i] if i < len(items) else _ABSENT, f"{pointer}/{i}", "", is_certain)
            for i, one in enumerate(edited)
        ]
    return edited


def _leaf(edited: Any, before: Any, pointer: str, key: str, is_certain: bool) -> Any:
    if isinstance(edited, dict | list):
        return _restored(edited, before, pointer, is_certain=is_certain)
    if not isinstance(edited, str) or HIDDEN not in edited:
        return edited
    if is_certain and before is not _ABSENT and _reads(before, key) == edited:
        return before
    raise Invalid(f"the value at {pointer} reads {HIDDEN}, and it is not certain what it stands for: write it out")


def _reads(value: Any, key: str) -> Any:
    """How a stored value is shown under this key."""
    return HIDDEN if is_secret(key) and value not in (None, "") else _shown(value, "", [])


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
