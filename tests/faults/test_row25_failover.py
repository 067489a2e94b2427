"""Row 25: a Redis primary dies while its replica lags. What was not copied is lost, unless writes wait for a copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.clock import new_token
from holdfast.errors import StoreError
from holdfast.ports import Claim, Delivery, Exchange, Exchanged, Settlement, WorkerRecord
from holdfast.testing import FaultProxy
from holdfast.types import Change
from tests.faults import checker, load
from tests.faults.arena import Arena, completed
from tests.faults.conftest import waits
from tests.faults.engines import Engine, RedisEngine
from tests.faults.report import Report, figures_of
from tests.faults.workers import poll
from tests.servers import RedisServer

pytestmark = waits
STORE = "redis"
WAITING = "&wait_replicas=1&wait_s=0.2"


class Pair:
    """A primary, its replica behind a line of its own, and the address where clients find whichever is in charge."""

    def __init__(self, primary: RedisServer, replica: RedisServer, line: FaultProxy, address: FaultProxy) -> None:
        self._primary = primary
        self._replica = replica
        self.line = line
        self._address = address

    def engine(self, options: str = "") -> Engine:
        """What clients are given."""
        engine = RedisEngine(self._primary)
        engine.url = self._primary.url(port=self._address.port) + options
        return engine

    def is_in_step(self) -> bool:
        """Whether the replica has all that was written."""
        with self._primary.client() as client:
            state = client.info("replication")
        if not state["connected_slaves"]:
            return False
        replica = state["slave0"]
        return bool(replica["state"] == "online" and replica["offset"] == state["master_repl_offset"])

    def fail_over(self) -> None:
        """The primary dies, and the replica takes its place with what it has."""
        self._primary.kill()
        with self._replica.client() as client:
            client.replicaof("NO", "ONE")
        self._address.upstream = ("127.0.0.1", self._replica.port)
        self._address.reset()


@contextmanager
def pair_of_servers() -> Iterator[Pair]:
    with RedisServer() as primary, FaultProxy("127.0.0.1", primary.port) as line:
        options = {"replicaof": f"127.0.0.1 {line.port}"}
        with RedisServer(options) as replica, FaultProxy("127.0.0.1", primary.port) as address:
            pair = Pair(primary, replica, line, address)
            with primary.client() as client:
                client.config_set("repl-diskless-sync-delay", 0)
            poll(pair.is_in_step, 20, "the replica is in step")
            yield pair


@pytest.mark.parametrize("options", ["", WAITING], ids=["no wait", "wait for a copy"])
def test_what_is_acked_while_the_replica_lags_is_kept_only_with_a_wait(
    tmp_path: Path, options: str, is_full: bool, report: Report
) -> None:
    before, during = (2_000, 40 if options else 8_000) if is_full else (100, 5 if options else 200)
    refused = 0
    with pair_of_servers() as pair, closing(Arena(tmp_path, pair.engine(options), is_audited=False)) as arena:
        arena.enqueue([arena.call("work", n) for n in range(before)])
        poll(pair.is_in_step, 20, "the replica has them all")
        pair.line.blackhole()
        for n in range(during):
            try:
                load.enqueue(arena.app, arena.client, [arena.call("work", n)])
            except StoreError:
                refused += 1
        acked = len(arena.client.acked)
        pair.fail_over()
        with arena.fleet(url=pair.engine().url) as fleet:
            fleet.start()
            arena.quiesce(60)
            fleet.stop()
            evidence = arena.evidence(fleet)

    lost = frozenset(evidence.acked) - evidence.jobs.keys()
    assert checker.check(replace(evidence, removed=lost)) == []
    assert completed(evidence) == len(evidence.jobs)
    if options:
        assert (len(lost), refused) == (0, during)
    else:
        assert len(lost) == during, "the replica had what it could not have: this run shows nothing"
    report(
        f"the primary dies while its replica lags, {'wait_replicas=1' if options else 'no wait for replicas'}",
        injected=1,
        figures=figures_of(evidence, forfeited=() if options else lost),
        note=f"{acked:,} acked before it; of {during:,} enqueues while it lagged {refused:,} refused",
    )


def test_a_lease_that_the_new_primary_does_not_know_settles_nothing(tmp_path: Path, report: Report) -> None:
    with pair_of_servers() as pair, closing(Arena(tmp_path, pair.engine(), is_audited=False)) as arena:
        (job,) = arena.enqueue([arena.call("work", 1)])
        poll(pair.is_in_step, 20, "the replica has it")
        pair.line.blackhole()
        old = _claim(arena, "old")
        pair.fail_over()
        late = Settlement(id=job, token=old.token, change=Change.COMPLETE, result=b'"old"')
        accepted = list(_ask(arena, Exchange(settlements=[late])).settled)
        new = _claim(arena, "new")
        accepted += _ask(arena, Exchange(settlements=[late])).settled
        assert accepted == [False, False]
        done = Settlement(id=job, token=new.token, change=Change.COMPLETE, result=b'"new"')
        assert list(_ask(arena, Exchange(settlements=[done])).settled) == [True]
        (record,) = arena.get([job])
    assert record.result == b'"new"'
    report(
        "settlements under a lease from before the failover",
        injected=len(accepted),
        note=f"accepted {sum(accepted)}",
    )


def _claim(arena: Arena, worker: str) -> Delivery:
    arena.app.bridge.run(arena.app.store.heartbeat(WorkerRecord(id=worker, lease_s=60.0)))
    (delivery,) = _ask(arena, Exchange(claim=Claim(worker=worker, token=new_token(), limit=1))).deliveries
    return delivery


def _ask(arena: Arena, exchange: Exchange) -> Exchanged:
    return arena.app.bridge.run(arena.app.store.exchange(exchange))
