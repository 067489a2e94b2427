"""Servers that fail: nothing is done by half, nothing twice, and what is wrong is said in one line."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from holdfast.clock import SystemClock, new_token
from holdfast.errors import StoreAway, StoreError
from holdfast.ports import Claim, Exchange, Note, Operation, Settlement, WorkerRecord
from holdfast.stores.redis import RedisStore
from holdfast.testing import FaultProxy
from holdfast.testing.store_suite import claim, enqueue, new_job, settle
from holdfast.testing.store_suite.steps import dead_letter
from holdfast.types import Change, JobState, NewJob
from tests.servers import NOT_INSTALLED, RedisServer, free_port, missing, program
from tests.unit.stores.redis.conftest import check_books_of

CLOCK = SystemClock()


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def far(redis_server: RedisServer, proxy: FaultProxy, prefix: str) -> AsyncIterator[RedisStore]:
    """The same store, by way of the proxy."""
    store = RedisStore(redis_server.dsn(port=proxy.port), prefix=prefix, answer_within_s=0.3)
    yield store
    proxy.heal()
    await store.close()


async def test_an_enqueue_whose_reply_was_lost_makes_one_job(far: RedisStore, proxy: FaultProxy) -> None:
    await enqueue(far)
    proxy.drop_reply()
    job = new_job()
    (answer,) = far.enqueue_now([job])
    assert (answer.id, answer.is_new) == (job.id, False), "it was there when it was sent again"
    assert proxy.traffic.replies_dropped == 1
    assert (await far.stats()).tallies[0].n == 2


async def test_a_claim_whose_reply_was_lost_brings_what_it_brought(far: RedisStore, proxy: FaultProxy) -> None:
    await enqueue(far, *(new_job() for _ in range(5)))
    await far.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    await far.exchange(Exchange())
    proxy.drop_reply(to=b"EVALSHA")
    wish = Claim(worker="w", token=new_token(), limit=3)
    assert len((await far.exchange(Exchange(claim=wish))).deliveries) == 3
    assert proxy.traffic.replies_dropped == 1
    assert {one.state: one.n for one in (await far.stats()).tallies} == {JobState.QUEUED: 2, JobState.RUNNING: 3}


async def test_a_settlement_whose_reply_was_lost_took_effect_once(far: RedisStore, proxy: FaultProxy) -> None:
    await enqueue(far)
    (delivery,) = await claim(far)
    proxy.drop_reply(to=delivery.id.encode())
    assert await settle(far, delivery, Change.RETRY)
    assert proxy.traffic.replies_dropped == 1
    (again,) = await claim(far)
    assert (again.attempt, again.retries) == (2, 1)


async def test_a_cancellation_whose_reply_was_lost_says_that_it_was_done(far: RedisStore, proxy: FaultProxy) -> None:
    job_id, other = await enqueue(far, new_job(), new_job())
    await far.change(Operation(change=Change.CANCEL, ids=[other]))
    proxy.drop_reply(to=b"cancel")
    (changed,) = await far.change(Operation(change=Change.CANCEL, ids=[job_id]))
    assert proxy.traffic.replies_dropped == 1
    assert (changed.is_done, changed.state) == (True, JobState.CANCELLED)


async def test_a_cancelled_job_is_told_though_the_reply_was_lost(far: RedisStore, proxy: FaultProxy) -> None:
    await enqueue(far)
    (delivery,) = await claim(far)
    await far.change(Operation(change=Change.CANCEL, ids=[delivery.id]))
    proxy.drop_reply(to=b"EVALSHA")
    worker = WorkerRecord(id="w1", lease_s=60.0)
    assert (await far.heartbeat(worker)).cancelled == (delivery.id,)
    assert proxy.traffic.replies_dropped == 1
    assert (await far.heartbeat(worker)).cancelled == ()


async def test_orphans_are_handed_out_once_though_the_reply_was_lost(far: RedisStore, proxy: FaultProxy) -> None:
    await enqueue(far, new_job(), new_job())
    await claim(far, worker="w1")
    far.clock_offset_s += 100.0
    await far.heartbeat(WorkerRecord(id="w2", lease_s=600.0))
    proxy.drop_reply(to=b"EVALSHA")
    orphans = await far.reclaim("w2", new_token(), 10)
    assert proxy.traffic.replies_dropped == 1
    assert [one.orphaned for one in orphans] == [1, 1]
    assert await far.reclaim("w2", new_token(), 10) == []


async def test_a_note_whose_reply_was_lost_is_remembered(far: RedisStore, proxy: FaultProxy) -> None:
    await enqueue(far)
    (delivery,) = await claim(far)
    proxy.drop_reply(to=delivery.id.encode())
    assert await far.note(Note(id=delivery.id, token=delivery.token, step=("a", b"1"), progress=0.5)) is True
    assert proxy.traffic.replies_dropped == 1
    await settle(far, delivery, Change.RELEASE)
    (again,) = await claim(far)
    assert again.notes is not None
    assert again.notes.steps == {"a": b"1"}


@pytest.mark.parametrize("change", [Change.REPLAY, Change.REMOVE])
async def test_what_people_do_is_done_once_though_the_reply_was_lost(
    far: RedisStore, proxy: FaultProxy, change: Change
) -> None:
    job_id = await dead_letter(far)
    proxy.drop_reply(to=change.value.encode())
    (changed,) = await far.change(Operation(change=change, ids=[job_id]))
    assert proxy.traffic.replies_dropped == 1
    assert changed.is_done
    (record,) = await far.get([job_id])
    assert (record and record.replays) == (1 if change is Change.REPLAY else None)


async def test_connections_that_were_cut_are_made_anew(far: RedisStore, proxy: FaultProxy) -> None:
    await enqueue(far)
    for _ in range(3):
        proxy.reset()
        await enqueue(far)
        await far.heartbeat(WorkerRecord(id="w", lease_s=60.0))
        await far.exchange(Exchange())
    assert (await far.stats()).tallies[0].n == 4


async def test_a_server_that_does_not_answer_is_away(far: RedisStore, proxy: FaultProxy) -> None:
    await enqueue(far)
    proxy.blackhole()
    with pytest.raises(StoreAway, match="no answer in time"):
        await enqueue(far)
    proxy.heal()
    await enqueue(far)


async def test_a_server_that_is_gone_is_away_and_comes_back() -> None:
    # By default Redis may put off a write that it has answered for while the disk is busy, and then a kill loses it.
    with RedisServer({"appendonly": "yes", "appendfsync": "always"}) as server:
        store = RedisStore(server.dsn())
        (job_id,) = await enqueue(store)
        server.kill()
        with pytest.raises(StoreAway, match="cannot be reached") as caught:
            await enqueue(store)
        assert server.password not in str(caught.value)
        server.start()
        assert (await store.get([job_id]))[0] is not None
        await store.close()


async def test_scripts_that_the_server_forgot_are_loaded_again(store: RedisStore, client: redis.Redis) -> None:
    await enqueue(store)
    client.script_flush()
    await enqueue(store)
    client.script_flush()
    assert len(await claim(store)) == 2


async def test_a_primary_that_became_a_replica_is_told(redis_server: RedisServer) -> None:
    with RedisServer() as server:
        store = RedisStore(server.dsn())
        await enqueue(store)
        with server.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", str(redis_server.port))
        with pytest.raises(StoreAway, match="is a replica, nothing was written"):
            await enqueue(store)
        with server.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
        await enqueue(store)
        await store.close()


async def test_after_a_failover_the_new_primary_is_found(proxy: FaultProxy, redis_server: RedisServer) -> None:
    """The address leads to another server, and the old one takes no writes any more."""
    with RedisServer() as old, RedisServer() as new:
        proxy.upstream = ("127.0.0.1", old.port)
        store = RedisStore(old.dsn(port=proxy.port))
        await enqueue(store)
        with old.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", str(new.port))
        proxy.upstream = ("127.0.0.1", new.port)
        (job_id,) = await enqueue(store)
        assert (await store.get([job_id]))[0] is not None
        await store.close()


# ---------------------------------------------------------------- full


def fill(client: redis.Redis) -> None:
    client.config_set("maxmemory", int(client.info("memory")["used_memory"]))
    client.config_set("maxmemory-policy", "noeviction")


async def test_a_full_server_takes_no_new_job_by_half_and_ends_what_is_under_way() -> None:
    with RedisServer() as server, server.client() as client:
        store = RedisStore(server.dsn())
        await enqueue(store, *(new_job(idempotency_key=str(n)) for n in range(20)))
        deliveries = await claim(store, limit=10)
        fill(client)
        refused = [new_job(task="other", idempotency_key=str(n)) for n in range(5)]
        with pytest.raises(StoreAway, match="memory is full, nothing was written"):
            await store.enqueue(refused)
        check_books_of(client, "holdfast")
        assert await store.get([job.id for job in refused]) == [None] * 5
        assert (await store.heartbeat(WorkerRecord(id="w1", lease_s=60.0))).is_alive
        settlements = [
            Settlement(id=one.id, token=one.token, change=Change.COMPLETE, result=b"x" * 1000, keep_s=1.0)
            for one in deliveries
        ]
        wish = Claim(worker="w1", token=new_token(), limit=10)
        answer = await store.exchange(Exchange(settlements=settlements, claim=wish))
        assert all(answer.settled)
        assert len(answer.deliveries) == 10
        check_books_of(client, "holdfast")
        ids = [one.id for one in answer.deliveries]
        assert all(one.is_done for one in await store.change(Operation(change=Change.CANCEL, ids=ids)))
        store.clock_offset_s += 2 * 86_400.0
        assert await store.prune(100) == 10
        check_books_of(client, "holdfast")
        client.config_set("maxmemory", 0)
        assert all(one.is_new for one in await store.enqueue(refused))
        await store.close()


async def test_a_server_that_cannot_save_is_told() -> None:
    with RedisServer({"save": "3600 1000000"}) as server, server.client() as client:
        store = RedisStore(server.dsn())
        (job_id,) = await enqueue(store)
        (server.folder / "dump.rdb").mkdir()  # no snapshot can be put there
        client.bgsave()
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            SystemClock().sleep(0.01)
        with pytest.raises(StoreAway, match="cannot save to its disk"):
            await enqueue(store)
        check_books_of(client, "holdfast")
        assert (await store.get([job_id]))[0] is not None
        await store.close()


async def test_one_that_cannot_be_written_is_named_and_its_neighbours_are_not_harmed(store: RedisStore) -> None:
    await enqueue(store, new_job(), new_job())
    good, bad = await claim(store)
    settlements = [
        Settlement(id=good.id, token=good.token, change=Change.COMPLETE),
        Settlement(id=bad.id, token=bad.token, change=Change.PARK, reason="half a \ud83d pair"),
    ]
    with pytest.raises(StoreError, match=bad.id):
        await store.exchange(Exchange(settlements=settlements))
    assert await settle(store, good, Change.COMPLETE)
    assert await settle(store, bad, Change.COMPLETE)


async def test_callers_do_not_fail_for_each_other(store: RedisStore) -> None:
    """New jobs of several callers go together; one that cannot be written fails alone."""
    await enqueue(store)
    bad = NewJob(id=new_job().id, task="half \ud83d", payload=b"{}")
    sending = [store.enqueue([job]) for job in (new_job(), bad, new_job())]
    answers = await asyncio.gather(*sending, return_exceptions=True)
    assert [isinstance(answer, Exception) for answer in answers] == [False, True, False]


# ---------------------------------------------------------------- replicas


async def test_a_write_waits_for_replicas() -> None:
    with RedisServer() as primary, RedisServer({"replicaof": f"127.0.0.1 {primary.port}"}) as replica:
        store = RedisStore(primary.dsn(), wait_replicas=1, wait_s=30.0)
        (job_id,) = await enqueue(store)
        with replica.client() as client:
            assert client.hexists("{holdfast}:state", job_id)
        assert len(await claim(store)) == 1
        await store.close()


async def test_many_writes_wait_once_for_replicas(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.dsn(), prefix=redis_server.fresh_prefix(), wait_replicas=1, wait_s=0.3)
    began_s = CLOCK.monotonic()
    writing = [store.enqueue([new_job(idempotency_key=str(n))]) for n in range(100)]
    answers = await asyncio.gather(*writing, return_exceptions=True)
    assert all(isinstance(answer, StoreAway) for answer in answers)
    assert CLOCK.monotonic() - began_s < 15.0, "not 0.3 s for each"
    await store.close()


async def test_without_time_to_wait_in_nobody_waits_for_ever(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.dsn(), prefix=redis_server.fresh_prefix(), wait_replicas=1, wait_s=0.0)
    with pytest.raises(StoreAway, match="0 of 1 replicas have it"):
        await enqueue(store)
    await store.close()


async def test_after_a_failover_writes_wait_for_the_replicas_of_the_new_primary(proxy: FaultProxy) -> None:
    """The old one is a replica by now: it takes neither writes nor WAIT."""
    with RedisServer() as old, RedisServer() as new, RedisServer({"replicaof": f"127.0.0.1 {new.port}"}):
        proxy.upstream = ("127.0.0.1", old.port)
        store = RedisStore(old.dsn(port=proxy.port), wait_replicas=1, wait_s=10.0)
        assert store.capabilities.version
        with old.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", str(new.port))
        with pytest.raises(StoreAway, match="is a replica, nothing was written"):
            await enqueue(store)
        proxy.upstream = ("127.0.0.1", new.port)
        (job_id,) = await enqueue(store)
        assert (await store.get([job_id]))[0] is not None
        await store.close()


async def test_a_write_that_no_replica_has_is_an_error_and_may_be_sent_again(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.dsn(), prefix=redis_server.fresh_prefix(), wait_replicas=1, wait_s=0.01)
    job = new_job()
    with pytest.raises(StoreAway, match="0 of 1 replicas have it"):
        await store.enqueue([job])
    assert (await store.get([job.id]))[0] is not None, "reads do not wait"
    with pytest.raises(StoreAway, match="replicas"):
        store.enqueue_now([job])
    assert (await store.stats()).tallies[0].n == 1
    await store.close()


# ---------------------------------------------------------------- a server with a language of its own


@pytest.fixture
def danish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A server that compares texts as its machine's language does, and in Danish `aa` is the last letter."""
    made = [program("localedef", "locales"), "-i", "da_DK", "-f", "UTF-8", str(tmp_path / "da_DK.UTF-8")]
    if subprocess.run(made, check=False, capture_output=True).returncode:
        missing(f"DANISH {NOT_INSTALLED}: apt-get install locales")
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    monkeypatch.setenv("LC_ALL", "da_DK.UTF-8")
    with RedisServer() as server, server.client() as client:
        assert client.eval("return 'aa' > 'b0' and 1 or 0", 0) == 1, "it is not Danish: this run shows nothing"
        yield server


