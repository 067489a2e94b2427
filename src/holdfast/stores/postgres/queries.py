"""The named queries of the .sql files beside this module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from holdfast.stores.queries import read_migrations, read_queries

_FOLDER = Path(__file__).parent
_TABLE = re.compile(r"\bholdfast_")
_NOW = "(extract(epoch FROM clock_timestamp())::float8 + %(offset_s)s)"
_IS_USED = """EXISTS (
    SELECT 1 FROM holdfast_claims
    WHERE token >= %(token)s
        AND (token = %(token)s OR worker = %(worker)s AND substr(token, 1, 1) = substr(%(token)s, 1, 1))
)"""


@cache
def load(file: str) -> Mapping[str, str]:
    """The queries of a file by name.

    `:now` in them is the store's clock, which tests may move; `:is_used` whether a token was, or a later one of the
    same worker.
    """
    queries = read_queries(_FOLDER / file).items()
    return {name: sql.replace(":now", _NOW).replace(":is_used", _IS_USED) for name, sql in queries}


@cache
def qualified(sql: str, schema: str) -> str:
    """The same query for a connection that may look for tables in other schemas first."""
    name = schema.replace('"', '""').replace("%", "%%")
    return _TABLE.sub(f'"{name}".holdfast_', sql)


def migrations() -> list[str]:
    """The scripts that bring a database from each schema version to the next, from version 0 on."""
    return read_migrations(_FOLDER / "migrations")
