"""`worker` before it starts anything: it opens the store, waits for it if need be, and says what it found."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator

import click
import pytest

from holdfast.app import App
from holdfast.errors import StoreError
from holdfast.ops.commands.worker import opened_patiently, tell_start
from holdfast.runtime.worker import WorkerSettings
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.faulty import FaultyStore

START = {
    "target": "shop:app",
    "store": "redis://:…@host/0",
    "is_shared": True,
    "is_durable": True,
    "durability": "all of it survives a power cut",
    "warnings": [],
    "tasks": ["charge"],
    "streams": [],
    "schedules": [],
    "queues": [],
    "watch": None,
    "processes": 1,
}


class WaitClock(ManualClock):
    """Passes by itself while somebody waits, and tells at how many waits what happens."""

    def __init__(self, store: FaultyStore, mended_after: int | None, signal_after: int | None = None) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._store = store
        self._mended_after = mended_after
        self._signal_after = signal_after

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        self.waits.append(seconds or 0.0)
        if len(self.waits) == self._mended_after:
            self._store.mend()
        if len(self.waits) == self._signal_after:
            os.kill(os.getpid(), signal.SIGTERM)
        self.advance(seconds or 0.0)
        return event.is_set()


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def away() -> tuple[App, FaultyStore]:
    app = App("memory://")
    app._store = store = FaultyStore(MemoryStore())
    store.fail()
    return app, store


def test_a_store_that_is_away_is_waited_for_and_told_of_once(
    away: tuple[App, FaultyStore], caplog: pytest.LogCaptureFixture
) -> None:
    app, store = away
    clock = WaitClock(store, mended_after=20)
    assert opened_patiently(app, clock).name == "memory"
    assert len(clock.waits) == 20
    assert max(clock.waits) <= 5.0
    assert [one.levelno for one in caplog.records] == [logging.ERROR, logging.WARNING]


def test_a_signal_ends_the_wait_in_good_order(away: tuple[App, FaultyStore]) -> None:
    app, store = away
    clock = WaitClock(store, mended_after=None, signal_after=3)
    with click.Context(click.Command("worker")), pytest.raises(click.exceptions.Exit) as caught:
        opened_patiently(app, clock)
    assert (caught.value.exit_code, len(clock.waits)) == (0, 3)


def test_a_store_that_is_there_and_wrong_is_not_waited_for(away: tuple[App, FaultyStore]) -> None:
    app, store = away
    store.fail(error=StoreError("wrong password"))
    clock = WaitClock(store, mended_after=None)
    with pytest.raises(StoreError, match="wrong password"):
        opened_patiently(app, clock)
    assert clock.waits == []


def test_every_warning_of_the_store_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    tell_start(START | {"warnings": ["no AOF", "it evicts"]}, WorkerSettings())
    told = capsys.readouterr().out
    assert "warning    no AOF\n" in told
    assert "warning    it evicts\n" in told
    assert "not durable" not in told


def test_a_store_that_is_not_durable_is_labelled(capsys: pytest.CaptureFixture[str]) -> None:
    tell_start(START | {"is_durable": False, "durability": "a power cut may lose a second"}, WorkerSettings())
    assert "           not durable: a power cut may lose a second\n" in capsys.readouterr().out