async def test_a_claim_is_told_from_a_late_one_whatever_the_language_of_the_server(danish: RedisServer) -> None:
    store = RedisStore(danish.dsn())
    await enqueue(store, *(new_job() for _ in range(3)))
    for time in (b"\xa9", b"\xaa", b"\xb0"):
        (delivery,) = await claim(store, token=b"\1" + time + bytes(23), limit=1)
        assert await settle(store, delivery, Change.COMPLETE) is True
    await store.close()


# ---------------------------------------------------------------- a cluster


@pytest.fixture
def cluster() -> Iterator[tuple[RedisServer, RedisServer]]:
    """Two nodes that know each other; the first has all slots."""
    options = [{"cluster-enabled": "yes", "cluster-port": str(free_port())} for _ in range(2)]
    with RedisServer(options[0]) as first, RedisServer(options[1]) as second:
        with first.client() as a, second.client() as b:
            a.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            b.execute_command("CLUSTER MEET", "127.0.0.1", first.port, options[0]["cluster-port"])
            while not all(one.execute_command("CLUSTER INFO")["cluster_state"] == "ok" for one in (a, b)):
                CLOCK.sleep(0.01)
        yield first, second


async def test_any_node_of_a_cluster_leads_to_the_one_that_has_our_keys(
    cluster: tuple[RedisServer, RedisServer],
) -> None:
    first, second = cluster
    store = RedisStore(second.dsn())
    (job_id,) = await enqueue(store)
    (delivery,) = await claim(store)
    assert (await settle(store, delivery, Change.COMPLETE)) is True
    with first.client() as client:
        assert client.hexists("{holdfast}:state", job_id)
    await store.close()


async def test_keys_that_go_to_another_node_are_followed(cluster: tuple[RedisServer, RedisServer]) -> None:
    first, second = cluster
    store = RedisStore(first.dsn())
    await store.exchange(Exchange())
    with first.client() as a, second.client() as b:
        a.flushall()
        name = b.execute_command("CLUSTER MYID")
        slot = a.execute_command("CLUSTER KEYSLOT", "{holdfast}:")
        for node in (b, a):
            node.execute_command("CLUSTER SETSLOT", slot, "NODE", name)
        (job_id,) = [answer.id for answer in store.enqueue_now([new_job()])]
        assert b.hexists("{holdfast}:state", job_id)
    await store.close()
