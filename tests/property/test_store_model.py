"""Random operations on two stores side by side: every answer and every record must be the same.

The memory store is the oracle. Times are told in hundreds of seconds since the stores were made, and all lengths but
those of leases, windows and retention are whole hundreds, so that the time a test takes does not matter, on a machine
with much else to do neither: an example may take up to 40 seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from holdfast.clock import new_id, new_secret, new_token
from holdfast.policy.lifecycle import SETTLING, is_allowed
from holdfast.ports import (
    Beat,
    Claim,
    Count,
    Delivery,
    Exchange,
    Exchanged,
    Note,
    Operation,
    Query,
    Settlement,
    Stats,
    Store,
    ValueChange,
    WorkerRecord,
)
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.types import Attempt, Change, End, FailureType, Group, JobRecord, JobState, NewJob, Severity
from tests.faults.report import Figures, finding, keep
from tests.servers import PostgresServer, RedisServer

T = TypeVar("T")
UNIT_S = 100.0
KEY_WINDOW_S = 9.5 * UNIT_S
LEASE_S = 2.5 * UNIT_S
KEPT = (1.5 * UNIT_S, 4.5 * UNIT_S)
DELAYS = (0.0, 0.0, 0.0, UNIT_S, 3 * UNIT_S)
FIRST_MINUTE = 30_000_000
PLACES = range(3)
CAPS: tuple[dict[str, int], ...] = ({}, {}, {"g": 0}, {"g": 1}, {"g": 1, "h": 2}, {"task:a": 1}, {"queue:x": 0, "h": 1})


class MovableStore(Store, Protocol):
    """A store whose clock tests can move."""

    clock_offset_s: float


class Place(Struct, frozen=True):
    """Where stores are made that are compared with the oracle."""

    new: Callable[[], MovableStore]
    """An empty one."""
    share: float = 1.0
    """How many of the examples are tried there: a server answers later than a file."""


def sqlite(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Files."""
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        yield Place(lambda: SqliteStore(path / f"{next(numbers)}.db", synchronous="NORMAL", key_window_s=KEY_WINDOW_S))


