"""Hooks run in order, sync or async, and a broken one at the end stops no other."""

from __future__ import annotations

import pytest

from holdfast.runtime.hooks import Hooks


async def test_startup_in_order_shutdown_in_reverse_sync_or_async(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []
    hooks = Hooks()

    async def pool() -> None:
        calls.append("pool")

    def cache() -> None:
        calls.append("cache")

    async def broken() -> None:
        raise ZeroDivisionError

    hooks.on_startup += [pool, cache]
    hooks.on_shutdown += [pool, broken, cache]
    await hooks.start()
    await hooks.stop()
    assert calls == ["pool", "cache", "cache", "pool"]
    assert "broken" in caplog.text


async def test_a_startup_hook_that_raises_is_the_last() -> None:
    calls: list[str] = []
    hooks = Hooks()

    def broken() -> None:
        raise ZeroDivisionError

    hooks.on_startup += [broken, lambda: calls.append("after")]
    with pytest.raises(ZeroDivisionError):
        await hooks.start()
    assert calls == []
