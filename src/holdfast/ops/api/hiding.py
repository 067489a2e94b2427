"""Stored JSON without its secrets, and edits of it that leave the hidden values as they are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.errors import Invalid
from holdfast.ops.redact import HIDDEN, NAME_KEYS, hidden_items, hidden_keys, hides, redacted_text

_ABSENT: Final = object()
_ELEMENTS: Final = "elements"


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


def _shown(value: Any, pointer: str, pointers: list[str], *, is_hidden: bool = False) -> Any:
    if is_hidden:
        pointers.append(pointer)
        return HIDDEN
    if isinstance(value, dict):
        keys, found = hidden_keys(value), {}
        for key, one in value.items():
            name = redacted_text(key)
            below = f"{pointer}/{_escaped(name)}"
            if name != key:
                pointers.append(below)
            found[name] = _shown(one, below, pointers, is_hidden=key in keys)
        return found
    if isinstance(value, list):
        items = hidden_items(value)
        return [_shown(one, f"{pointer}/{i}", pointers, is_hidden=i in items) for i, one in enumerate(value)]
    if isinstance(value, str) and (text := redacted_text(value)) != value:
        pointers.append(pointer)
        return text
    return value


def unhidden(edited: Mapping[str, Any], stored: bytes) -> dict[str, Any]:
    """The edited arguments, where what still reads as it was shown keeps its stored value.

    Under a name, that name says which value is meant. In a list only the place does, so an item with something hidden
    in it keeps that only if all of the item still reads as stored at its place, and no other item of the stored list
    reads the same; of a list that was left as it was shown, all is kept. Invalid wherever it is not certain.

    The elements of a ring's letter are at their places as arguments are under their names, while none are added or
    taken out: each may be edited, unless it reads as another one did, which was moved then.
    """
    try:
        before = msgspec.json.decode(stored)
        _shown(before, "", [])
    except (ValueError, RecursionError):  # it was shown as one text, so nothing of it can be given back
        before = _ABSENT
    fields = dict(edited)
    if not _has_same_places(fields, before):
        return _restored_fields(fields, before, "")
    elements = _restored_elements(fields.pop(_ELEMENTS), before[_ELEMENTS])
    return _restored_fields(fields, before, "") | {_ELEMENTS: elements}


def _has_same_places(edited: Mapping[str, Any], before: Any) -> bool:
    """Whether it is a ring's letter, with as many elements as before."""
    if not isinstance(before, dict) or not isinstance(origin := before.get("origin"), dict):
        return False
    stored, now = before.get(_ELEMENTS), edited.get(_ELEMENTS)
    is_ring = origin.get("kind") == "ring"
    return is_ring and isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now)


def _restored_elements(edited: list[Any], before: list[Any]) -> list[Any]:
    if _same_for_all(_reads(before)) == _same_for_all(edited):
        return before
    shown = [_same_for_all(_reads(one)) for one in before]
    known = set(shown)
    found = []
    for i, one in enumerate(edited):
        pointer = f"/{_ELEMENTS}/{i}"
        if has_hidden(one) and (reads := _same_for_all(one)) != shown[i] and reads in known:
            raise _uncertain(pointer)
        found.append(_restored(one, before[i], pointer, is_hidden=False))
    return found


def _restored(edited: Any, before: Any, pointer: str, *, is_hidden: bool) -> Any:
    """What goes under a name."""
    if not has_hidden(edited):
        return edited
    if before is not _ABSENT and _same_for_all(_reads(before, is_hidden=is_hidden)) == _same_for_all(edited):
        return before
    if isinstance(edited, dict):
        return _restored_fields(edited, before, pointer)
    if isinstance(edited, list):
        return _restored_items(edited, before, pointer)
    raise _uncertain(pointer)


def _restored_fields(edited: dict[str, Any], before: Any, pointer: str) -> dict[str, Any]:
    known = before if isinstance(before, dict) else {}
    keys = hidden_keys(known)
    found = {}
    for shown, one in edited.items():
        below = f"{pointer}/{_escaped(shown)}"
        key = _stored_key(shown, known, below)
        value = known.get(key, _ABSENT)
        if key in keys and not hides(key, value) and any(edited.get(name) != known.get(name) for name in NAME_KEYS):
            value = _ABSENT  # it is hidden because of a name beside it, and that is another one now
        found[key] = _restored(one, value, below, is_hidden=key in keys)
    return found


def _stored_key(shown: str, known: Mapping[str, Any], pointer: str) -> str:
    """The key of the stored object that is shown like this."""
    if HIDDEN not in shown or shown in known:
        return shown
    alike = [key for key in known if redacted_text(key) == shown]
    if len(alike) != 1:
        raise _uncertain(pointer)
    return alike[0]


def _restored_items(edited: list[Any], before: Any, pointer: str) -> list[Any]:
    items = before if isinstance(before, list) else []
    shown = [_same_for_all(_reads(one)) for one in items]
    alike = Counter(shown)
    found = []
    for i, one in enumerate(edited):
        if not has_hidden(one):
            found.append(one)
        elif i < len(items) and shown[i] == _same_for_all(one) and alike[shown[i]] == 1:
            found.append(items[i])
        else:
            raise _uncertain(f"{pointer}/{i}")
    return found


def has_hidden(value: Any) -> bool:
    """Whether something in it reads as if it had been left out, and is no value that anybody means."""
    if isinstance(value, dict):
        return any(HIDDEN in key or has_hidden(one) for key, one in value.items())
    if isinstance(value, list):
        return any(has_hidden(one) for one in value)
    return isinstance(value, str) and HIDDEN in value


def _uncertain(pointer: str) -> Invalid:
    return Invalid(
        f"the value at {pointer} has {HIDDEN} in it, and it is not certain what that stands for: write it out"
    )


def _reads(value: Any, *, is_hidden: bool = False) -> Any:
    """How a stored value is shown."""
    return _shown(value, "", [], is_hidden=is_hidden)


def _same_for_all(value: Any) -> str:
    """What is the same for values that are the same in JSON: a browser writes 1.0 as 1, and true is no number."""
    return json.dumps(_with_whole_numbers(value), sort_keys=True)


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_whole_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