def postgres(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Schemas on a server."""
    from holdfast.stores.postgres import PostgresStore

    server: PostgresServer = request.getfixturevalue("postgres_server")
    yield Place(lambda: PostgresStore(server.dsn(), schema=server.fresh_schema(), key_window_s=KEY_WINDOW_S), 0.3)


def redis(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Prefixes on a server."""
    from holdfast.stores.redis import RedisStore

    server: RedisServer = request.getfixturevalue("redis_server")
    yield Place(lambda: RedisStore(server.dsn(), prefix=server.fresh_prefix(), key_window_s=KEY_WINDOW_S), 0.5)


@pytest.fixture(scope="module", params=[sqlite, postgres, redis], ids=lambda it: it.__name__)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    yield from request.param(request)


new_jobs = st.builds(
    NewJob,
    id=st.sampled_from(["by age", "by chance"]),  # given when it is enqueued: chance has no place in a strategy
    task=st.sampled_from("ab"),
    payload=st.sampled_from([b"[1]", b"[1]", b"[2]"]),
    queue=st.sampled_from("xy"),
    priority=st.sampled_from([0, 0, 1]),
    delay_s=st.sampled_from(DELAYS),
    gates=st.sampled_from([(), (), ("g",), ("h",), ("g", "h"), ("h", "g")]),
    tenant=st.sampled_from(["", "", "acme"]),
    idempotency_key=st.sampled_from([None, None, "k1", "k2"]),
)
wishes = st.fixed_dictionaries(
    {
        "limit": st.integers(1, 4),
        "queues": st.sampled_from([None, None, None, ("x",)]),
        "caps": st.sampled_from(CAPS),
        "is_alone": st.booleans(),
        "per_lane": st.sampled_from([None, None, None, 1, 2]),
    }
)
queries = st.one_of(
    st.builds(Query, limit=st.integers(1, 5)),
    st.builds(Query, states=st.sampled_from([(state,) for state in JobState]), limit=st.integers(1, 5)),
    st.builds(Query, task=st.sampled_from("ab"), queue=st.sampled_from("xy"), tenant=st.sampled_from([None, ""])),
    st.builds(Query, failure_type=st.just(FailureType.NETWORK), fingerprint=st.sampled_from(["", "1:f0"])),
    st.builds(
        Query,
        states=st.just((JobState.DEAD_LETTER,)),
        task=st.sampled_from(["", "a"]),
        tenant=st.sampled_from([None, "", "acme"]),
        fingerprint=st.sampled_from(["", "1:f0", "1:f1"]),
        limit=st.integers(1, 3),
    ),
    st.builds(Query, states=st.sets(st.sampled_from(JobState), min_size=2).map(tuple), limit=st.integers(1, 5)),
    st.builds(Query, text=st.sampled_from(["[2]", "K1", "boom 1", "so it"]), limit=st.integers(1, 5)),
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


def verdicts_of(*changes: Change) -> st.SearchStrategy[list[Verdict]]:
    """A few verdicts that end in one of these changes."""
    verdicts = st.builds(
        Verdict,
        change=st.sampled_from(changes),
        delay_s=st.sampled_from(DELAYS),
        keep_s=st.sampled_from([None, *KEPT]),
        elapsed_s=st.integers(0, 3).map(float),
        is_refunded=st.booleans(),
        is_suspect=st.booleans(),
        failure=st.sampled_from([None, 0, 1]),
    )
    return st.lists(verdicts, max_size=4)


verdicts = verdicts_of(*sorted(SETTLING), Change.BURY)
judgements = verdicts_of(Change.RELEASE, Change.RELEASE, Change.RETRY, Change.BURY)


class Elsewhere(Struct, frozen=True):
    """An attempt of somebody who is no worker of the store's."""

    number: int
    is_recent: bool
    """Whether it began about now, or so long after the stores were made."""
    hundreds: int
    failure: int | None

    def attempt_of(self, side: Side) -> Attempt:
        started_at = side.begun_at + UNIT_S * self.hundreds + (side.store.clock_offset_s if self.is_recent else 0.0)
        return Attempt(
            number=self.number,
            started_at=started_at,
            ended_at=started_at + 0.4 * UNIT_S,
            worker="elsewhere" if self.hundreds else "",
            outcome=Change.RETRY,
            failure_type=None if self.failure is None else (FailureType.NETWORK, FailureType.STRUCTURAL)[self.failure],
            severity=Severity.HIGH,
            error_name="Bang",
            message=f"boom {self.failure}",
            fingerprint=f"1:f{self.failure}",
        )


class Coming(Struct, frozen=True):
    """A job that comes with its end, or without; a new one, or one that is known."""

    new: NewJob
    pick: int | None
    """Which of those that were enqueued, from the latest on; None is a new one."""
    change: Change | None
    n_known: int
    """So many attempts that the record has come with it again."""
    elsewhere: list[Elsewhere]
    keep_s: float | None


attempts_elsewhere = st.builds(
    lambda when, **facts: Elsewhere(is_recent=when[0], hundreds=when[1], **facts),
    when=st.sampled_from([(False, 0), (False, 1), (False, 2), (True, -1), (True, 0)]),
    number=st.integers(1, 4),
    failure=st.sampled_from([None, 0, 1]),
)
comings = st.builds(
    Coming,
    new=new_jobs,
    pick=st.none() | st.integers(0, 12),
    change=st.sampled_from([Change.BURY, Change.BURY, Change.COMPLETE, Change.DISCARD, None]),
    n_known=st.integers(0, 3),
    elsewhere=st.lists(attempts_elsewhere, max_size=3),
    keep_s=st.sampled_from([None, None, *KEPT]),
)


class Side:
    """One of the two stores, and what is known of it in its own terms."""

    def __init__(self, store: MovableStore, begun_at: float) -> None:
        self.store = store
        self.begun_at = begun_at
        self.deliveries: list[Delivery] = []
        self.versions = [0]

    def told(self, thing: Any) -> Any:
        """Something that a store answered, with its instants in hundreds of seconds since the beginning."""
        if isinstance(thing, Struct):
            return {name: self._told_field(name, value) for name, value in structs.asdict(thing).items()}
        if isinstance(thing, list | tuple):
            return [self.told(one) for one in thing]
        return thing

    def hundreds_at(self, instant: float) -> int:
        """An instant, in hundreds of seconds since the beginning."""
        return round((instant - self.begun_at) / UNIT_S)

    def end_of(self, coming: Coming, record: JobRecord | None) -> End | None:
        """The end of a job, with attempts that are known here and with others."""
        if coming.change is None:
            return None
        known = record.attempts[: coming.n_known] if record is not None else ()
        others = [one.attempt_of(self) for one in coming.elsewhere]
        return End(change=coming.change, attempts=(*known, *others), reason="so it ended", keep_s=coming.keep_s)

    def _told_field(self, name: str, value: Any) -> Any:
        is_instant = name.endswith("_at") and value is not None
        return self.hundreds_at(value) if is_instant else self.told(value)


def named(job: NewJob) -> NewJob:
    """With an id that is larger than all before it, or with any."""
    return structs.replace(job, id=new_id() if job.id == "by age" else str(UUID(bytes=new_secret(), version=4)))


class TwoStores:
    """Does everything twice, and compares."""

    def __init__(self, place: Place) -> None:
        self.runner = asyncio.Runner()
        stores = (MemoryStore(key_window_s=KEY_WINDOW_S), place.new())  # the oracle first
        self.sides = [Side(store, self.run(store.exchange(Exchange())).now) for store in stores]
        self.jobs: list[NewJob] = []
        self.workers = [f"worker {place}.0" for place in PLACES]
        self.last_claim: Claim | None = None

    def close(self) -> None:
        for side in self.sides:
            self.run(side.store.close())
        self.runner.close()

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
        claim = make(self.sides[0]).claim
        is_looking = claim is not None and claim is not self.last_claim and claim.worker in self.known_workers()

        def told(side: Side, answer: Exchanged) -> Any:
            side.deliveries += answer.deliveries
            side.versions += [value.version for value in answer.values if value.version > side.versions[-1]]
            values = [(value.key, value.data) for value in answer.values]
            # A claim that is refused, or sent again, need not look for jobs that have become due.
            due = round(answer.next_due_s / UNIT_S) if is_looking and answer.next_due_s is not None else None
            return [list(answer.settled), list(answer.changed), side.told(answer.deliveries), values, due]

        answer = self.both(lambda side: side.store.exchange(make(side)), told)
        if claim is not None and answer.deliveries:
            self.last_claim = claim

    def known_workers(self) -> set[str]:
        return {worker.id for worker in self.run(self.sides[0].store.stats()).workers}

    # ---------------------------------------------------------------- producers and time

    def enqueue(self, jobs: list[NewJob], is_sync: bool) -> None:
        jobs = [named(job) for job in jobs]
        self.jobs += jobs
        if is_sync:
            self.both(lambda side: asyncio.to_thread(side.store.enqueue_now, jobs))
        else:
            self.both(lambda side: side.store.enqueue(jobs))

    def enqueue_again(self, pick: int) -> None:
        job = self.jobs[pick % len(self.jobs)]
        self.both(lambda side: side.store.enqueue([job]))

    def enqueue_ended(self, comings: list[Coming], is_sync: bool) -> None:
        """Jobs of which some have ended elsewhere; the same one may come twice."""
        coming_jobs: list[NewJob] = []
        for coming in comings:
            if coming.pick is None:
                self.jobs.append(named(coming.new))
            coming_jobs.append(self.jobs[-1] if coming.pick is None else self.jobs[-1 - coming.pick % len(self.jobs)])

        async def call(side: Side) -> Any:
            records = await side.store.get([job.id for job in coming_jobs])
            jobs = [
                structs.replace(job, end=side.end_of(coming, record))
                for job, coming, record in zip(coming_jobs, comings, records, strict=True)
            ]
            if is_sync:
                return await asyncio.to_thread(side.store.enqueue_now, jobs)
            return await side.store.enqueue(jobs)

        self.both(call)

    def bury_again(self, picks: list[int], elsewhere: list[Elsewhere], keep_s: float | None) -> None:
        """Bury what has ended; it takes effect where something is new, and when it is sent twice once."""
        records = self.run(self.sides[0].store.get([job.id for job in self.jobs]))
        ids = [record.id for record in records if record and record.state.is_terminal]
        chosen = {ids[pick % len(ids)] for pick in picks} if ids else set()
        coming = Coming(NewJob(id="", task="", payload=b""), None, Change.BURY, 1, elsewhere, keep_s)

        async def call(side: Side) -> Any:
            again = [job for job in self.jobs if job.id in chosen]
            ends = [side.end_of(coming, record) for record in await side.store.get([job.id for job in again])]
            jobs = [structs.replace(job, end=end) for job, end in zip(again, ends, strict=True)]
            return [await side.store.enqueue(jobs) for _ in range(2)]

        self.both(call)

    def advance(self, hundreds: int) -> None:
        for side in self.sides:
            side.store.clock_offset_s += hundreds * UNIT_S

    # ---------------------------------------------------------------- workers

    def beat(self, place: int, lease_s: float = LEASE_S) -> None:
        """A heartbeat, or a leave; somebody new comes in the place of one who is gone."""
        record = WorkerRecord(id=self.workers[place], lease_s=lease_s)

        def told(_: Side, beat: Beat) -> Any:
            return (beat.is_alive, sorted(beat.cancelled)) if lease_s else None

        if not self.both(lambda side: side.store.heartbeat(record), told).is_alive:
            name, _, life = record.id.partition(".")
            self.workers[place] = f"{name}.{int(life) + 1}"

    def claim(self, place: int, wish: dict[str, Any]) -> None:
        claim = Claim(worker=self.workers[place], token=new_token(), **wish)
        self.exchange(lambda _: Exchange(claim=claim))

    def claim_again(self) -> None:
        if self.last_claim is not None:
            self.exchange(lambda _: Exchange(claim=self.last_claim))

    def work(self, place: int, wish: dict[str, Any], verdicts: list[Verdict]) -> None:
        """What workers mostly do: claim some, settle some of them, and claim one more with it."""
        self.beat(place)
        begun = len(self.sides[0].deliveries)
        self.claim(place, wish)
        one_more = Claim(worker=self.workers[place], token=new_token(), limit=1)
        self.settle_each(list(enumerate(verdicts, begun)), one_more)

    def settle(self, picks: list[int], verdicts: list[Verdict], times: int) -> None:
        """Settle what was ever delivered, mostly of late, and perhaps more than once."""
        n = len(self.sides[0].deliveries)
        for _ in range(times):
            self.settle_each([(max(0, n - 1 - pick), verdict) for pick, verdict in zip(picks, verdicts, strict=False)])

    def settle_each(self, chosen: list[tuple[int, Verdict]], claim: Claim | None = None) -> None:
        def exchange_of(side: Side) -> Exchange:
            known = [(side.deliveries[n], verdict) for n, verdict in chosen if n < len(side.deliveries)]
            return Exchange(settlements=[verdict.settlement_of(delivery) for delivery, verdict in known], claim=claim)

        self.exchange(exchange_of)

    def note(self, pick: int, **fields: Any) -> None:
        if self.sides[0].deliveries:
            delivery = self.sides[0].deliveries[-1 - pick % len(self.sides[0].deliveries)]
            note = Note(id=delivery.id, token=delivery.token, **fields)
            self.both(lambda side: side.store.note(note))

    def reclaim(self, place: int, is_late: bool, is_beating: bool, verdicts: list[Verdict]) -> None:
        """Judge orphans; when it is late, those of everybody else, unless its own lease is over as well."""
        if is_late:
            self.advance(4)
        if is_beating:
            self.beat(place)
        begun = len(self.sides[0].deliveries)
        worker, token = self.workers[place], new_token()

        def told(side: Side, orphans: Sequence[Delivery]) -> Any:
            in_order = sorted(orphans, key=lambda one: one.id)
            side.deliveries[begun:] = in_order
            return side.told(in_order)

        if self.last_claim is not None and self.last_claim.worker == worker:
            self.last_claim = (
                None  # of claims to their end, a store need remember a worker's latest alone: now this one
            )
        for _ in range(2):  # sent twice, it answers the same
            self.both(lambda side: side.store.reclaim(worker, token, 1000), told)
        self.settle_each(list(enumerate(verdicts, begun)))

    # ---------------------------------------------------------------- values and counts

    def change_value(self, key: str, data: bytes | None, back: int, is_new: bool) -> None:
        def exchange_of(side: Side) -> Exchange:
            version = side.versions[max(-1 - back, -len(side.versions))]
            expected = 0 if is_new else version
            what = b"0" if data is None and expected == 0 else data
            return Exchange(changes=[ValueChange(key, expected, what)], seen=version)

        self.exchange(exchange_of)

    def count(self, minute: int, task: str, n: int, name: tuple[int, int] | None) -> None:
        counts = [Count(FIRST_MINUTE + minute, task, "completed", n)]
        counted = None
        if name is not None:
            place, number = name
            for _ in range(2):  # it may be that somebody new comes: a name is remembered of those who were heard of
                self.beat(place)
            counted = (self.workers[place], number)
        self.exchange(lambda _: Exchange(counts=counts, counted=counted))

    # ---------------------------------------------------------------- people

    def change(self, change: Change, picks: list[int], **fields: Any) -> None:
        """Mostly what is allowed."""
        ids = [job.id for job in self.jobs]
        records = self.run(self.sides[0].store.get(ids))
        fitting = [record.id for record in records if record and is_allowed(record.state, change)] or ids
        chosen = [fitting[pick % len(fitting)] if pick < 20 else ids[pick % len(ids)] for pick in picks]
        operation = Operation(change=change, ids=chosen, reason="so it is", **fields)
        self.both(lambda side: side.store.change(operation))

    def find(self, query: Query, since_hundreds: int | None) -> None:
        def query_of(side: Side) -> Query:
            since = None if since_hundreds is None else side.begun_at + (since_hundreds - 0.5) * UNIT_S
            return structs.replace(query, since=since)

        async def every_page(side: Side) -> list[JobRecord]:
            page = await side.store.find(query_of(side))
            records = list(page.items)
            while page.cursor:
                page = await side.store.find(structs.replace(query_of(side), cursor=page.cursor))
                records += page.items
            return records

        def told(side: Side, groups: list[Group]) -> Any:
            # Two stores are not of quite the same age, so an hour may begin between them; and of two letters that one
            # exchange made, either may be the last.
            hours = {group.fingerprint: (len(group.hours), sum(group.hours)) for group in groups}
            alike = [structs.replace(group, hours=(), sample_id="") for group in groups]
            by_cause = {group.fingerprint: side.told(group) for group in alike}
            return [group.count for group in groups], by_cause, hours

        self.both(every_page)
        self.both(lambda side: side.store.groups(query_of(side)), told)

    def prune(self) -> None:
        self.both(lambda side: side.store.prune(1000))

    # ---------------------------------------------------------------- after every step

    def check(self) -> None:
        """Every record, and every sum, is the same."""

        def told(side: Side, stats: Stats) -> Any:
            tallies = sorted((one.queue, one.task, one.state, one.n) for one in stats.tallies if one.n)
            workers = sorted((worker.id, worker.lease_s, side.hundreds_at(worker.seen_at)) for worker in stats.workers)
            oldest = {queue: side.hundreds_at(due_at) for queue, due_at in stats.oldest_ready_at.items()}
            return tallies, workers, list(stats.counts), oldest

        ids = [job.id for job in self.jobs]
        self.both(lambda side: side.store.get(ids))
        self.both(lambda side: side.store.stats(since_minute=FIRST_MINUTE + 1), told)


picks = st.integers(0, 40)
places = st.sampled_from(PLACES)
few_picks = st.lists(picks, min_size=1, max_size=3)
STEPS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    # How often, beside the others, and with what.
    "enqueue": (3, {"jobs": st.lists(new_jobs, min_size=1, max_size=4), "is_sync": st.booleans()}),
    "enqueue_again": (1, {"pick": picks}),
    "enqueue_ended": (2, {"comings": st.lists(comings, min_size=1, max_size=4), "is_sync": st.booleans()}),
    "bury_again": (
        1,
        {
            "picks": few_picks,
            "elsewhere": st.lists(attempts_elsewhere, min_size=1, max_size=2),
            "keep_s": st.sampled_from([None, *KEPT]),
        },
    ),
    "advance": (1, {"hundreds": st.sampled_from([1, 1, 2, 4, 10])}),
    "work": (6, {"place": places, "wish": wishes, "verdicts": verdicts}),
    "beat": (1, {"place": places, "lease_s": st.sampled_from([LEASE_S, LEASE_S, LEASE_S, 0.0])}),
    "claim": (1, {"place": places, "wish": wishes}),
    "claim_again": (1, {}),
    "settle": (1, {"picks": few_picks, "verdicts": verdicts, "times": st.sampled_from([1, 2])}),
    "reclaim": (
        2,
        {
            "place": places,
            "is_late": st.booleans(),
            "is_beating": st.sampled_from([True, True, False]),
            "verdicts": judgements,
        },
    ),
    "note": (
        1,
        {
            "pick": st.integers(0, 3),
            "checkpoint": st.sampled_from([None, b"c1", b"c2"]),
            "step": st.sampled_from([None, ("s1", b"1"), ("s2", b"2")]),
            "progress": st.sampled_from([None, 0.5]),
            "blame": st.sampled_from([None, None, "it was me"]),
        },
    ),
    "change_value": (
        1,
        {
            "key": st.sampled_from("ab"),
            "data": st.sampled_from([b"1", b"2", None]),
            "back": st.integers(0, 3),
            "is_new": st.booleans(),
        },
    ),
    "count": (
        1,
        {
            "minute": st.integers(0, 2),
            "task": st.sampled_from("ab"),
            "n": st.integers(1, 5),
            "name": st.none() | st.tuples(places, st.integers(1, 3)),
        },
    ),
    "change": (
        2,
        {
            "change": st.sampled_from([Change.REPLAY, Change.REPLAY, Change.CANCEL, Change.REMOVE]),
            "picks": few_picks,
            "replay": st.sampled_from(["", "r1", "r2"]),
            "payload": st.sampled_from([None, b"[8]", b"[9]"]),
            "delay_s": st.sampled_from([0.0, 0.0, UNIT_S]),
            "keep_s": st.sampled_from([None, KEPT[0]]),
        },
    ),
    "find": (1, {"query": queries, "since_hundreds": st.sampled_from([None, None, 2])}),
    "prune": (1, {}),
}
step_names = st.sampled_from([name for name, (weight, _) in STEPS.items() for _ in range(weight)])


def test_two_stores_answer_the_same_whatever_happens(place: Place, request: pytest.FixtureRequest) -> None:
    steps: list[int] = []

    @settings(max_examples=int(settings().max_examples * place.share))
    @given(data=st.data())
    def agree(data: st.DataObject) -> None:
        steps.append(try_out(place, data))

    agree()
    keep(
        finding(
            row="45",
            store=request.node.callspec.id,
            fault="operations at random on the store and on a model of it, side by side",
            injected=sum(steps),
            figures=Figures(),
            note=f"{len(steps):,} cases, failures 0: every answer, record and sum the same after each step",
            seed=str(request.config.getoption("hypothesis_seed") or ""),
        )
    )


def try_out(place: Place, data: st.DataObject) -> int:
    """A case, and how many steps it had."""
    stores = TwoStores(place)
    try:
        stores.enqueue(data.draw(st.lists(new_jobs, min_size=1, max_size=6)), is_sync=False)
        steps = data.draw(st.integers(1, 40))
        for _ in range(steps):
            step = data.draw(step_names)
            _, options = STEPS[step]
            getattr(stores, step)(**{name: data.draw(strategy) for name, strategy in options.items()})
            stores.check()
        return steps
    finally:
        stores.close()


@pytest.mark.parametrize("forgotten", ["settle", "claim"])
def test_the_comparison_sees_a_difference(place: Place, forgotten: str) -> None:
    stores = TwoStores(place)
    try:
        stores.enqueue([NewJob(id="", task="a", payload=b"[1]")], is_sync=False)
        stores.beat(0)
        wish = Claim(worker=stores.workers[0], token=new_token(), limit=1)
        other = stores.sides[1].store
        if forgotten == "settle":
            stores.exchange(lambda _: Exchange(claim=wish))
            done = Settlement(id=stores.jobs[0].id, token=wish.token, change=Change.COMPLETE)
            stores.run(other.exchange(Exchange(settlements=[done])))
        else:
            stores.run(other.exchange(Exchange(claim=wish)))
        with pytest.raises(AssertionError):
            stores.check()
    finally:
        stores.close()
