"""The clock that is set by hand, and the machine's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.clock import SystemClock, _Ids, _Tokens, chance, new_id
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


def test_a_sleep_of_less_than_nothing_does_not_move_it_back(clock: ManualClock) -> None:
    clock.advance(10.0)
    clock.sleep(-1.0)
    assert clock.monotonic() == 10.0


def test_a_time_limit_of_an_event_loop_that_is_gone_ends_nothing(clock: ManualClock) -> None:
    async def begin() -> None:
        clock.timeout(5.0)

    asyncio.run(begin())
    clock.advance(5.0)
    assert clock.monotonic() == 5.0


async def test_sleepers_of_the_same_instant_wake_up_in_the_order_they_came() -> None:
    clock = ManualClock(auto=False)
    woken: list[int] = []

    async def sleeper(number: int) -> None:
        await clock.asleep(5.0)
        woken.append(number)

    sleepers = [asyncio.create_task(sleeper(number)) for number in range(5)]
    await asyncio.sleep(0)  # noqa: TID251 - lets them begin to sleep
    clock.advance(5.0)
    await asyncio.gather(*sleepers)
    assert woken == [0, 1, 2, 3, 4]


async def test_others_run_while_a_coroutine_sleeps(clock: ManualClock) -> None:
    ran: list[bool] = []

    async def other() -> None:
        ran.append(True)

    task = asyncio.create_task(other())
    await clock.asleep(1.0)
    assert ran == [True]
    await task


class Watched(threading.Event):
    """An event that is looked at once, and may be set right after that look."""

    def __init__(self, *, is_late: bool) -> None:
        super().__init__()
        self.is_late = is_late
        self.looks = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.looks += 1
        assert self.looks == 1
        if self.is_late:
            self.set()
        return False


@pytest.mark.parametrize("is_late", [True, False])
def test_a_wait_whose_time_is_over_says_whether_the_event_is_set(is_late: bool, clock: ManualClock) -> None:
    assert clock.wait(Watched(is_late=is_late), 0.0) is is_late


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


# ---------------------------------------------------------------- ids

SEEDED = """
import random
from holdfast.clock import new_id
random.seed(42)
print(*(new_id() for _ in range(5)))
"""

FORKED = """
import os
from holdfast.clock import new_id
new_id()
child = os.fork()
os.write(1, (" ".join(new_id() for _ in range(5)) + "\\n").encode())
if child:
    os.waitpid(child, 0)
"""


def tails_of(code: str) -> list[str]:
    """The parts of the ids that a program prints which do not come from the time."""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    return [one[-12:] for one in printed.split()]


def test_two_programs_that_seed_their_chance_alike_make_ids_of_their_own() -> None:
    tails = tails_of(SEEDED) + tails_of(SEEDED)
    assert len(tails) == len(set(tails)) == 10


def test_a_fork_does_not_make_its_parents_ids() -> None:
    tails = tails_of(FORKED)
    assert len(tails) == len(set(tails)) == 10


def test_ids_rise_within_a_process_from_whatever_thread() -> None:
    alone = [new_id() for _ in range(2_000)]
    assert alone == sorted(set(alone))
    assert {(len(one), one[14]) for one in alone} == {(36, "7")}
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda _: [new_id() for _ in range(500)], range(8)))
    assert all(batch == sorted(batch) and batch[0] > alone[-1] for batch in batches)
    assert len({one for batch in batches for one in batch}) == 4_000


def test_ids_rise_also_while_the_machines_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    instants = [5_000_000_000 - 1_000_000 * step for step in range(100)]
    monkeypatch.setattr(time, "time_ns", lambda: instants.pop(0))
    make = _Ids()
    ids = [make() for _ in range(100)]
    assert ids == sorted(set(ids))


def test_tokens_rise_within_their_kind_whatever_the_time_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the highest byte of the time changes, as in January 2027."""
    instants = [0x18FF_FFFF_FFFF_FFFF, 0x1900_0000_0000_0000, 0x18FF_FFFF_FFFF_FFFF]
    monkeypatch.setattr(time, "time_ns", lambda: instants.pop(0))
    make = _Tokens()
    made = [make() for _ in range(3)]
    assert len({token[:1] for token in made}) == 1, "those of claims begin alike"
    rest = [token[1:] for token in made]
    assert rest == sorted(set(rest)), "with the beginning that those of reclaims have they rise as well"
