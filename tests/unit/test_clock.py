"""The clock that is set by hand, and the machine's."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.clock import SystemClock, chance
from holdfast.testing import ManualClock, ScriptedRng

pytestmark = pytest.mark.anyio


def test_it_moves_only_when_told_to(clock: ManualClock) -> None:
    assert (clock.now(), clock.monotonic()) == (1_000_000_000.0, 0.0)
    clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (1_000_000_002.5, 2.5)
    with pytest.raises(ValueError, match="a clock does not go back"):
        clock.advance(-1)


async def test_a_sleep_moves_it_and_is_remembered(clock: ManualClock) -> None:
    clock.sleep(3.0)
    await clock.asleep(4.0)
    assert clock.monotonic() == 7.0
    assert clock.sleeps == [3.0, 4.0]


async def test_without_auto_sleepers_wait_for_their_time() -> None:
    clock = ManualClock(auto=False)
    woken: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.asleep(seconds)
        woken.append(name)

    tasks = [asyncio.create_task(sleeper("late", 5.0)), asyncio.create_task(sleeper("early", 2.0))]
    with ThreadPoolExecutor(1) as pool:
        thread = pool.submit(clock.sleep, 5.0)
        while len(clock.sleeps) < 3:
            await asyncio.sleep(0)  # noqa: TID251 - lets the others run; no time passes
        clock.advance(2.0)
        await tasks[1]
        assert woken == ["early"]
        assert not thread.done()
        clock.advance(3.0)
        await tasks[0]
        thread.result(30)
    assert woken == ["early", "late"]


async def test_a_time_limit_ends_when_the_clock_has_moved_so_far(clock: ManualClock) -> None:
    clock.advance(100.0)
    with pytest.raises(TimeoutError):
        async with clock.timeout(2.0):
            clock.advance(2.0)
            await asyncio.Event().wait()
    async with clock.timeout(2.0) as left_in_time:
        clock.advance(1.9)
    clock.advance(1.0)
    await asyncio.sleep(0)  # noqa: TID251 - would let a wrong limit strike
    assert not left_in_time.expired()
    async with clock.timeout(None):
        clock.advance(1e9)


def test_waiting_for_an_event_ends_with_the_event_or_the_time(clock: ManualClock) -> None:
    event = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(clock.wait, event, 5.0)
        clock.advance(5.0)
        while not waiting.done():
            clock.advance(5.0)
        assert waiting.result() is False
        event.set()
        assert clock.wait(event, None)


async def test_the_machines_clock_keeps_the_same_contract() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.0)
    await clock.asleep(0.0)
    async with clock.timeout(60.0):
        pass
    event = threading.Event()
    assert not clock.wait(event, 0.0)
    event.set()
    assert clock.wait(event, None)
    assert clock.monotonic() >= before
    assert clock.now() > 1_500_000_000


def test_chance_is_in_zero_to_one() -> None:
    assert all(0 <= chance() < 1 for _ in range(100))


def test_scripted_chance_follows_its_script_and_begins_again() -> None:
    rng = ScriptedRng([0.1, 0.9])
    assert [rng(), rng(), rng()] == [0.1, 0.9, 0.1]
    for numbers in ([], [1.0], [-0.1]):
        with pytest.raises(ValueError, match="give at least one"):
            ScriptedRng(numbers)
