"""The store's clock: shared, and never going back."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.clock import new_id
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite import clock as store_clock
from holdfast.testing import ManualClock
from holdfast.types import NewJob

Boot = tuple[str, float]


async def now_of(store: SqliteStore) -> float:
    return (await store.stats()).now


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> list[Boot]:
    """The boot that the machine is in, set by hand."""
    boots: list[Boot] = [("first", 100.0)]
    monkeypatch.setattr(store_clock, "boot_time", lambda: boots[-1])
    return boots


async def test_stores_on_one_file_share_a_clock_whatever_their_wall_time_is(path: Path, boot: list[Boot]) -> None:
    first = SqliteStore(path, clock=ManualClock(1_000.0))
    assert await now_of(first) == 1_000.0
    boot.append(("first", 130.0))
    second = SqliteStore(path, clock=ManualClock(500_000.0))
    assert await now_of(second) == await now_of(first) == 1_030.0
    await first.close()
    await second.close()


async def test_a_new_boot_takes_the_wall_time(path: Path, boot: list[Boot]) -> None:
    store = SqliteStore(path, clock=ManualClock(1_000.0))
    assert await now_of(store) == 1_000.0
    await store.close()
    boot.append(("second", 5.0))
    store = SqliteStore(path, clock=ManualClock(9_000.0))
    assert await now_of(store) == 9_000.0
    await store.close()


@pytest.mark.parametrize("name", ["second", ""])
async def test_a_boot_with_a_wall_clock_that_is_behind_goes_on_where_the_file_stood(
    path: Path, boot: list[Boot], name: str
) -> None:
    boot.append((name and "first", 100.0))
    store = SqliteStore(path, clock=ManualClock(50_000.0))
    assert store.capabilities
    boot.append((name and "first", 160.0))
    store.enqueue_now([NewJob(id=new_id(), task="greet", payload=b"{}")])
    await store.close()
    boot.append((name, 1.0))
    store = SqliteStore(path, clock=ManualClock(2_000.0))
    assert await now_of(store) >= 50_060.0
    await store.close()
