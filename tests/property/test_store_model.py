"""Random operations on two stores side by side: every answer and every record must be the same.

The memory store is the oracle. Times are told in tens of seconds since the stores were made, and all lengths but those
of leases, windows and retention are whole tens, so that the time a test takes does not matter.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Struct, structs

from holdfast.clock import new_id, new_token
from holdfast.policy.lifecycle import SETTLING
from holdfast.ports import (
    Claim,
    Count,
    Delivery,
    Exchange,
    Exchanged,
    Note,
    Operation,
    Query,
    Settlement,
    Store,
    ValueChange,
    WorkerRecord,
)
from holdfast.stores.memory import MemoryStore
from holdfast.types import Attempt, Change, FailureType, JobState, NewJob, Severity

T = TypeVar("T")
KEY_WINDOW_S = 95.0
LEASE_S = 25.0
WORKERS = ("w1", "w2", "w3", "w4")
CAPS: tuple[dict[str, int], ...] = ({}, {}, {"g": 0}, {"g": 1}, {"g": 1, "h": 2}, {"task:a": 1}, {"queue:x": 0, "h": 1})


class MovableStore(Store, Protocol):
    """A store whose clock tests can move."""

    clock_offset_s: float


def pair(folder: Path) -> tuple[MovableStore, MovableStore]:
    """The oracle, and the store that is compared with it."""
    return MemoryStore(key_window_s=KEY_WINDOW_S), MemoryStore(key_window_s=KEY_WINDOW_S)


new_jobs = st.builds(
    lambda **fields: NewJob(id=new_id(), **fields),
    task=st.sampled_from("ab"),
    payload=st.sampled_from([b"[1]", b"[1]", b"[2]"]),
    queue=st.sampled_from("xy"),
    priority=st.sampled_from([0, 0, 1]),
    delay_s=st.sampled_from([0.0, 0.0, 0.0, 10.0, 30.0]),
    gates=st.sampled_from([(), (), ("g",), ("h",), ("g", "h")]),
    tenant=st.sampled_from(["", "", "acme"]),
    idempotency_key=st.sampled_from([None, None, "k1", "k2"]),
)
claims = st.builds(
    lambda **fields: Claim(token=new_token(), **fields),
    worker=st.sampled_from(WORKERS),
    limit=st.integers(1, 4),
    queues=st.sampled_from([None, None, ("x",)]),
    caps=st.sampled_from(CAPS),
    is_alone=st.booleans(),
)
queries = st.builds(
    Query,
    states=st.sampled_from([(), (), *((state,) for state in JobState)]),
    task=st.sampled_from(["", "", "a"]),
    queue=st.sampled_from(["", "", "x"]),
    tenant=st.sampled_from([None, None, "", "acme"]),
    failure_type=st.sampled_from([None, None, FailureType.NETWORK]),
    fingerprint=st.sampled_from(["", "", "1:f0"]),
    text=st.sampled_from(["", "", "[2]", "K1", "boom 1"]),
    limit=st.integers(1, 5),
)


class Verdict(Struct, frozen=True):
    """What a worker makes of a delivery."""

    change: Change
    delay_s: float
    keep_s: float | None
    elapsed_s: float
    is_refunded: bool
    is_suspect: bool
    failure: int | None

    def settlement_of(self, delivery: Delivery) -> Settlement:
        return Settlement(
            id=delivery.id,
            token=delivery.token,
            change=self.change,
            delay_s=self.delay_s,
            keep_s=self.keep_s,
            result=b"7" if self.change is Change.COMPLETE else None,
            reason=f"reason of {self.change}",
            elapsed_s=self.elapsed_s,
            started_at=delivery.claimed_at,
            attempt=self._attempt_of(delivery),
            is_refunded=self.is_refunded,
            is_suspect=self.is_suspect,
        )

    def _attempt_of(self, delivery: Delivery) -> Attempt | None:
        if self.failure is None or self.change is Change.COMPLETE:
            return None
        return Attempt(
            number=delivery.attempt,
            started_at=delivery.claimed_at,
            ended_at=delivery.claimed_at + 1,
            worker="w",
            outcome=self.change,
            failure_type=(FailureType.NETWORK, FailureType.STRUCTURAL)[self.failure],
            severity=Severity.LOW,
            error_name="Boom",
            message=f"boom {self.failure}",
            traceback="Traceback …",
            fingerprint=f"1:f{self.failure}",
        )


verdicts = st.builds(
    Verdict,
    change=st.sampled_from(sorted(SETTLING)),
    delay_s=st.sampled_from([0.0, 0.0, 10.0, 30.0]),
    keep_s=st.sampled_from([None, 15.0, 45.0]),
    elapsed_s=st.integers(0, 3).map(float),
    is_refunded=st.booleans(),
    is_suspect=st.booleans(),
    failure=st.sampled_from([None, 0, 1]),
)


class Side:
    """One of the two stores, and what is known of it in its own terms."""

    def __init__(self, store: MovableStore, begun_at: float) -> None:
        self.store = store
        self.begun_at = begun_at
        self.deliveries: list[Delivery] = []
        self.versions = [0]

    def told(self, thing: Any) -> Any:
        """Something that a store answered, with its instants in tens of seconds since the beginning."""
        if isinstance(thing, Struct):
            return {name: self._told_field(name, value) for name, value in structs.asdict(thing).items()}
        if isinstance(thing, list | tuple):
            return [self.told(one) for one in thing]
        return thing

    def tens_at(self, instant: float) -> int:
        """An instant, in tens of seconds since the beginning."""
        return round((instant - self.begun_at) / 10)

    def _told_field(self, name: str, value: Any) -> Any:
        is_instant = name.endswith("_at") and value is not None
        return self.tens_at(value) if is_instant else self.told(value)


class TwoStores(RuleBasedStateMachine):
    """Does everything twice."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        stores = pair(Path(self.folder.name))
        self.sides = [Side(store, self.run(store.exchange(Exchange())).now) for store in stores]
        self.jobs: list[NewJob] = []
        self.last_claim: Claim | None = None

    def teardown(self) -> None:
        for side in self.sides:
            self.run(side.store.close())
        self.runner.close()
        self.folder.cleanup()

    def run(self, call: Awaitable[T]) -> T:
        async def wait() -> T:
            return await call

        return self.runner.run(wait())

    def both(self, call: Callable[[Side], Coroutine[Any, Any, T]], told: Callable[[Side, T], Any] = Side.told) -> T:
        """Do it on both sides, compare what is told of the answers, and return the oracle's."""
        answers = [self.run(call(side)) for side in self.sides]
        oracle, other = (told(side, answer) for side, answer in zip(self.sides, answers, strict=True))
        assert other == oracle
        return answers[0]

    def exchange(self, make: Callable[[Side], Exchange]) -> None:
        def told(side: Side, answer: Exchanged) -> Any:
            side.deliveries += answer.deliveries
            side.versions += [value.version for value in answer.values if value.version > side.versions[-1]]
            due = None if answer.next_due_s is None else round(answer.next_due_s / 10)
            values = [(value.key, value.data) for value in answer.values]
            return [list(answer.settled), list(answer.changed), side.told(answer.deliveries), values, due]

        answer = self.both(lambda side: side.store.exchange(make(side)), told)
        claim = make(self.sides[0]).claim
        if claim is not None and answer.deliveries:
            self.last_claim = claim

    # ---------------------------------------------------------------- producers and time

    @rule(jobs=st.lists(new_jobs, min_size=1, max_size=3))
    def enqueue(self, jobs: list[NewJob]) -> None:
        self.jobs += jobs
        self.both(lambda side: side.store.enqueue(jobs))

    @rule(job=new_jobs)
    def enqueue_now(self, job: NewJob) -> None:
        self.jobs.append(job)
        answers = [side.store.enqueue_now([job]) for side in self.sides]
        assert answers[0] == answers[1]

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def enqueue_again(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        self.both(lambda side: side.store.enqueue([job]))

    @rule(tens=st.sampled_from([1, 1, 2, 4, 10]))
    def advance(self, tens: int) -> None:
        for side in self.sides:
            side.store.clock_offset_s += tens * 10.0

    # ---------------------------------------------------------------- workers

    @rule(worker=st.sampled_from(WORKERS), lease_s=st.sampled_from([LEASE_S] * 9 + [0.0]))
    def beat(self, worker: str, lease_s: float) -> None:
        record = WorkerRecord(id=worker, lease_s=lease_s)
        is_leave = lease_s == 0
        self.both(
            lambda side: side.store.heartbeat(record),
            lambda _, beat: None if is_leave else (beat.is_alive, sorted(beat.cancelled)),
        )

    @rule(claim=claims)
    def claim(self, claim: Claim) -> None:
        self.exchange(lambda _: Exchange(claim=claim))

    @rule(claim=claims)
    def beat_and_claim(self, claim: Claim) -> None:
        self.beat(claim.worker, LEASE_S)
        self.claim(claim)

    @precondition(lambda self: self.last_claim)
    @rule()
    def claim_again(self) -> None:
        self.exchange(lambda _: Exchange(claim=self.last_claim))

    @precondition(lambda self: self.sides[0].deliveries)
    @rule(data=st.data(), verdicts=st.lists(verdicts, min_size=1, max_size=3), claim=st.none() | claims)
    def settle(self, data: st.DataObject, verdicts: list[Verdict], claim: Claim | None) -> None:
        chosen = [(data.draw(self._some_delivery()), verdict) for verdict in verdicts]
        self.exchange(
            lambda side: Exchange(
                settlements=[verdict.settlement_of(side.deliveries[n]) for n, verdict in chosen], claim=claim
            )
        )

    @precondition(lambda self: self.sides[0].deliveries)
    @rule(verdict=verdicts, is_sent_twice=st.booleans())
    def settle_the_latest(self, verdict: Verdict, is_sent_twice: bool) -> None:
        for _ in range(1 + is_sent_twice):
            self.exchange(lambda side: Exchange(settlements=[verdict.settlement_of(side.deliveries[-1])]))

    @precondition(lambda self: self.sides[0].deliveries)
    @rule(
        data=st.data(),
        checkpoint=st.sampled_from([None, b"c1", b"c2"]),
        step=st.sampled_from([None, ("s1", b"1"), ("s2", b"2")]),
        progress=st.sampled_from([None, 0.5]),
        blame=st.sampled_from([None, None, "it was me"]),
    )
    def note(self, data: st.DataObject, **fields: Any) -> None:
        n = data.draw(self._some_delivery())

        def note_of(side: Side) -> Note:
            return Note(id=side.deliveries[n].id, token=side.deliveries[n].token, **fields)

        self.both(lambda side: side.store.note(note_of(side)))

    @rule(worker=st.sampled_from(WORKERS))
    def reclaim(self, worker: str) -> None:
        self.beat(worker, LEASE_S)
        token = new_token()

        def told(side: Side, orphans: Sequence[Delivery]) -> Any:
            in_order = sorted(orphans, key=lambda one: one.id)
            side.deliveries += in_order
            return side.told(in_order)

        for _ in range(2):  # sent twice, it answers the same
            self.both(lambda side: side.store.reclaim(worker, token, 1000), told)

    def _some_delivery(self) -> st.SearchStrategy[int]:
        """Mostly a late one: those are still running."""
        n = len(self.sides[0].deliveries)
        return st.one_of(st.integers(max(0, n - 4), n - 1), st.integers(0, n - 1))

    # ---------------------------------------------------------------- values and counts

    @rule(
        key=st.sampled_from("ab"),
        data=st.sampled_from([b"1", b"2", None]),
        back=st.integers(0, 3),
        is_new=st.booleans(),
    )
    def change_value(self, key: str, data: bytes | None, back: int, is_new: bool) -> None:
        def exchange_of(side: Side) -> Exchange:
            expected = 0 if is_new else side.versions[max(-1 - back, -len(side.versions))]
            what = b"0" if data is None and expected == 0 else data
            return Exchange(changes=[ValueChange(key, expected, what)], seen=side.versions[-1])

        self.exchange(exchange_of)

    @rule(back=st.integers(0, 5))
    def read_values(self, back: int) -> None:
        self.exchange(lambda side: Exchange(seen=side.versions[max(-1 - back, -len(side.versions))]))

    @rule(minute=st.integers(1, 3), task=st.sampled_from("ab"), n=st.integers(1, 5))
    def count(self, minute: int, task: str, n: int) -> None:
        counts = [Count(30_000_000 + minute, task, "completed", n)]
        self.exchange(lambda _: Exchange(counts=counts))

    # ---------------------------------------------------------------- people

    @precondition(lambda self: self.jobs)
    @rule(
        data=st.data(),
        change=st.sampled_from([Change.CANCEL, Change.REPLAY, Change.REPLAY, Change.REMOVE]),
        replay=st.sampled_from(["", "r1", "r2"]),
        payload=st.sampled_from([None, b"[8]", b"[9]"]),
        delay_s=st.sampled_from([0.0, 10.0]),
        keep_s=st.sampled_from([None, 15.0]),
    )
    def change(self, data: st.DataObject, **fields: Any) -> None:
        jobs = data.draw(st.lists(st.sampled_from(self.jobs), min_size=1, max_size=3))
        operation = Operation(ids=[job.id for job in jobs], reason="so it is", **fields)
        self.both(lambda side: side.store.change(operation))

    @rule(query=queries, now_s=st.sampled_from([None, None, 20.0]))
    def find(self, query: Query, now_s: float | None) -> None:
        def query_of(side: Side) -> Query:
            return structs.replace(query, since=None if now_s is None else side.begun_at + now_s - 5)

        async def every_page(side: Side) -> list[Any]:
            page = await side.store.find(query_of(side))
            records = list(page.items)
            while page.cursor:
                page = await side.store.find(structs.replace(query_of(side), cursor=page.cursor))
                records += page.items
            return records

        self.both(every_page)
        self.both(
            lambda side: side.store.groups(query_of(side)),
            lambda side, groups: (
                [group.count for group in groups],
                sorted((group.fingerprint, group.count, group.tasks) for group in groups),
            ),
        )

    @rule()
    def prune(self) -> None:
        self.both(lambda side: side.store.prune(1000))

    # ---------------------------------------------------------------- after every step

    @invariant()
    def records_are_the_same(self) -> None:
        ids = [job.id for job in self.jobs]
        self.both(lambda side: side.store.get(ids))

    @invariant()
    def stats_are_the_same(self) -> None:
        def told(side: Side, stats: Any) -> Any:
            tallies = sorted((one.queue, one.task, one.state, one.n) for one in stats.tallies if one.n)
            workers = sorted((side.told(worker) for worker in stats.workers), key=lambda worker: worker["id"])
            oldest = {queue: side.tens_at(due_at) for queue, due_at in stats.oldest_ready_at.items()}
            return tallies, workers, list(stats.counts), oldest

        self.both(lambda side: side.store.stats(since_minute=30_000_002), told)


TestTwoStores = TwoStores.TestCase
TestTwoStores.settings = settings(stateful_step_count=50)


@pytest.mark.parametrize("forgotten", ["settle", "claim"])
def test_the_comparison_sees_a_difference(forgotten: str) -> None:
    machine = TwoStores()
    try:
        machine.enqueue([NewJob(id=new_id(), task="a", payload=b"[1]")])
        machine.beat("w1", LEASE_S)
        if forgotten == "settle":
            machine.claim(Claim(worker="w1", token=new_token(), limit=1))
            delivery = machine.sides[1].deliveries[0]
            done = Settlement(id=delivery.id, token=delivery.token, change=Change.COMPLETE)
            machine.run(machine.sides[1].store.exchange(Exchange(settlements=[done])))
        else:
            wish = Claim(worker="w1", token=new_token(), limit=1)
            machine.run(machine.sides[1].store.exchange(Exchange(claim=wish)))
        with pytest.raises(AssertionError):
            machine.records_are_the_same()
    finally:
        machine.teardown()
