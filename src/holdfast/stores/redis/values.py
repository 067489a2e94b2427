"""Small shared values, as the scripts write them down."""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

_LAYOUT: Final = Layout(">dB")


def read_value(text: bytes) -> tuple[int, bytes | None]:
    """Its version and its data, which is None once it is removed."""
    version, is_removed = _LAYOUT.unpack_from(text)
    return int(version), None if is_removed else text[_LAYOUT.size :]
