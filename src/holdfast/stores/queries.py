"""Reads the named queries out of .sql files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_MARK = "-- name: "


def read_queries(path: Path) -> Mapping[str, str]:
    """The queries of a file by name: each starts with a line `-- name: …` and ends where the next one starts."""
    queries: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(_MARK):
            lines = queries.setdefault(line.removeprefix(_MARK).strip(), [])
        elif not line.startswith("--"):
            lines.append(line)
    return {name: "\n".join(lines).strip() for name, lines in queries.items()}


def read_migrations(folder: Path) -> list[str]:
    """The scripts that bring a database from each schema version to the next, from version 0 on."""
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.sql"))]
