"""The bulkhead: a bound that threads and coroutines share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Bulkhead, BulkheadFull, ConfigError, IllegalChange
from holdfast.testing import ManualClock

pytestmark = pytest.mark.anyio


def test_a_full_bulkhead_refuses_at_once_by_default() -> None:
    bulkhead = Bulkhead(2)
    with bulkhead, bulkhead:
        assert bulkhead.in_use == 2
        with pytest.raises(BulkheadFull, match="the bulkhead is full: 2 in flight already"):
            bulkhead.acquire()
    assert bulkhead.in_use == 0


def test_a_place_that_nobody_holds_cannot_be_given_back() -> None:
    bulkhead = Bulkhead(1)
    with pytest.raises(IllegalChange, match="released more often than acquired"):
        bulkhead.release()
    assert bulkhead.in_use == 0


async def test_a_full_bulkhead_refuses_coroutines_at_once_by_default() -> None:
    bulkhead = Bulkhead(1)
    async with bulkhead:
        with pytest.raises(BulkheadFull):
            await bulkhead.aacquire()
    assert bulkhead.in_use == 0


def test_a_thread_that_waits_gets_the_place_that_is_given_back() -> None:
    bulkhead = Bulkhead(1, max_wait=None)
    bulkhead.acquire()
    got = threading.Event()

    def wait() -> None:
        with bulkhead:
            got.set()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        while not bulkhead._queue:
            pass
        assert not got.is_set()
        bulkhead.release()
        waiting.result(30)
    assert got.is_set()
    assert bulkhead.in_use == 0


def test_a_thread_that_has_waited_long_enough_is_refused() -> None:
    clock = ManualClock()
    bulkhead = Bulkhead(1, max_wait=5.0, clock=clock)
    bulkhead.acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bulkhead.acquire)
        while not bulkhead._queue:
            pass
        clock.advance(5.0)
        with pytest.raises(BulkheadFull):
            waiting.result(30)
    assert not bulkhead._queue
    bulkhead.release()
    assert bulkhead.in_use == 0


async def test_coroutines_are_served_in_the_order_they_came() -> None:
    bulkhead = Bulkhead(1, max_wait=None)
    order: list[int] = []

    async def call(number: int) -> None:
        async with bulkhead:
            order.append(number)
            await asyncio.sleep(0)  # noqa: TID251 - lets the others run; no time passes

    await asyncio.gather(*(call(number) for number in range(20)))
    assert order == list(range(20))
    assert bulkhead.in_use == 0


async def test_a_coroutine_that_has_waited_long_enough_is_refused() -> None:
    clock = ManualClock()
    bulkhead = Bulkhead(1, max_wait=5.0, clock=clock)
    bulkhead.acquire()
    waiting = asyncio.create_task(bulkhead.aacquire())
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin to wait
    clock.advance(5.0)
    with pytest.raises(BulkheadFull):
        await waiting
    assert not bulkhead._queue


async def test_a_place_granted_in_the_moment_of_cancellation_is_passed_on() -> None:
    bulkhead = Bulkhead(1, max_wait=None)
    bulkhead.acquire()
    waiting = asyncio.create_task(bulkhead.aacquire())
    other = asyncio.create_task(bulkhead.aacquire())
    await asyncio.sleep(0)  # noqa: TID251 - lets both begin to wait
    bulkhead.release()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await other
    bulkhead.release()
    assert bulkhead.in_use == 0


async def test_a_cancelled_wait_leaves_the_queue() -> None:
    bulkhead = Bulkhead(1, max_wait=None)
    bulkhead.acquire()
    waiting = asyncio.create_task(bulkhead.aacquire())
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin to wait
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    bulkhead.release()
    assert bulkhead.in_use == 0


def test_a_waiter_whose_event_loop_is_gone_does_not_take_the_place_with_it() -> None:
    bulkhead = Bulkhead(1, max_wait=None)
    bulkhead.acquire()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(bulkhead.aacquire())
    loop.run_until_complete(asyncio.wait_for(asyncio.shield(loop.create_task(_turn())), 30))
    assert len(bulkhead._queue) == 1
    loop.close()
    bulkhead.release()
    assert bulkhead.in_use == 0
    waiting.get_coro().close()
    del waiting


async def _turn() -> None:
    await asyncio.sleep(0)  # noqa: TID251 - lets the others run; no time passes


class Interrupting(ManualClock):
    """A clock whose waits end with Ctrl-C, before or after what was waited for has come."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.meanwhile = meanwhile

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        self.meanwhile()
        raise KeyboardInterrupt


def test_an_interrupted_wait_of_a_thread_leaves_the_queue() -> None:
    bulkhead = Bulkhead(1, max_wait=None, clock=Interrupting())
    bulkhead.acquire()
    with pytest.raises(KeyboardInterrupt):
        bulkhead.acquire()
    assert not bulkhead._queue
    bulkhead.release()
    assert bulkhead.in_use == 0


def test_a_place_granted_to_a_thread_in_the_moment_of_its_interrupt_is_given_back() -> None:
    clock = Interrupting()
    bulkhead = Bulkhead(1, max_wait=None, clock=clock)
    clock.meanwhile = bulkhead.release
    bulkhead.acquire()
    with pytest.raises(KeyboardInterrupt):
        bulkhead.acquire()
    assert bulkhead.in_use == 0


def test_a_place_granted_to_a_thread_in_the_moment_its_time_is_over_is_its_own() -> None:
    class JustInTime(ManualClock):
        def wait(self, event: threading.Event, seconds: float | None) -> bool:
            assert not event.is_set()
            bulkhead.release()
            return False  # as an Event may say that was set right after its time was over

    bulkhead = Bulkhead(1, max_wait=5.0, clock=JustInTime())
    bulkhead.acquire()
    bulkhead.acquire()
    assert bulkhead.in_use == 1


async def test_a_place_granted_to_a_coroutine_in_the_moment_its_time_is_over_is_its_own() -> None:
    clock = ManualClock()
    bulkhead = Bulkhead(1, max_wait=5.0, clock=clock)
    bulkhead.acquire()
    waiting = asyncio.create_task(bulkhead.aacquire())
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin to wait
    clock.advance(5.0)
    bulkhead.release()
    await waiting
    assert bulkhead.in_use == 1


def test_never_more_than_allowed_at_once_over_many_threads() -> None:
    bulkhead = Bulkhead(3, max_wait=None)
    lock = threading.Lock()
    now = most = 0

    def call(_: int) -> None:
        nonlocal now, most
        for _ in range(200):
            with bulkhead:
                with lock:
                    now += 1
                    most = max(most, now)
                with lock:
                    now -= 1

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(call, range(8)):
            pass
    assert most <= 3
    assert bulkhead.in_use == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_concurrent": 0}, "max_concurrent=0: must be a whole number of at least 1"),
        ({"max_concurrent": 1, "max_wait": -1.0}, "max_wait=-1.0: must be a number, at least 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Bulkhead(**settings)
