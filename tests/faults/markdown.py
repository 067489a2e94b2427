"""Markdown that shows what it is given: tables whose cells cannot break out."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = {True: "kept", False: "**NOT KEPT**"}
NOT_RUN: Final = "**NOT RUN**"
NOT_FOUND: Final = "**NOT FOUND**"
MARKS: Final = frozenset({*KEPT.values(), NOT_RUN, NOT_FOUND})
"""Cells that are Markdown themselves."""


def safe(text: str) -> str:
    """Text that stays within its cell, and is shown as it is; without the paths of this machine."""
    for folder in (str(ROOT), tempfile.gettempdir()):
        text = re.sub(rf"{re.escape(folder)}(/[^\s'\",)]*)?", "(a path)", text)
    text = re.sub(r"[\s\x00-\x1f\x7f]+", " ", text).strip()
    return re.sub(r"([\\|\[\]*`])", r"\\\1", text).replace("&", "&amp;").replace("<", "&lt;")


def table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table whose cells are shown as they are."""
    rows = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    rows += [f"| {' | '.join(cell if cell in MARKS else safe(cell) for cell in line)} |" for line in lines]
    return "\n".join(rows) + "\n"


def number(n: int | None) -> str:
    """A count, or nothing where there is none."""
    return "" if n is None else f"{n:,}"
