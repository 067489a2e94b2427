"""Sync callers share one background loop; it can be closed, made again, and refuses to block a running loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.runtime.bridge import Bridge


async def double(n: int) -> int:
    return 2 * n


async def fail() -> None:
    raise ZeroDivisionError("in the coroutine")


async def thread_name() -> str:
    return threading.current_thread().name


def test_coroutines_run_on_one_background_thread() -> None:
    bridge = Bridge()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda n: bridge.run(double(n)), range(20))) == [2 * n for n in range(20)]
        assert set(pool.map(lambda _: bridge.run(thread_name()), range(5))) == {"holdfast-bridge"}
    with pytest.raises(ZeroDivisionError, match="in the coroutine"):
        bridge.run(fail())
    bridge.close()


async def test_async_code_is_told_to_await() -> None:
    with pytest.raises(HoldfastError, match="a… twin"):
        Bridge().run(double(1))


def test_a_closed_bridge_lets_its_thread_go_and_can_be_used_again() -> None:
    async def own_thread() -> threading.Thread:
        return threading.current_thread()

    bridge = Bridge()
    threads = []
    for _ in range(3):
        threads.append(bridge.run(own_thread()))
        bridge.close()
        threads[-1].join(5)
    bridge.close()
    assert len(set(threads)) == 3
    assert not any(thread.is_alive() for thread in threads)


def test_an_interrupt_of_the_caller_cancels_what_it_waited_for() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    begun, ended = threading.Event(), threading.Event()

    async def endless() -> None:
        begun.set()
        try:
            await SystemClock().asleep(0.05)  # until the caller waits
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            ended.set()

    bridge = Bridge()
    try:
        with pytest.raises(KeyboardInterrupt):
            bridge.run(endless())
    finally:
        signal.signal(signal.SIGINT, before)
    assert begun.is_set()
    assert ended.wait(5)
    bridge.close()
