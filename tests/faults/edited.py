"""Copies of the package with edits: versions that others still have, and products that are broken on purpose."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import holdfast


def copied(folder: Path) -> Path:
    """A copy of the package, without the page; what is returned goes before others on the path of programs."""
    source = folder / "source"
    shutil.copytree(Path(holdfast.__file__).parent, source / "holdfast", ignore=shutil.ignore_patterns("page"))
    return source


def edit(path: Path, pattern: str, instead: str, times: int = 1) -> None:
    """Put something else where a pattern is found, which must be so many times."""
    text, found = re.subn(pattern, instead, path.read_text())
    assert found == times, f"{found} of {times} places in {path.name}"
    path.write_text(text)
