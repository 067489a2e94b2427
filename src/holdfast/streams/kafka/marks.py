"""How often the unfinished messages of a partition were tried, as text beside its committed offset."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_MOST_BYTES: Final = 2000
"""The broker takes 4,096 unless it is told otherwise."""
_PREFIX: Final = "holdfast1 "
_MARK: Final = re.compile(r"(\d{1,18}):(\d{1,9})")


def written(position: int, retries: Mapping[int, int]) -> str:
    """The text; empty where nothing was tried. Of more than fit, the oldest messages stay: they are the stuck ones."""
    if not retries:
        return ""
    text = _PREFIX
    for offset, count in sorted(retries.items()):
        mark = f"{offset - position}:{count},"
        if offset < position or count < 1:
            continue
        if len(text) + len(mark) > _MOST_BYTES:
            break
        text += mark
    return text[:-1] if text.endswith(",") else ""


def read(position: int, text: str | None) -> dict[int, int]:
    """Counted attempts by offset; none where somebody else wrote the text."""
    if not text or not text.startswith(_PREFIX):
        return {}
    found = (_MARK.fullmatch(mark) for mark in text[len(_PREFIX) : _MOST_BYTES].split(","))
    return {position + int(mark[1]): int(mark[2]) for mark in found if mark}
