"""Reads the rows of a query, whose types only its .sql file and the one who asks know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
from msgspec import json

_encode = json.Encoder().encode


def read_rows(db: apsw.Connection, sql: str, values: apsw.Bindings = ()) -> list[Any]:
    """All of them."""
    return db.execute(sql, values).fetchall()


def read_row(db: apsw.Connection, sql: str, values: apsw.Bindings = ()) -> Any:
    """The only one."""
    return db.execute(sql, values).fetchall()[0]


def read_value(db: apsw.Connection, sql: str, values: apsw.Bindings = ()) -> Any:
    """The only column of the only one."""
    return db.execute(sql, values).fetchall()[0][0]


def text_list(texts: Sequence[str]) -> str:
    """Texts for `json_each`."""
    return _encode(texts).decode()
