"""Opening a server: what is said of it, and what is refused in one line that helps."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Mapping

import pytest
import redis

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError, StoreAway, StoreError
from holdfast.ports import Capabilities, Query
from holdfast.stores.redis import RedisStore
from holdfast.testing import FaultProxy
from holdfast.testing.store_suite import claim, enqueue, new_job
from tests.servers import RedisServer, free_port

CLOCK = SystemClock()


async def capabilities_with(options: Mapping[str, str]) -> Capabilities:
    with RedisServer(options) as server:
        store = RedisStore(server.dsn())
        try:
            return store.capabilities
        finally:
            await store.close()


def refusal_of(url: str, kind: type[StoreError] = StoreError) -> str:
    with pytest.raises(kind) as caught:
        _ = RedisStore(url).capabilities
    message = str(caught.value)
    assert message.startswith("redis://127.0.0.1")
    assert "\n" not in message
    assert RedisServer.password not in message.replace("password", "")
    return message


async def test_a_server_that_keeps_nothing_on_disk_is_said_to_keep_nothing() -> None:
    found = await capabilities_with({})
    assert not found.is_durable
    assert "gone when it stops" in found.durability
    assert any("appendonly yes" in line for line in found.warnings)
    assert found.version.startswith(("Redis ", "Valkey "))
    assert found.schema == "keys {holdfast}:…, version 2"


async def test_snapshots_alone_are_said_to_lose_minutes() -> None:
    found = await capabilities_with({"save": "300 10"})
    assert not found.is_durable
    assert "snapshot" in found.durability


async def test_a_log_synced_every_second_is_not_called_durable() -> None:
    found = await capabilities_with({"appendonly": "yes"})
    assert not found.is_durable
    assert "since the last sync" in found.durability
    assert "death of its process" in found.durability
    assert found.warnings == ("appendfsync is everysec: set it to always if nothing that is acknowledged may be lost",)


async def test_a_log_synced_always_is_durable() -> None:
    found = await capabilities_with({"appendonly": "yes", "appendfsync": "always"})
    assert found.is_durable
    assert found.warnings == ()


async def test_replicas_that_nobody_waits_for_are_warned_of() -> None:
    durable = {"appendonly": "yes", "appendfsync": "always"}
    with RedisServer(durable) as primary, RedisServer({"replicaof": f"127.0.0.1 {primary.port}"}):
        with primary.client() as client:
            while not client.info("replication")["connected_slaves"]:
                await CLOCK.asleep(0.01)
        stores = [RedisStore(primary.dsn(), wait_replicas=replicas) for replicas in (0, 1)]
        hasty, patient = [store.capabilities for store in stores]
        for store in stores:
            await store.close()
    (line,) = hasty.warnings
    assert hasty.is_durable, "that is about the server's own disk"
    assert "a failover may lose what was acknowledged" in line
    assert "?wait_replicas=1" in line
    assert patient.warnings == ()


async def test_a_server_that_hides_its_settings_is_used_and_what_is_unknown_is_said() -> None:
    with RedisServer({"appendonly": "yes"}) as server, server.client() as client:
        client.acl_setuser(
            "guest",
            enabled=True,
            passwords=["+guess"],
            categories=["+@all"],
            commands=["-config"],
            keys=["*"],
            channels=["*"],
        )
        store = RedisStore(f"redis://guest:guess@127.0.0.1:{server.port}/0")
        found = store.capabilities
        await enqueue(store)
        await store.close()
    assert not found.is_durable
    assert "does not tell" in found.durability
    assert any("appendfsync" in line for line in found.warnings)


async def test_a_server_that_evicts_is_refused() -> None:
    with RedisServer({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        assert "set maxmemory-policy noeviction" in refusal_of(server.dsn())
        with server.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
        await RedisStore(server.dsn()).close()


async def test_a_policy_that_would_evict_under_a_limit_is_warned_of() -> None:
    found = await capabilities_with({"maxmemory-policy": "volatile-lru"})
    assert any("volatile-lru" in line for line in found.warnings)


async def test_a_replica_is_refused(redis_server: RedisServer) -> None:
    with RedisServer({"replicaof": f"127.0.0.1 {redis_server.port}"}) as replica:
        assert "connect to the primary" in refusal_of(replica.dsn())


async def test_a_wrong_password_is_told_without_it(redis_server: RedisServer) -> None:
    assert "password is wrong" in refusal_of(f"redis://:mistaken@127.0.0.1:{redis_server.port}/0")
    assert "wants a password" in refusal_of(f"redis://127.0.0.1:{redis_server.port}/0")


def test_a_number_that_is_no_database_is_told_with_those_that_are(redis_server: RedisServer) -> None:
    message = refusal_of(f"redis://:{RedisServer.password}@127.0.0.1:{redis_server.port}/99")
    assert "/99?prefix=holdfast: there is no database of this number; there are 16" in message


def test_tls_on_a_port_without_it_is_told(redis_server: RedisServer) -> None:
    with pytest.raises(StoreAway, match=r"that this port speaks TLS \(redis:// is for one that does not\)"):
        _ = RedisStore(
            f"rediss://:{RedisServer.password}@127.0.0.1:{redis_server.port}/0", answer_within_s=0.3
        ).capabilities


async def test_connections_have_a_name_for_people(redis_server: RedisServer, client: redis.Redis) -> None:
    for url, name in ((redis_server.dsn(), "holdfast"), (f"{redis_server.dsn()}?client_name=mine", "mine")):
        store = RedisStore(url)
        await enqueue(store)
        await store.wait(0.0)
        names = [one["name"] for one in client.client_list() if one["name"]]
        await store.close()
        assert len(names) >= 2
        assert set(names) == {name}


async def test_a_user_that_may_not_name_its_connection_goes_without(
    redis_server: RedisServer, client: redis.Redis
) -> None:
    client.acl_setuser(
        "guest",
        enabled=True,
        passwords=["+guess"],
        categories=["+@all"],
        commands=["-client"],
        keys=["*"],
        channels=["*"],
    )
    store = RedisStore(f"redis://guest:guess@127.0.0.1:{redis_server.port}/0")
    await enqueue(store)
    await store.close()
    client.acl_deluser("guest")


def test_a_server_that_is_not_there_is_away() -> None:
    assert "cannot be reached" in refusal_of(f"redis://:secret@127.0.0.1:{free_port()}/0", StoreAway)


async def test_a_user_that_may_not_run_scripts_is_told(redis_server: RedisServer, client: redis.Redis) -> None:
    rights = ["+@all", "-@scripting"]
    client.acl_setuser("guest", enabled=True, passwords=["+guess"], categories=rights, keys=["*"], channels=["*"])
    assert "needs scripts" in refusal_of(f"redis://guest:guess@127.0.0.1:{redis_server.port}/0")
    client.acl_deluser("guest")


async def test_jobs_of_a_newer_version_are_not_touched(store: RedisStore, client: redis.Redis, prefix: str) -> None:
    await enqueue(store)
    client.hset(f"{{{prefix}}}:meta", "schema", "99")
    other = RedisStore(store._address.url, prefix=prefix)
    with pytest.raises(StoreError, match=r"schema 99 .* update Holdfast"):
        _ = other.capabilities


async def test_prefixes_are_worlds_of_their_own(redis_server: RedisServer, client: redis.Redis) -> None:
    stores = [RedisStore(redis_server.dsn(), prefix=redis_server.fresh_prefix()) for _ in range(2)]
    (job_id,) = await enqueue(stores[0])
    assert await stores[1].get([job_id]) == [None]
    assert await stores[1].enqueue([new_job()])
    for store in stores:
        await store.close()
    assert all(bytes(key).startswith(b"{test") for key in client.scan_iter())


@pytest.mark.parametrize("prefix", ["", "a b", "{x}", "ü", "x" * 64])
def test_a_prefix_that_may_clash_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="prefix"):
        RedisStore("redis://localhost", prefix=prefix)


@pytest.mark.parametrize(
    "options",
    [{"wait_replicas": -1}, {"wait_s": -1.0}, {"key_window_s": -1.0}, {"answer_within_s": 0.0}],
    ids=lambda options: next(iter(options)),
)
def test_a_setting_that_cannot_work_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        RedisStore("redis://localhost", **options)  # type: ignore[arg-type]


def test_a_url_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="url"):
        RedisStore("redis://localhost:port")


async def test_a_server_is_reached_by_a_socket_file() -> None:
    with RedisServer() as server, server.client() as client:
        path = server.folder / "socket"
        server.options["unixsocket"] = str(path)
        server.kill()
        server.start()
        store = RedisStore(f"unix://:{server.password}@{path}")
        assert store.capabilities.location == f"unix://{path}?prefix=holdfast"
        (job_id,) = await enqueue(store)
        assert client.hexists("{holdfast}:state", job_id)
        await store.close()


async def test_a_closed_store_says_so(store: RedisStore) -> None:
    await enqueue(store)
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await enqueue(store)


async def test_opening_a_silent_server_does_not_hold_up_the_event_loop(redis_server: RedisServer) -> None:
    with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        proxy.blackhole()
        store = RedisStore(redis_server.dsn(port=proxy.port), answer_within_s=0.3)
        opening = asyncio.create_task(enqueue(store))
        turns = 0
        while not opening.done():
            await CLOCK.asleep(0.01)
            turns += 1
        with pytest.raises(StoreAway, match="no answer in time"):
            await opening
        assert turns > 5
        proxy.heal()
        await store.close()


async def test_a_store_is_closed_at_once_while_its_listener_hears_nothing(redis_server: RedisServer) -> None:
    with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        store = RedisStore(redis_server.dsn(port=proxy.port), prefix=redis_server.fresh_prefix())
        await enqueue(store)
        asked = proxy.traffic.requests_bytes
        proxy.blackhole("replies")
        waiting = asyncio.create_task(store.wait(300.0))
        while proxy.traffic.requests_bytes == asked:
            await CLOCK.asleep(0.01)  # until it has asked to be let in
        began_s = CLOCK.monotonic()
        await store.close()
        assert CLOCK.monotonic() - began_s < 4.0, "no answer is waited for: that takes 5 s"
        await waiting
        proxy.heal()


async def test_what_is_asked_for_while_the_store_closes_is_refused_in_a_line(store: RedisStore) -> None:
    opened = store._open()
    await store.close()
    for desk in (opened.people, opened.reader, opened.searches, opened.heartbeats):
        with pytest.raises(StoreError, match="the store is closed"):
            await desk.ask(lambda _: None)
    with pytest.raises(StoreError, match="the store is closed"):
        opened.enqueues.enqueue_now([new_job()])


async def test_closing_waits_for_a_caller_that_writes_on_its_own_thread(redis_server: RedisServer, prefix: str) -> None:
    with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        store = RedisStore(redis_server.dsn(port=proxy.port), prefix=prefix)
        await enqueue(store)
        asked = proxy.traffic.requests_bytes
        proxy.blackhole("replies")
        writing = asyncio.create_task(asyncio.to_thread(store.enqueue_now, [new_job()]))
        while proxy.traffic.requests_bytes == asked:
            await CLOCK.asleep(0.01)
        closing = asyncio.create_task(store.close())
        await CLOCK.asleep(0.05)
        assert not closing.done()
        proxy.heal()
        (answer,) = await writing
        assert answer.is_new, "it was sent once: nobody hung up"
        await closing


async def test_opening_and_closing_leaves_nothing_behind(redis_server: RedisServer, client: redis.Redis) -> None:
    async def live(prefix: str) -> None:
        store = RedisStore(redis_server.dsn(), prefix=prefix)
        await enqueue(store)
        await claim(store)
        await store.find(Query())
        await store.get([])
        await store.stats()
        await store.wait(0.0)
        store.enqueue_now([new_job()])
        await store.close()

    def connected() -> int:
        return len(client.client_list())

    before, others = connected(), set(threading.enumerate())
    for _ in range(20):
        await live(redis_server.fresh_prefix())
    gc.collect()
    assert [one.name for one in set(threading.enumerate()) - others if one.name.startswith("holdfast")] == []
    async with asyncio.timeout(10.0):
        while connected() > before:  # the server notices in its own time
            await CLOCK.asleep(0.01)


async def test_a_connection_of_the_callers_is_refused(store: RedisStore) -> None:
    with pytest.raises(ConfigError, match="connection"):
        await store.enqueue([new_job()], connection=object())


def test_the_package_is_imported_only_for_this_store() -> None:
    code = "import sys, holdfast; sys.exit('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_forked_child_has_connections_of_its_own(store: RedisStore) -> None:
    await enqueue(store)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if store.enqueue_now([new_job()])[0].is_new else 2
        finally:
            os._exit(status)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    await enqueue(store)
    assert [one.n for one in (await store.stats()).tallies] == [3]
