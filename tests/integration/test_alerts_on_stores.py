"""Health and alerts on every store: servers that share it tell each thing once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import App
from holdfast.alerts import Notice, NoWorker
from holdfast.ops.alerts import AlertLoop
from holdfast.ports import WorkerRecord
from tests.servers import RedisServer


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    return str(request.getfixturevalue(f"{request.param}_url"))


async def test_servers_that_look_at_the_same_time_tell_once(url: str) -> None:
    apps = [App(url) for _ in range(4)]
    got: list[Notice] = []
    for app in apps:
        app.alert("nobody works", when=NoWorker(), to=[got.append])
    loops = [AlertLoop(app) for app in apps]

    async def look() -> None:
        await asyncio.gather(*(loop.once() for loop in loops))
        await asyncio.gather(*(loop.sent() for loop in loops))

    await look()
    await look()
    assert [notice.state for notice in got] == ["firing"]
    assert [view.is_firing for view in await apps[3].alerts.alist()] == [True]
    await apps[0].store.heartbeat(WorkerRecord(id="w1", lease_s=60.0))
    await look()
    await look()
    assert [notice.state for notice in got] == ["firing", "resolved"]
    health = await apps[1].ahealth()
    assert (health.checks["store"].status, health.workers) == ("ok", 1)
    for app in apps:
        await app.aclose()


async def test_a_redis_server_whose_memory_is_full_is_ill() -> None:
    with RedisServer() as server:
        app = App(server.dsn())
        assert (await app.ahealth()).checks["store"].status == "ok"
        with server.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", 1)
            other = App(server.dsn())  # one that has not written lately
            health = await other.ahealth()
            assert (health.healthy, health.checks["store"].status) == (False, "failed")
            assert "its memory is full" in (health.checks["store"].error or "")
            client.config_set("maxmemory", 0)
            assert (await other.ahealth()).healthy
        await app.aclose()
        await other.aclose()
