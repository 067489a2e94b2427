"""The memory store: the verbs, under one lock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from msgspec import structs

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError, StoreError
from holdfast.policy.lifecycle import is_allowed
from holdfast.ports import (
    Beat,
    Capabilities,
    Changed,
    Claim,
    Clock,
    Count,
    Delivery,
    Enqueued,
    Exchange,
    Exchanged,
    Note,
    Operation,
    Page,
    Query,
    Settlement,
    Stats,
    Store,
    Transaction,
    WorkerRecord,
)
from holdfast.stores.ends import Ending, Known, ending_of, rounds_of, with_states
from holdfast.stores.memory.job import StoredJob
from holdfast.stores.memory.jobs import JobTable
from holdfast.stores.memory.ready import ReadyJobs
from holdfast.stores.memory.search import filter_of, groups_of
from holdfast.stores.memory.values import CountTable, ValueTable
from holdfast.stores.memory.workers import StoredWorker, WorkerTable
from holdfast.stores.refusals import check_exchange, check_heartbeat, check_no_connection, check_operation, has_ends
from holdfast.stores.signals import Signals
from holdfast.types import Change, Group, JobRecord, JobState, NewJob

_RELEASE: Final = Change.RELEASE
_QUEUED: Final = JobState.QUEUED
_RUNNING: Final = JobState.RUNNING
_CLAIM: Final = Change.CLAIM
_CAPABILITIES: Final = Capabilities(
    name="memory",
    location="memory://",
    is_durable=False,
    is_shared=False,
    has_transactions=False,
    version="memory",
    durability="nothing survives the end of this process",
)


class MemoryStore:
    """Jobs in plain dicts and heaps, gone with the process.

    Its clock is the given one's monotonic time, put on the wall time at which the store was made. `clock_offset_s` is
    for tests, which move leases and due times with it.
    """

    def __init__(self, clock: Clock | None = None, key_window_s: float = 86_400.0) -> None:
        self._clock: Clock = clock or SystemClock()
        self._epoch = self._clock.now() - self._clock.monotonic()
        self.clock_offset_s = 0.0
        self._lock = threading.Lock()
        self._jobs = JobTable(key_window_s)
        self._ready = ReadyJobs()
        self._workers = WorkerTable()
        self._values = ValueTable()
        self._counts = CountTable()
        self._signals = Signals()

    @property
    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    # ---------------------------------------------------------------- producers

    async def enqueue(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        return self.enqueue_now(jobs, connection)

    def enqueue_now(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        check_no_connection(connection, "memory://")
        is_any_ended = has_ends(jobs)
        with self._lock:
            now = self._now()
            answers, stored = self._jobs.add_all(jobs, now)
            if is_any_ended:
                answers = self._end_all(jobs, answers, stored, now)
            for job in stored:
                if job.state is _QUEUED:
                    self._ready.add(job, now)
            if stored:
                self._signals.tell()
            return answers

    # ---------------------------------------------------------------- workers

    async def exchange(self, exchange: Exchange) -> Exchanged:
        check_exchange(exchange)
        with self._lock:
            now = self._now()
            settled = [self._settle(settlement, now) for settlement in exchange.settlements]
            newest = self._values.newest
            changed = [self._values.change(change, now) for change in exchange.changes]
            if any(changed):
                self._signals.tell()
            if exchange.counts:
                self._counts.add(exchange.counts, exchange.counted)
            claim = exchange.claim
            deliveries = self._claim(claim, now) if claim is not None else []
            is_short = claim is not None and len(deliveries) < claim.limit
            if is_short:
                self._signals.look(asyncio.get_running_loop())
            return Exchanged(
                now=now,
                settled=settled,
                changed=changed,
                deliveries=deliveries,
                values=self._values.newer_than(exchange.seen),
                next_due_s=self._ready.next_due_s(now) if is_short else None,
                newest=newest,
            )

    async def heartbeat(self, worker: WorkerRecord) -> Beat:
        check_heartbeat(worker)
        with self._lock:
            beat = self._workers.beat(worker, self._now())
            if not beat.is_alive:
                self._signals.tell()  # there may be orphans
            return beat

    async def reclaim(self, worker: str, token: bytes, limit: int) -> list[Delivery]:
        with self._lock:
            reclaimer = self._workers.get(worker)
            if reclaimer is None:
                return []
            if not reclaimer.has_used(token):
                self._workers.give_up_late(self._now(), by=reclaimer)
                reclaimer.hold(token, self._workers.take_orphans(limit))
            return [job.to_delivery() for job in reclaimer.held_under(token)]

    async def note(self, note: Note) -> bool:
        with self._lock:
            job = self._jobs.get(note.id)
            if job is None or not _is_held(job, note.token):
                return False
            if note.checkpoint is not None:
                job.checkpoint = note.checkpoint
            if note.step is not None:
                name, result = note.step
                job.steps[name] = result
            if note.progress is not None:
                job.progress = note.progress
            if note.blame is not None:
                job.blame = note.blame
            return True

    def transaction(
        self, settlement: Settlement, limit_s: float, counts: Sequence[Count] = ()
    ) -> AbstractContextManager[Transaction]:
        raise StoreError("memory:// has no transactions; job.transaction() needs a store such as sqlite:///jobs.db")

    async def wait(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            news = self._signals.listen(loop)
        try:
            async with self._clock.timeout(timeout_s):
                await news
        except TimeoutError:
            return
        finally:
            with self._lock:
                self._signals.leave(loop, news)

    # ---------------------------------------------------------------- people

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        with self._lock:
            jobs = [self._jobs.get(id) for id in ids]  # noqa: A001
            return [job.to_record(is_whole=True) if job else None for job in jobs]

    async def find(self, query: Query) -> Page:
        before = _seq_of(query.cursor)
        is_wanted = filter_of(query)
        found: list[JobRecord] = []
        last = ""
        with self._lock:
            for job in self._jobs.newest_first():
                if (before is None or job.seq < before) and is_wanted(record := job.to_record()):
                    if len(found) == query.limit:
                        return Page(found, cursor=last)
                    found.append(record)
                    last = str(job.seq)
            return Page(found)

    async def groups(self, query: Query) -> list[Group]:
        is_wanted = filter_of(structs.replace(query, states=(JobState.DEAD_LETTER,)))
        with self._lock:
            letters = (job.to_record() for job in self._jobs.newest_first())
            return groups_of(filter(is_wanted, letters), self._now())

    async def stats(self, since_minute: int | None = None) -> Stats:
        with self._lock:
            now = self._now()
            return Stats(
                now=now,
                tallies=self._jobs.tallies(),
                workers=self._workers.records(),
                counts=[] if since_minute is None else self._counts.since(since_minute),
                totals=self._counts.totals(),
                oldest_ready_at=self._ready.oldest_due_at(now),
            )

    async def change(self, operation: Operation) -> list[Changed]:
        check_operation(operation)
        with self._lock:
            return [self._change(id, operation) for id in operation.ids]  # noqa: A001

    async def prune(self, limit: int) -> int:
        with self._lock:
            now = self._now()
            self._counts.prune(now)
            self._values.prune(now)
            return self._jobs.prune(limit, now)

    async def close(self) -> None:
        with self._lock:
            self._signals.tell()

    # ---------------------------------------------------------------- with the lock held

    def _now(self) -> float:
        return self._epoch + self._clock.monotonic() + self.clock_offset_s

    def _claim(self, claim: Claim, now: float) -> list[Delivery]:
        worker = self._workers.get(claim.worker)
        if worker is None:
            return []
        if worker.has_used(claim.token):
            return [job.to_delivery() for job in worker.held_under(claim.token)]
        jobs = []
        for job in self._ready.take(claim, now):
            if job.was_settled_under(claim.token):
                self._ready.add(job, now)
            else:
                jobs.append(job)
        worker.hold(claim.token, jobs)
        for job in jobs:
            self._jobs.move(job, _CLAIM)
            job.attempt += 1
            job.counted += 1
            job.worker = claim.worker
            job.claimed_at = now
            job.ran_alone = claim.is_alone
        return [job.to_delivery() for job in jobs]

    def _settle(self, settlement: Settlement, now: float) -> bool:
        job = self._jobs.get(settlement.id)
        if job is None:
            return False
        change = settlement.change
        if not _is_held(job, settlement.token):
            return job.settled == (settlement.token, change)
        self._let_go(job)
        self._jobs.move(job, change)
        job.take_over(settlement)
        if job.state.is_terminal:
            self._jobs.end(job, now, settlement.keep_s)
        elif change is _RELEASE and settlement.delay_s <= 0.0:
            self._make_ready(job, now, job.due_at)  # nobody ran it: it keeps its place
        else:
            self._make_ready(job, now, now + max(0.0, settlement.delay_s))
        return True

    def _end_all(
        self, jobs: Sequence[NewJob], answers: list[Enqueued], stored: Sequence[StoredJob], now: float
    ) -> list[Enqueued]:
        new_ids = {job.new.id for job in stored}
        states: dict[int, JobState] = {}
        for ends in rounds_of(jobs, answers):
            for place, one in ends.items():
                job = self._jobs.get(one.id)
                assert job is not None  # noqa: S101 - it was there, or was added just now
                known = Known(job.state, job.ended_at or 0.0, job.attempts, job.completion)
                if (ending := ending_of(one, known)) is not None:
                    self._end(job, ending, now, is_new=one.id in new_ids)
                states[place] = job.state
        return with_states(answers, states)

    def _end(self, job: StoredJob, ending: Ending, now: float, *, is_new: bool) -> None:
        change = ending.end.change
        if not is_new and job.state is not _RUNNING:
            self._ready.remove(job)  # also what was cancelled: it stands there still, and can be replayed from now on
        if job.state.is_terminal:
            self._jobs.move_again(job, change)
        else:
            if job.state is _RUNNING:
                self._take_away(job)
            else:
                self._jobs.move(job, _CLAIM)
            self._jobs.move(job, change)
        job.take_end(ending)
        self._jobs.end(job, now, ending.end.keep_s)

    def _change(self, id: str, operation: Operation) -> Changed:  # noqa: A002
        job = self._jobs.get(id)
        if job is None:
            return Changed(id, is_done=False, state=None)
        change = operation.change
        was_replayed = change is Change.REPLAY and operation.replay in job.replay_ids
        if was_replayed or not is_allowed(job.state, change):
            return Changed(id, is_done=False, state=job.state)
        match change:
            case Change.CANCEL:
                self._cancel(job, operation)
            case Change.REPLAY:
                self._replay(job, operation)
            case _:
                self._jobs.move(job, Change.REMOVE)
                return Changed(id, is_done=True, state=None)
        return Changed(id, is_done=True, state=job.state)

    def _cancel(self, job: StoredJob, operation: Operation) -> None:
        now = self._now()
        if job.state is _RUNNING:
            self._take_away(job)
        self._jobs.move(job, Change.CANCEL)
        job.reason = operation.reason
        self._jobs.end(job, now, operation.keep_s)

    def _replay(self, job: StoredJob, operation: Operation) -> None:
        self._jobs.move(job, Change.REPLAY)
        job.begin_anew(operation)
        now = self._now()
        self._make_ready(job, now, now + max(0.0, operation.delay_s))

    def _make_ready(self, job: StoredJob, now: float, due_at: float) -> None:
        job.due_at = due_at
        self._ready.add(job, now)
        self._signals.tell()

    def _take_away(self, job: StoredJob) -> None:
        """Its lease is over before its holder says so, who is told with the next heartbeat."""
        holder = self._let_go(job)
        if holder is not None:
            holder.cancelled.append(job.new.id)

    def _let_go(self, job: StoredJob) -> StoredWorker | None:
        """The lease is over, and with it all that was known about this run."""
        job.blame = ""
        job.orphan_of = ""
        return self._workers.let_go(job)


def _is_held(job: StoredJob, token: bytes) -> bool:
    return job.state is _RUNNING and job.token == token


def _seq_of(cursor: str) -> int | None:
    if cursor and not cursor.isdecimal():
        raise ConfigError(f"cursor: {cursor!r} is not where a page ended")
    return int(cursor) if cursor else None


if TYPE_CHECKING:
    _contract: type[Store] = MemoryStore
