"""A ring's elements as a record of the inbox: a payload that people can read and edit.

    {"origin": {"kind": "ring", "ring": …, "consumer": …, "batch": …, "offset": …, "count": …},
     "elements": […], "unreadable": [3]}

`unreadable` has the places of elements that were not kept as JSON. In the place of each stands {"unreadable": its text,
"why": …}, and such a letter is replayed only after an edit has put something else there, or taken it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from holdfast.errors import Invalid
from holdfast.json_values import MAX_DEPTH, UNSTORABLE, why
from holdfast.runtime.ring_origins import RingOrigin

GATE: Final = "ring"
"""The gate of every ring's letters: no worker but the ring's own may claim them."""
FIXED: Final = ("origin", "unreadable")
"""What no edit may change: it says which elements they are."""

_STUB: Final = frozenset({"unreadable", "why"})


class RingLetter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the payload of a ring's record says; its elements are JSON values."""

    origin: RingOrigin
    elements: tuple[Any, ...]
    unreadable: tuple[int, ...] = ()


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(RingLetter).decode


def ring_payload(origin: RingOrigin, elements: Sequence[bytes], unreadable: Sequence[int] = ()) -> bytes:
    """The payload of elements that are JSON already."""
    shown: dict[str, Any] = {"origin": origin, "elements": [Raw(one) for one in elements]}
    return _encode(shown | {"unreadable": list(unreadable)} if unreadable else shown)


def stub_of(text: str, reason: str) -> bytes:
    """What stands in the place of an element that is not kept as JSON."""
    return _encode({"unreadable": text, "why": reason})


def read_ring_letter(payload: bytes) -> RingLetter:
    """The letter with what was edited in it; Invalid says in one line why it cannot be replayed."""
    try:
        if payload.count(b"[") + payload.count(b"{") > MAX_DEPTH:
            refuse_depth(msgspec.json.decode(payload))
        letter = _decode(payload)
    except UNSTORABLE as error:
        raise Invalid(f"the letter cannot be read: {why(error)}") from error
    refuse_unfit(letter.elements, letter.unreadable)
    return letter


def refuse_depth(value: Any, depth: int = 0) -> None:
    """RecursionError for lists and objects nested deeper than any that are stored."""
    if depth > MAX_DEPTH:
        raise RecursionError
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        refuse_depth(part, depth + 1)


def refuse_unfit(elements: Sequence[Any], unreadable: Sequence[int]) -> None:
    """Invalid where there are no elements, or one is the text of one that was not kept; an edit may have moved it."""
    if not elements:
        raise Invalid("the letter has no elements, so there is nothing to replay: remove it instead")
    for place, one in enumerate(elements if unreadable else ()):
        if isinstance(one, dict) and one.keys() == _STUB:
            raise Invalid(
                f"element {place} was not kept as JSON ({one['why']}), so there is nothing to replay: put another in "
                "its place, or take it out"
            )


def refuse_moved_elements(stored: bytes, edited: bytes) -> None:
    """Invalid where an edit changes which elements they are."""
    try:
        before, after = _decode(stored), _decode(edited)
    except UNSTORABLE:
        return  # whoever reads it says why it is no letter
    for name in FIXED:
        if getattr(before, name) != getattr(after, name):
            raise Invalid(f"the {name} of a ring's letter cannot be edited: it says which elements they are")
