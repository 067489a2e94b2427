"""What the server shows of a statement must tell that it is one of ours: frozen sessions are found by it."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast.stores.postgres
from holdfast.stores.postgres.queries import load

SHOWN = 1_000
"""Characters of a statement in pg_stat_activity, a little below the server's default."""
PARTS = {("claim.sql", "may_take_all"), ("claim.sql", "columns"), ("letters.sql", "causes_like")}
"""Put into others, or others into them."""

FILES = sorted(path.name for path in Path(holdfast.stores.postgres.__file__).parent.glob("*.sql"))


@pytest.mark.parametrize("file", FILES)
def test_every_statement_can_be_told_from_those_of_others_by_its_beginning(file: str) -> None:
    for name, sql in load(file).items():
        if (file, name) not in PARTS:
            assert "holdfast" in sql[:SHOWN], f"{file}: {name}"
