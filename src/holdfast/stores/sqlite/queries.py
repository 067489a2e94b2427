"""The named queries of the .sql files beside this module."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from holdfast.stores.queries import read_migrations, read_queries

FOLDER = Path(__file__).parent


@cache
def load(file: str) -> Mapping[str, str]:
    """The queries of a file by name."""
    return read_queries(FOLDER / file)


def migrations() -> list[str]:
    """The scripts that bring a database from each schema version to the next, from version 0 on."""
    return read_migrations(FOLDER / "migrations")
