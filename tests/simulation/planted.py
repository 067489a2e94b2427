"""Bugs that other projects have shipped, and ours if a guard were missing, planted one at a time: each must be found.

Each is a context in which the product has the bug. What is named beside it is where it is known from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import StoreAway
from holdfast.policy.limiter import Starts
from holdfast.ports import (
    Beat,
    Changed,
    Claim,
    Delivery,
    Enqueued,
    Exchanged,
    Operation,
    Settlement,
    Store,
    WorkerRecord,
)
from holdfast.runtime import replay
from holdfast.runtime.held import Held
from holdfast.runtime.maintenance import Maintenance
from holdfast.runtime.replay import Replay
from holdfast.runtime.run import Run
from holdfast.runtime.runner import Runner
from holdfast.runtime.shared.breakers import BreakerValue, SharedBreaker
from holdfast.runtime.shared.limits import SharedLimit
from holdfast.runtime.worker import Worker
from holdfast.stores.memory import store as store_module
from holdfast.stores.memory.jobs import JobTable
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.memory.workers import StoredWorker, WorkerTable
from holdfast.types import BreakerMode, Change, JobState, NewJob


class Planted(Struct, frozen=True):
    """One bug."""

    name: str
    known_from: str
    plant: Callable[[], AbstractContextManager[None]]
    shows: tuple[str, ...]
    """What must be seen of it: a violation that begins with one of these. Any other one is no proof."""


@contextmanager
def _in_place_of(owner: Any, name: str, other: Any) -> Iterator[None]:
    before = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, before)


# ---------------------------------------------------------------- guards of our own, removed


def _no_fence() -> AbstractContextManager[None]:
    """Whoever has had a job may settle it while anybody runs it."""
    return _in_place_of(store_module, "_is_held", lambda job, _: job.state is JobState.RUNNING)


def _no_sweep_guard() -> AbstractContextManager[None]:
    """Workers are given up whose lease is not over."""

    def give_up_late(self: WorkerTable, now: float, by: StoredWorker) -> None:
        for worker in [one for one in self._workers.values() if one is not by and one.lease_until <= now + 1.6]:
            self._give_up(worker.record.id)

    return _in_place_of(WorkerTable, "give_up_late", give_up_late)


def _ack_before_run() -> AbstractContextManager[None]:
    """A job is completed when it is claimed."""
    begin = Runner._begin

    def acked(self: Runner, runs: list[Any]) -> None:
        for run in runs:
            done = Settlement(id=run.delivery.id, token=run.delivery.token, change=Change.COMPLETE, result=b"null")
            self.settlements.append(done)
        begin(self, runs)

    return _in_place_of(Runner, "_begin", acked)


def _nobody_looks_at_held() -> AbstractContextManager[None]:
    """What a claim brought that was done late, unheard, stays with its worker."""
    return _in_place_of(Held, "odd", lambda self, known, asked: [])


def _settlements_are_sent_once() -> AbstractContextManager[None]:
    """What was finished when an exchange failed is forgotten."""
    exchange = Worker._exchange_alone

    async def forgetful(self: Worker, wanted: int) -> Exchanged:
        try:
            return await exchange(self, wanted)
        except StoreAway:
            self.runner.settlements = self.runner.settlements[self._resent :]
            self._resent = 0
            raise

    return _in_place_of(Worker, "_exchange_alone", forgetful)


def _settlements_wait() -> AbstractContextManager[None]:
    """What is finished is kept back for a while, and runs again if its worker dies meanwhile."""
    finish = Runner._finish_completed

    def later(self: Runner, run: Run, result: bytes, reason: str) -> None:
        def finish_now() -> None:
            if self.runs.get(run.delivery.id) is run:
                finish(self, run, result, reason)

        asyncio.get_running_loop().call_later(3.0, finish_now)

    return _in_place_of(Runner, "_finish_completed", later)


# ---------------------------------------------------------------- what others have shipped


def _rescuer_overwrites() -> AbstractContextManager[None]:
    """The rescuer takes no lease of its own, and settles what it found whatever has become of it since."""
    settle = MemoryStore._settle

    async def look(self: MemoryStore, worker: str, token: bytes, limit: int) -> list[Delivery]:
        rescuer = self._workers.get(worker)
        if rescuer is None:
            return []
        self._workers.give_up_late(self._now(), by=rescuer)
        orphans = list(self._workers._orphans.values())[:limit]
        return [replace(job.to_delivery(), token=token, worker=job.worker) for job in orphans]

    def overwrite(self: MemoryStore, settlement: Settlement, now: float) -> bool:
        job = self._jobs.get(settlement.id)
        if job is None or settlement.attempt is None or settlement.attempt.error_name != "WorkerDied":
            return settle(self, settlement, now)
        if job.state.is_terminal:
            self._jobs._enter(job, JobState.QUEUED)
            self._make_ready(job, now, now)
            return True
        return settle(self, replace(settlement, token=job.token), now)

    @contextmanager
    def both() -> Iterator[None]:
        with _in_place_of(MemoryStore, "_settle", overwrite), _in_place_of(MemoryStore, "reclaim", look):
            yield

    return both()


def _recovery_waits_for_traffic() -> AbstractContextManager[None]:
    """Orphans are looked for only when new work has arrived."""
    take_back = Maintenance._take_back_orphans

    async def waits(self: Maintenance) -> None:
        stats = await self._store.stats()
        waiting = sum(tally.n for tally in stats.tallies if tally.state is JobState.QUEUED)
        if waiting:
            await take_back(self)

    return _in_place_of(Maintenance, "_take_back_orphans", waits)


def _crashes_are_free() -> AbstractContextManager[None]:
    """A job whose worker dies goes back at no cost, however often."""

    def free(self: Runner, orphans: list[Delivery]) -> None:
        for delivery in orphans:
            self._settle_lost(delivery, self._specs.get(delivery.task))

    return _in_place_of(Runner, "judge_orphans", free)


def _fixed_visibility() -> AbstractContextManager[None]:
    """What has run for longer than a fixed time is handed out again, whether its worker lives or not."""
    claim = MemoryStore._claim

    def visible(self: MemoryStore, wish: Claim, now: float) -> list[Delivery]:
        for job in list(self._jobs.newest_first()):
            if job.state is JobState.RUNNING and job.claimed_at < now - 1.0 and wish.limit:
                self._let_go(job)
                self._jobs.move(job, Change.RELEASE)
                self._make_ready(job, now, now)
        return claim(self, wish, now)

    return _in_place_of(MemoryStore, "_claim", visible)


def _deaf_after_reconnect() -> AbstractContextManager[None]:
    """After an outage the worker goes on beating, and claims no more."""
    turn = Worker._turn

    async def deaf(self: Worker) -> bool:
        if self._unanswered is not None and not self._is_stopping:
            await self._stopped.wait()
            return False
        return await turn(self)

    return _in_place_of(Worker, "_turn", deaf)


def _stop_between_claim_and_run() -> AbstractContextManager[None]:
    """What was claimed and has not begun is dropped by a stop, and its worker takes leave with nothing held."""
    leave = WorkerTable.beat

    def dropped(self: WorkerTable, record: WorkerRecord, now: float) -> Beat:
        worker = self._workers.get(record.id)
        if record.lease_s <= 0 and worker is not None:
            worker.held.clear()
        return leave(self, record, now)

    @contextmanager
    def both() -> Iterator[None]:
        with (
            _in_place_of(WorkerTable, "beat", dropped),
            _in_place_of(Runner, "release_waiting", lambda self: self._waiting.clear()),
            _in_place_of(Worker, "_let_clean_up", _drop_all),
        ):
            yield

    return both()


async def _drop_all(self: Worker) -> None:
    await asyncio.sleep(0)
    self.runner.settlements.clear()


def _warm_stop_completes() -> AbstractContextManager[None]:
    """A stop that has no time left acknowledges what still runs."""

    def acknowledge(self: Worker) -> None:
        for run in self.runner.runs.values():
            done = Settlement(id=run.delivery.id, token=run.delivery.token, change=Change.COMPLETE, result=b"null")
            self.runner.settlements.append(done)
        self.runner.stop(None, "shutdown")

    return _in_place_of(Worker, "_give_all_back", acknowledge)


def _replay_keeps_attempts() -> AbstractContextManager[None]:
    """A replayed letter has no attempt left, and dies again before it runs."""
    start = Runner.start

    async def spent(self: Runner, deliveries: list[Delivery]) -> None:
        alive = []
        for one in deliveries:
            if one.task == "doomed" and one.attempt > 1 and one.retries == 0 and not one.is_suspect:
                bury = Settlement(id=one.id, token=one.token, change=Change.BURY, reason="retries used up", keep_s=None)
                self.settlements.append(bury)
                self._on_settled()
            else:
                alive.append(one)
        await start(self, alive)

    return _in_place_of(Runner, "start", spent)


def _replay_moves_by_hand() -> AbstractContextManager[None]:
    """A replay takes letters out of the box first, and puts them into the queue a little later, if it still lives."""

    async def move(store: Store, one: Replay, is_again: bool) -> set[str]:
        letters = [letter for letter in await store.get(one.pending) if letter and letter.state is JobState.DEAD_LETTER]
        await store.change(Operation(change=Change.REMOVE, ids=[letter.id for letter in letters]))
        await asyncio.sleep(0.2)
        await store.enqueue([NewJob(id=letter.id, task=letter.task, payload=letter.payload) for letter in letters])
        return {letter.id for letter in letters}

    return _in_place_of(replay, "_send", move)


def _double_click_replays_twice() -> AbstractContextManager[None]:
    """Nobody remembers which replay a letter went with: where it has died again, the same request sends it again."""
    step = MemoryStore._change

    def forgetful(self: MemoryStore, id: str, operation: Operation) -> Changed:  # noqa: A002
        return step(self, id, replace(operation, replay=""))

    return _in_place_of(MemoryStore, "_change", forgetful)


def _cancel_is_a_wish() -> AbstractContextManager[None]:
    """Who cancels a running job is told yes, and the job ends as it likes."""
    step = MemoryStore._change

    def wished(self: MemoryStore, id: str, operation: Operation) -> Changed:  # noqa: A002
        job = self._jobs.get(id)
        if job is not None and operation.change is Change.CANCEL and job.state is JobState.RUNNING:
            return Changed(id, is_done=True, state=JobState.CANCELLED)
        return step(self, id, operation)

    return _in_place_of(MemoryStore, "_change", wished)


def _enqueued_twice() -> AbstractContextManager[None]:
    """A client that got no answer sends its job again as a new one."""
    answer_to = JobTable._answer_to

    def careless(self: Any, new: Any, ids: set[str], keys: Any, now: float) -> Any:
        return answer_to(self, replace(new, idempotency_key=None), ids, keys, now)

    return _in_place_of(JobTable, "_answer_to", careless)


# ---------------------------------------------------------------- what is shared, and is not


def _limits_of_their_own() -> AbstractContextManager[None]:
    """Each worker counts its own starts only."""
    take = SharedLimit.take

    def taken(self: SharedLimit, draft: Starts, at: float) -> float:
        date = take(self, draft, at)
        vars(self).setdefault("own", []).append(date)
        return date

    def own(self: SharedLimit, data: bytes, now: float) -> Starts:
        starts = Starts()
        for date in vars(self).get("own", []):
            if date > now - self.rate.time_window:
                starts.add(self.rate, date)
        return starts

    @contextmanager
    def both() -> Iterator[None]:
        with _in_place_of(SharedLimit, "take", taken), _in_place_of(SharedLimit, "read", own):
            yield

    return both()


def _trials_of_their_own() -> AbstractContextManager[None]:
    """Nobody sees which trials others have under way."""
    read = SharedBreaker.read

    def alone(self: SharedBreaker, data: bytes, now: float) -> BreakerValue | None:
        value = read(self, data, now)
        return None if value is None else replace(value, state=replace(value.state, trials=()))

    return _in_place_of(SharedBreaker, "read", alone)


def _openings_are_not_heard() -> AbstractContextManager[None]:
    """Who knows the breaker as closed does not hear that it has opened."""
    read = SharedBreaker.read

    def deaf(self: SharedBreaker, data: bytes, now: float) -> BreakerValue | None:
        heard, known = read(self, data, now), self.known
        is_news = heard is not None and heard.state.mode is BreakerMode.OPEN
        return known if is_news and known.state.mode is BreakerMode.CLOSED else heard

    return _in_place_of(SharedBreaker, "read", deaf)


# ---------------------------------------------------------------- attempts and time


def _failures_are_free() -> AbstractContextManager[None]:
    """A failed attempt goes back to the queue as if nobody had run it."""
    settle = MemoryStore._settle

    def free(self: MemoryStore, settlement: Settlement, now: float) -> bool:
        if settlement.change is not Change.RETRY:
            return settle(self, settlement, now)
        is_done = settle(self, replace(settlement, change=Change.RELEASE), now)
        job = self._jobs.get(settlement.id)
        if is_done and job is not None:
            job.counted = 0
        return is_done

    return _in_place_of(MemoryStore, "_settle", free)


def _leases_outlive_their_workers() -> AbstractContextManager[None]:
    """A lease is three times as long as was asked for."""
    beat = WorkerTable.beat

    def longer(self: WorkerTable, record: WorkerRecord, now: float) -> Beat:
        return beat(self, replace(record, lease_s=3 * record.lease_s), now)

    return _in_place_of(WorkerTable, "beat", longer)


def _ticks_are_put_off() -> AbstractContextManager[None]:
    """The jobs of schedules are there, and nobody is offered one."""
    enqueue = MemoryStore.enqueue

    async def put_off(self: MemoryStore, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        later = [replace(one, delay_s=3600.0) if one.task == "tick" else one for one in jobs]
        return await enqueue(self, later, connection)

    return _in_place_of(MemoryStore, "enqueue", put_off)


_STUCK: Final = ("not within 90 s of peace: all jobs come to an end",)
PLANTED: Final = (
    Planted("settlements without the fence", "our own fence, removed", _no_fence, ("I2 stale result",)),
    Planted(
        "a sweep that does not ask whether a lease is over",
        "our own guard, removed",
        _no_sweep_guard,
        ("I3 duplicate",),
    ),
    Planted("acknowledged before it is run", "Celery's default", _ack_before_run, ("I2 stale result", "I1 not run")),
    Planted("what a late claim brought is not looked for", "found here first", _nobody_looks_at_held, _STUCK),
    Planted(
        "settlements that are not sent again", "our own resend, removed", _settlements_are_sent_once, ("I3 duplicate",)
    ),
    Planted("settlements that are kept back", "acks in batches", _settlements_wait, ("I3 duplicate",)),
    Planted(
        "the rescuer overwrites what has just finished",
        "river#1302, solid_queue#589",
        _rescuer_overwrites,
        ("I2 illegal change",),
    ),
    Planted("recovery only when new work arrives", "taskiq-redis, dramatiq", _recovery_waits_for_traffic, _STUCK),
    Planted("a crashed job ignores max_retries", "dramatiq#213", _crashes_are_free, ("I4 too many",)),
    Planted("duplicates past a fixed visibility time", "celery#2599, #5935", _fixed_visibility, ("I3 duplicate",)),
    Planted("no more work after a reconnect", "celery#10205", _deaf_after_reconnect, _STUCK),
    Planted("a stop between claim and run loses the job", "rq#2236", _stop_between_claim_and_run, _STUCK),
    Planted("a warm stop acknowledges what still runs", "celery#4354", _warm_stop_completes, ("I1 not run",)),
    Planted("a replay that gives no attempts", "oban 2.5.1", _replay_keeps_attempts, ("replayed in vain",)),
    Planted(
        "a replay that moves letters in two steps",
        "dead-letter tools that are cancelled",
        _replay_moves_by_hand,
        ("I1 lost",),
    ),
    Planted("a double click replays twice", "bulk retries", _double_click_replays_twice, ("replayed too often",)),
    Planted(
        "a cancel that is only a wish", "cancel racing with complete", _cancel_is_a_wish, ("cancelled, they said",)
    ),
    Planted("one key, two jobs", "redis-py's retries", _enqueued_twice, ("I1 twice",)),
    Planted("a limit that each worker counts for itself", "limiters in memory", _limits_of_their_own, ("I7 too fast",)),
    Planted("trials that each worker counts for itself", "breakers in memory", _trials_of_their_own, ("I7 trials",)),
    Planted(
        "a breaker that opens for one worker alone", "breakers in memory", _openings_are_not_heard, ("I7 while open",)
    ),
    Planted("failures that cost no attempt", "our own count, removed", _failures_are_free, ("I4 too many",)),
    Planted("leases that outlive their workers", "our own bound, removed", _leases_outlive_their_workers, ("I5 late",)),
    Planted(
        "a tick that nobody is offered",
        "a beat whose queue nobody serves",
        _ticks_are_put_off,
        ("not within 90 s of peace: all but the latest ticks",),
    ),
)
