"""Short lists are pieces of their own here, so that tests of a few elements go every way."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of 32 are not gathered with others."""
    for module in ("slots", "core"):
        monkeypatch.setattr(f"holdfast.ring.{module}.SMALL", 32)
