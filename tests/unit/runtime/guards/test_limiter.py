"""The rate limiter behind its lock: waiting, refusing, keys, threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import ConfigError, RateLimiter, RateLimitExceeded
from holdfast.testing import ManualClock

pytestmark = pytest.mark.anyio


def test_so_many_calls_in_any_window_and_not_one_more(clock: ManualClock) -> None:
    limiter = RateLimiter(3, 60, clock=clock)
    allowed = []
    for _ in range(200):
        if limiter.allow():
            allowed.append(clock.monotonic())
        clock.advance(1.0)
    assert allowed == [0, 1, 2, 60, 61, 62, 120, 121, 122, 180, 181, 182]


def test_acquire_waits_exactly_until_there_is_room(clock: ManualClock) -> None:
    limiter = RateLimiter(2, 10.0, clock=clock)
    for _ in range(5):
        limiter.acquire()
    assert clock.sleeps == [10.0, 10.0]


async def test_coroutines_that_wait_each_have_their_own_turn() -> None:
    clock = ManualClock(auto=False)
    limiter = RateLimiter(2, 10.0, clock=clock)
    started: list[float] = []

    async def call() -> None:
        await limiter.aacquire()
        started.append(clock.monotonic())

    calls = [asyncio.create_task(call()) for _ in range(7)]
    for _ in range(40):
        for _ in range(10):
            await asyncio.sleep(0)  # noqa: TID251 - lets the others run; no time passes
        clock.advance(1.0)
    await asyncio.gather(*calls)
    assert started == [0, 0, 10, 10, 20, 20, 30]
    assert sorted(clock.sleeps) == [10, 10, 20, 20, 30]  # nobody woke up in vain


def test_a_wait_longer_than_allowed_is_refused_at_once(clock: ManualClock) -> None:
    limiter = RateLimiter(1, 60, max_wait=59.0, clock=clock)
    limiter.acquire("ann")
    with pytest.raises(RateLimitExceeded, match="rate limit for 'ann': the next start is in 60 s") as caught:
        limiter.acquire("ann")
    assert caught.value.retry_after == 60.0
    assert clock.sleeps == []
    clock.advance(1.0)
    limiter.acquire("ann")
    assert clock.sleeps == [59.0]


async def test_a_cancelled_wait_leaves_its_place_to_the_others() -> None:
    clock = ManualClock(auto=False)
    limiter = RateLimiter(1, 10.0, clock=clock)
    limiter.acquire()
    waiting = asyncio.create_task(limiter.aacquire())
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin to wait
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    clock.advance(10.0)
    assert limiter.allow()


def test_each_key_has_its_own_limit_and_idle_keys_are_forgotten(clock: ManualClock) -> None:
    limiter = RateLimiter(1, 60, clock=clock)
    assert limiter.allow("ann")
    assert limiter.allow("bob")
    assert not limiter.allow("ann")
    for number in range(25_000):
        limiter.allow(f"visitor {number}")
        clock.advance(0.1)
    assert len(limiter._buckets) <= 10_000
    assert not limiter.allow("visitor 24999")


def test_threads_together_keep_to_the_limit(clock: ManualClock) -> None:
    limiter = RateLimiter(100, 60, clock=clock)
    with ThreadPoolExecutor(8) as pool:
        granted = sum(pool.map(lambda _: sum(limiter.allow() for _ in range(100)), range(8)))
    assert granted == 100


def test_a_small_burst_spreads_the_rest_evenly(clock: ManualClock) -> None:
    limiter = RateLimiter(4, 8.0, burst=1, clock=clock)
    starts = []
    for _ in range(6):
        limiter.acquire()
        starts.append(clock.monotonic())
    assert starts == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_calls": 0, "time_window": 1}, "max_calls=0: must be a whole number of at least 1"),
        ({"max_calls": 1, "time_window": 0}, "time_window=0: must be a number, above 0"),
        ({"max_calls": 1, "time_window": 1, "max_wait": -1}, "max_wait=-1: must be a number, at least 0"),
        ({"max_calls": 1, "time_window": 1, "burst": 2}, "burst=2: must be at most max_calls, which is 1"),
    ],
)
def test_impossible_settings_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RateLimiter(**arguments)  # type: ignore[arg-type]
