"""The memory store keeps every promise."""

from __future__ import annotations

import pytest

from holdfast.stores.memory import MemoryStore
from holdfast.testing.store_suite import Advance, StoreSuite


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def advance(store: MemoryStore) -> Advance:
    def move(seconds: float) -> None:
        store.clock_offset_s += seconds

    return move


class TestMemoryStore(StoreSuite):
    """Everything that a store promises, asked of this one."""
