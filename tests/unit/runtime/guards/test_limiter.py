"""The rate limiter behind its lock: waiting, refusing, keys, threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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


async def turns(clock: ManualClock, seconds: float = 0.0) -> None:
    """Move the clock, and let everybody run until nothing more happens."""
    clock.advance(seconds)
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251 - lets the others run; no time passes


async def test_a_newcomer_does_not_overtake_those_who_wait() -> None:
    clock = ManualClock(auto=False)
    limiter = RateLimiter(1, 10.0, clock=clock)
    limiter.acquire()
    waiting = asyncio.create_task(limiter.aacquire())
    await turns(clock)
    clock.advance(10.0)  # there is room now, and the one who waited for it has not woken up yet
    assert not limiter.allow()
    await waiting
    assert not limiter.allow()
    clock.advance(10.0)
    assert limiter.allow()


async def test_one_who_was_let_into_the_queue_is_not_refused_when_those_ahead_oversleep() -> None:
    clock = ManualClock(auto=False)
    limiter = RateLimiter(1, 10.0, max_wait=20.0, clock=clock)
    started: list[tuple[str, float]] = []

    async def call(name: str) -> None:
        await limiter.aacquire()
        started.append((name, clock.monotonic()))

    calls = [asyncio.create_task(call(name)) for name in ("first", "ahead", "behind")]
    await turns(clock)
    with pytest.raises(RateLimitExceeded) as caught:
        await limiter.aacquire()
    assert caught.value.retry_after == 30.0
    await turns(clock, 20.0)  # "ahead" was to wake up after 10
    assert started == [("first", 0.0), ("ahead", 20.0)]
    await turns(clock, 10.0)
    await asyncio.gather(*calls)
    assert started[-1] == ("behind", 30.0)


def test_one_who_wakes_up_before_those_ahead_leaves_the_start_to_them(clock: ManualClock) -> None:
    limiter = RateLimiter(1, 10.0, clock=clock)
    limiter.acquire()
    ahead, behind = limiter._waits(""), limiter._waits("")
    assert [next(ahead), next(behind)] == [10.0, 20.0]
    clock.advance(20.0)
    assert next(behind) == 10.0
    assert list(ahead) == []
    assert next(behind) == 10.0
    clock.advance(10.0)
    assert list(behind) == []


async def test_one_who_is_refused_leaves_the_queue() -> None:
    clock = ManualClock()
    limiter = RateLimiter(1, 10.0, max_wait=5.0, clock=clock)
    limiter.acquire()
    for _ in range(3):
        with pytest.raises(RateLimitExceeded) as caught:
            limiter.acquire()
        assert caught.value.retry_after == 10.0
    assert limiter._buckets[""].queue == []


async def test_a_cancelled_wait_moves_those_behind_it_forward() -> None:
    clock = ManualClock(auto=False)
    limiter = RateLimiter(1, 10.0, clock=clock)
    limiter.acquire()
    cancelled = asyncio.create_task(limiter.aacquire())
    await turns(clock)
    behind = asyncio.create_task(limiter.aacquire())
    await turns(clock)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert limiter._buckets[""].queue == [1]
    await turns(clock, 10.0)
    newcomer = asyncio.create_task(limiter.aacquire())
    await turns(clock, 10.0)
    assert behind.done()
    assert not newcomer.done()
    await turns(clock, 10.0)
    await newcomer


async def test_many_who_wait_start_in_the_order_they_came_and_never_too_many() -> None:
    clock = ManualClock(auto=False)
    limiter = RateLimiter(3, 10.0, clock=clock)
    started: list[tuple[int, float]] = []

    async def call(number: int) -> None:
        await limiter.aacquire()
        started.append((number, clock.monotonic()))

    calls = [asyncio.create_task(call(number)) for number in range(40)]
    await turns(clock)
    refused = []
    for _ in range(13):
        refused.append(limiter.allow())
        await turns(clock, 10.0)
    await asyncio.gather(*calls)
    assert started == [(number, 10.0 * (number // 3)) for number in range(40)]
    assert sorted(clock.sleeps) == [10.0 * (number // 3) for number in range(3, 40)]  # nobody woke up in vain
    assert not any(refused)


async def test_a_key_with_somebody_waiting_is_not_forgotten() -> None:
    clock = ManualClock(auto=False)
    limiter = RateLimiter(1, 10.0, clock=clock)
    limiter.acquire("ann")
    waiting = asyncio.create_task(limiter.aacquire("ann"))
    await turns(clock)
    limiter._buckets._sweep_at = 1
    clock.advance(10.0)  # the start that was remembered is forgotten, and the one who waits has not woken up yet
    limiter.allow("bob")
    await waiting
    assert not limiter.allow("ann")


def seen_before_it_was_forgotten(clock: ManualClock) -> tuple[RateLimiter, Any]:
    """A limiter as a thread sees it that looked just before a sweep ended, and the bucket that was forgotten."""
    limiter = RateLimiter(1, 60.0, clock=clock)
    limiter.allow("ann")
    clock.advance(60.0)
    old = limiter._buckets["ann"]
    assert limiter._retire(old)

    class SeenBefore(dict[str, Any]):
        """The old bucket, once."""

        def get(self, key: str, default: Any = None) -> Any:
            return seen.pop() if seen else super().get(key, default)

    seen = [old]
    limiter._buckets.things = SeenBefore()
    return limiter, old


def test_a_start_is_never_taken_from_a_bucket_that_has_just_been_forgotten(clock: ManualClock) -> None:
    limiter, old = seen_before_it_was_forgotten(clock)
    assert limiter.allow("ann")
    assert not limiter.allow("ann")
    assert not old.starts.entries


def test_nobody_stands_in_the_queue_of_a_key_that_has_just_been_forgotten(clock: ManualClock) -> None:
    limiter, old = seen_before_it_was_forgotten(clock)
    bucket, ticket, wait = limiter._join("ann")
    assert bucket is limiter._buckets["ann"]
    assert bucket is not old
    assert (ticket, wait) == (0, 0.0)
    assert not old.starts.entries
    assert not old.queue


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
