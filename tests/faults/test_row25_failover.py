"""Row 25: a Redis primary dies while its replica lags. What was not copied is lost, unless writes wait for a copy."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import json
from msgspec.structs import replace

from holdfast.app.task import Call
from holdfast.clock import new_token
from holdfast.errors import StoreError
from holdfast.ports import Claim, Delivery, Exchange, Exchanged, Settlement, WorkerRecord
from holdfast.testing import FaultProxy
from holdfast.types import Change
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.checker import Evidence, Fault
from tests.faults.conftest import AUDITED, waits
from tests.faults.cut_off import refused
from tests.faults.engines import RedisEngine
from tests.faults.load import Dice, mixed_calls
from tests.faults.outages import HEARD_S, outage_faults, wait_replaced
from tests.faults.report import Report, figures_of
from tests.faults.storm import CALM, WORKERS
from tests.faults.workers import CLOCK, poll, recovery_bound
from tests.servers import RedisServer

pytestmark = waits
STORE = "redis"
DURABLE: Final = {**AUDITED, "appendfsync": "always"}
WAITING: Final = "&wait_replicas=1&wait_s=0.5"
LABEL: Final = "a failover may lose what was acknowledged"
LAST_LAG_S: Final = 0.7
_AT_ONCE: Final = 4
_INSIST_S: Final = 30.0
_SLOTS: Final = WORKERS * (CALM.room.concurrency + CALM.room.threads)


class Pair:
    """A primary, its replica behind a line of its own, and the address where clients find whichever is in charge."""

    def __init__(self, primary: RedisServer, replica: RedisServer, spare: RedisServer, line: FaultProxy) -> None:
        self._primary = primary
        self._replica = replica
        self._spare = spare
        self.line = line
        self._address = FaultProxy("127.0.0.1", primary.port)
        self._engine = RedisEngine(primary)

    def engine(self, options: str = "") -> RedisEngine:
        """What clients are given; its audit trail is that of whichever is in charge."""
        self._engine.url = self._engine.url_by(self._address) + options
        return self._engine

    def is_in_step(self) -> bool:
        """Whether the replica has all that was written, and keeps an append-only file of what follows."""
        with self._primary.client() as client:
            state = client.info("replication")
        with self._replica.client() as client:
            files = client.info("persistence")
        if not state["connected_slaves"] or files["aof_rewrite_in_progress"] or files["aof_rewrite_scheduled"]:
            return False
        replica = state["slave0"]
        return bool(replica["state"] == "online" and replica["offset"] == state["master_repl_offset"])

    def written(self) -> int:
        """How much the primary has written."""
        with self._primary.client() as client:
            return int(client.info("replication")["master_repl_offset"])

    def copied(self) -> int:
        """How much of it the replica has."""
        with self._replica.client() as client:
            return int(client.info("replication")["slave_repl_offset"])

    def kill(self) -> None:
        """The primary dies."""
        self._primary.kill()

    def promote(self) -> None:
        """The replica takes its place with what it has, and gets a replica of its own."""
        with self._replica.client() as client:
            client.replicaof("NO", "ONE")
        with self._spare.client() as client:
            client.replicaof("127.0.0.1", str(self._replica.port))
        self._engine.server = self._replica
        self._address.upstream = ("127.0.0.1", self._replica.port)
        self._address.reset()

    def close(self) -> None:
        """End the address."""
        self._address.close()


@contextmanager
def pair_of_servers() -> Iterator[Pair]:
    with ExitStack() as stack:
        primary = stack.enter_context(RedisServer(DURABLE))
        line = stack.enter_context(FaultProxy("127.0.0.1", primary.port))
        replica = stack.enter_context(RedisServer({**DURABLE, "replicaof": f"127.0.0.1 {line.port}"}))
        spare = stack.enter_context(RedisServer())
        pair = stack.enter_context(closing(Pair(primary, replica, spare, line)))
        poll(pair.is_in_step, 20, "the replica is in step")
        yield pair


class Producer(threading.Thread):
    """Enqueues a few jobs at a time, one call after the other, until it is told to end.

    What is refused it sends again, under the same ids, until it is acked: so what was acked is, in this order, the
    beginning of what was attempted.
    """

    def __init__(self, arena: Arena, calls: Sequence[Call[Any]], pause_s: float) -> None:
        super().__init__(name="producer")
        self._app = arena.app
        self._ledger = arena.client
        self._calls = calls
        self._pause_s = pause_s
        self._is_over = threading.Event()
        self.refusals: list[StoreError] = []
        """What it was told instead of yes."""
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            for start in range(0, len(self._calls), _AT_ONCE):
                self._insist(self._calls[start : start + _AT_ONCE])
                if CLOCK.wait(self._is_over, self._pause_s):
                    return
            raise AssertionError("the load was over too soon")
        except Exception as error:
            self.failure = error

    def _insist(self, calls: Sequence[Call[Any]]) -> None:
        ids = [call.job.id for call in calls]
        self._ledger.attempt(ids)
        until_s = CLOCK.monotonic() + _INSIST_S
        while True:
            try:
                self._app.enqueue_many(calls)
                break
            except StoreError as error:
                self.refusals.append(error)
                if CLOCK.monotonic() > until_s:
                    raise
                CLOCK.sleep(0.02)
        self._ledger.ack(ids)

    def wait_refused(self) -> None:
        """Until it is told no once more."""
        before = len(self.refusals)
        poll(lambda: len(self.refusals) > before, 20, "the producer is told no")

    def end(self) -> None:
        """Let it finish what it is at."""
        self._is_over.set()
        self.join(_INSIST_S)
        assert not self.is_alive(), "the producer hangs"
        assert self.failure is None

    def __enter__(self) -> Producer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self.join(_INSIST_S)


def lag(pair: Pair, arena: Arena, producer: Producer, seconds: float) -> int:
    """The replica lags for a moment: how many jobs were on their way meanwhile and acked, if none was refused."""
    ledger, refusals = arena.client, len(producer.refusals)
    pair.line.blackhole()
    first = len(ledger.acked)
    poll(lambda: len(ledger.attempted) > first, 20, "something is enqueued while it lags")
    CLOCK.sleep(seconds)
    sent = len(ledger.attempted)
    pair.line.heal()
    poll(lambda: len(ledger.acked) >= sent or producer.failure is not None, 20, "it is acked")
    assert producer.failure is None
    return sent - first if len(producer.refusals) == refusals else 0


class Failover:
    """The last lag, the death of the primary within it, and the promotion of the replica."""

    def __init__(self, pair: Pair, arena: Arena, producer: Producer, *, is_awaited: bool) -> None:
        ledger, self._arena, self._is_awaited = arena.client, arena, is_awaited
        kept = len(ledger.acked)
        written = pair.written()
        poll(lambda: pair.copied() >= written, 20, "the replica has what was acked")
        pair.line.blackhole()
        self.at = CLOCK.monotonic()
        first = len(ledger.attempted)
        if is_awaited:
            producer.wait_refused()
        else:
            poll(lambda: self._started() >= _SLOTS, 20, "all that runs was claimed while it lags")
            poll(lambda: len(ledger.acked) > first, 20, "jobs are acked while it lags")
        CLOCK.sleep(max(0.0, self.at + LAST_LAG_S - CLOCK.monotonic()))
        pair.kill()
        producer.wait_refused()  # so what it was acked before that is in its ledger
        before = len(ledger.acked)
        pair.promote()
        self.back_s = CLOCK.monotonic()
        poll(lambda: len(ledger.acked) > before, _INSIST_S, "new jobs are taken again")
        self.may_be_lost = frozenset(ledger.acked[kept:before])
        """Acked after the last look at which the replica had everything."""
        self.must_be_lost = frozenset(ledger.attempted[first:]) & frozenset(ledger.acked[:before])
        """Sent and acked after the last byte had reached the replica."""

    def _started(self) -> int:
        return sum(one.what == "start" and one.at > self.at for one in self._arena.effects())

    def explain(self, evidence: Evidence, log: str, start_s: float) -> Evidence:
        """It takes the store away from everybody: that explains second runs of workers that lost their leases.

        Without a wait the new primary has never heard of what was claimed or settled since the lag began, whoever did.
        """
        faults = outage_faults("failover", log, [(self.at, self.back_s)])
        if not self._is_awaited:
            faults = [Fault("failover", pid, self.at, self.back_s + HEARD_S) for pid in _pids(evidence)]
        bound_s = recovery_bound(away_s=self.back_s - self.at, start_s=start_s, in_turn=2)
        return replace(evidence, faults=faults, recovery_s=bound_s)


@pytest.mark.parametrize("options", ["", WAITING], ids=["no wait", "wait for a copy"])
def test_what_is_acked_while_the_replica_lags_is_kept_only_with_a_wait(
    tmp_path: Path, options: str, is_full: bool, report: Report
) -> None:
    lags, backlog, seconds, pause_s = (40, 1_000, 0.05, 0.02) if is_full else (3, 40, 0.15, 0.04)
    dice = Dice()
    is_awaited = bool(options)
    with pair_of_servers() as pair, closing(Arena(tmp_path, pair.engine(options))) as arena, arena.fleet() as fleet:
        capabilities = arena.app.store.capabilities
        assert capabilities.is_durable
        labels = [line for line in capabilities.warnings if LABEL in line]
        assert len(labels) == (0 if is_awaited else 1), capabilities.warnings
        supervisor = fleet.supervise(WORKERS, CALM)
        start_s = poll(lambda: len(arena.stats().workers) == WORKERS, 20, "all workers register")
        calls = mixed_calls(arena.app, 20 * backlog, dice, seconds)
        arena.enqueue(calls[:backlog])
        with Producer(arena, calls[backlog:], pause_s) as producer:
            patient = sum(lag(pair, arena, producer, 0.05 + 0.15 * dice.draw()) for _ in range(lags))
            failover = Failover(pair, arena, producer, is_awaited=is_awaited)
            producer.end()
        arena.quiesce(60)
        wait_replaced(arena, supervisor)
        assert fleet.running == [supervisor], f"a supervisor ended by itself: {fleet.log()}"
        fleet.stop()
        evidence = failover.explain(arena.evidence(fleet), fleet.log(), start_s)
        late = refused(fleet)

    lost = frozenset(evidence.acked) - evidence.jobs.keys()
    unknown = _unknown_leases(evidence)
    accepted = checker.stale_results(evidence)
    assert patient > 0, "no job was on its way while the replica lagged, and acked then"
    if is_awaited:
        assert failover.must_be_lost == frozenset(), "acked, and the replica could not have it"
        assert (lost, unknown) == (frozenset(), set())
    else:
        assert failover.must_be_lost <= lost <= failover.may_be_lost
        assert failover.must_be_lost, "nothing was acked in the last lag: this run shows nothing"
        assert unknown, "no job was claimed in the last lag: this run shows nothing"
        assert late > 0, "nobody has come too late: this run shows nothing"
    assert checker.check(replace(evidence, removed=lost)) == []
    assert evidence.transitions
    assert completed(evidence) == len(evidence.jobs)
    told = "" if is_awaited else f'; the store is labelled: "{labels[0]}"'
    report(
        f"the primary dies while its replica lags, {'wait_replicas=1' if options else 'no wait for replicas'}",
        injected=1,
        figures=figures_of(evidence, forfeited=lost),
        note=f"{lags} short lags before it, {patient:,} jobs that were on their way then were acked; "
        f"{len(failover.may_be_lost):,} were acked since the replica last had all; {len(producer.refusals):,} enqueues "
        f"refused; {len(unknown):,} leases that the new primary does not know, {late:,} settlements refused, "
        f"{len(accepted):,} accepted{checker.told_bound(evidence)}{told}",
        seed=dice.seed,
    )


def _pids(evidence: Evidence) -> set[int]:
    """Every process that has run a job."""
    return {one.pid for one in evidence.effects}


def _unknown_leases(evidence: Evidence) -> set[tuple[str, str]]:
    """The runs under leases that are not in the audit trail of the new primary; none of them may have settled a job."""
    known = {(one.job, one.token) for one in evidence.transitions}
    unknown = {(one.job, one.token) for one in evidence.effects if one.what == "start"} - known
    for job, token in unknown:
        record = evidence.jobs.get(job)
        assert record is None or record.result != json.encode(token), f"{job} was settled under {token}"
    return unknown


def test_a_lease_that_the_new_primary_does_not_know_settles_nothing(tmp_path: Path, report: Report) -> None:
    with pair_of_servers() as pair, closing(Arena(tmp_path, pair.engine())) as arena:
        (job,) = arena.enqueue([arena.call("work", 1)])
        poll(pair.is_in_step, 20, "the replica has it")
        pair.line.blackhole()
        old = _claim(arena, "old")
        pair.kill()
        pair.promote()
        accepted = list(_ask(arena, Exchange(settlements=[_done(old)])).settled)
        new = _claim(arena, "new")
        accepted += _ask(arena, Exchange(settlements=[_done(old)])).settled
        assert accepted == [False, False]
        assert list(_ask(arena, Exchange(settlements=[_done(new)])).settled) == [True]
        (record,) = arena.get([job])
        evidence = arena.evidence()
    assert record.result == _done(new).result
    assert checker.check(evidence) == []
    assert [one.after for one in evidence.transitions] == ["running", "completed"], "under the new lease alone"
    report(
        "settlements under a lease from before the failover",
        injected=len(accepted),
        note=f"accepted {sum(accepted)}",
    )


def _done(delivery: Delivery) -> Settlement:
    result = json.encode(delivery.token.hex())
    return Settlement(id=delivery.id, token=delivery.token, change=Change.COMPLETE, result=result)


def _claim(arena: Arena, worker: str) -> Delivery:
    arena.app.bridge.run(arena.app.store.heartbeat(WorkerRecord(id=worker, lease_s=60.0)))
    (delivery,) = _ask(arena, Exchange(claim=Claim(worker=worker, token=new_token(), limit=1))).deliveries
    return delivery


def _ask(arena: Arena, exchange: Exchange) -> Exchanged:
    return arena.app.bridge.run(arena.app.store.exchange(exchange))
