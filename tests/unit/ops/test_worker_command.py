"""`worker` before it starts anything: it opens the store, waits for it if need be, and says what it found."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from holdfast.app import App
from holdfast.errors import StoreError
from holdfast.ops.commands.worker import opened_patiently, tell_start
from holdfast.ports import Capabilities
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
    """Passes by itself while somebody waits between tries, and tells at how many waits what happens."""

    def __init__(self, store: FaultyStore, mended_after: int | None, signal_after: int | None = None) -> None:
        super().__init__()
        self._store = store
        self._mended_after = mended_after
        self._signal_after = signal_after
        self._lengths: dict[int, float] = {}

    @property
    def waits(self) -> list[float]:
        """How long each was."""
        return list(self._lengths.values())

    def sleep(self, seconds: float) -> None:
        tries = self._store.calls["capabilities"]
        is_new = tries not in self._lengths
        self._lengths[tries] = self._lengths.get(tries, 0.0) + seconds
        if is_new and len(self.waits) == self._mended_after:
            self._store.mend()
        if is_new and len(self.waits) == self._signal_after:
            os.kill(os.getpid(), signal.SIGTERM)
        super().sleep(seconds)


SIGNALLED = '''
import signal, sys
import click
from holdfast import App
from holdfast.clock import SystemClock
from holdfast.ops.commands.worker import opened_patiently
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty import FaultyStore

class Signalled(SystemClock):
    """SIGTERM comes at the worst moment of a wait: when the lock of what is waited for is held."""

    def wait(self, event, seconds):
        with event._cond:
            signal.raise_signal(signal.SIGTERM)
        return event.wait(seconds)

    def sleep(self, seconds):
        signal.raise_signal(signal.SIGTERM)

app = App("memory://")
app._store = store = FaultyStore(MemoryStore())
store.fail()
with click.Context(click.Command("worker")):
    try:
        opened_patiently(app, Signalled())
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
'''


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
    assert clock.sleeps[-1] == clock.waits[-1] < 0.2, "nor does the third one go on"


def test_a_signal_that_comes_in_the_middle_of_the_wait_is_heard() -> None:
    command = [sys.executable, "-c", SIGNALLED]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, ended.stdout) == (0, "stopped: nothing had begun\n")


class SignalledStore(FaultyStore):
    """Is there again when it is asked for the second time, which takes so long that SIGTERM comes meanwhile."""

    @property
    def capabilities(self) -> Capabilities:
        if self.calls["capabilities"] == 1:
            self.mend()
            os.kill(os.getpid(), signal.SIGTERM)
        return super().capabilities


def test_a_signal_while_the_store_comes_back_is_not_lost() -> None:
    app = App("memory://")
    app._store = store = SignalledStore(MemoryStore())
    store.fail()
    with click.Context(click.Command("worker")), pytest.raises(click.exceptions.Exit) as caught:
        opened_patiently(app, WaitClock(store, mended_after=None))
    assert caught.value.exit_code == 0


def test_signals_are_the_command_s_own_again_when_the_store_is_there(away: tuple[App, FaultyStore]) -> None:
    app, store = away
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    opened_patiently(app, WaitClock(store, mended_after=1))
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


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
