"""Bugs that other projects have shipped, and ours if a guard were missing, planted one at a time: each must be found.

Each is a context in which the product has the bug. What is named beside it is where it is known from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import StoreAway
from holdfast.policy.lifecycle import is_allowed
from holdfast.ports import Beat, Changed, Claim, Delivery, Exchanged, Operation, Settlement, WorkerRecord
from holdfast.runtime.held import Held
from holdfast.runtime.maintenance import Maintenance
from holdfast.runtime.runner import Runner
from holdfast.runtime.worker import Worker
from holdfast.stores.memory import store as store_module
from holdfast.stores.memory.job import StoredJob
from holdfast.stores.memory.jobs import JobTable
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.memory.workers import StoredWorker, WorkerTable
from holdfast.types import Change, JobState


class Planted(Struct, frozen=True):
    """One bug."""

    name: str
    known_from: str
    plant: Callable[[], AbstractContextManager[None]]


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

    def give_up_late(self: WorkerTable, now: float, but: StoredWorker) -> None:
        for worker in [one for one in self._workers.values() if one is not but and one.lease_until <= now + 1.6]:
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


# ---------------------------------------------------------------- what others have shipped


def _rescuer_overwrites() -> AbstractContextManager[None]:
    """The rescuer takes no lease of its own, and settles what it found whatever has become of it since."""
    settle = MemoryStore._settle

    async def look(self: MemoryStore, worker: str, token: bytes, limit: int) -> list[Delivery]:
        rescuer = self._workers.get(worker)
        if rescuer is None:
            return []
        self._workers.give_up_late(self._now(), but=rescuer)
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
            _in_place_of(Runner, "release_waiting", lambda self, older_than_s=0.0: self._waiting.clear()),
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
    """A replay takes a letter out of the box first, and puts it into the queue in a second step."""

    async def change(self: MemoryStore, operation: Operation) -> list[Changed]:
        return [_moved(self, id, operation) for id in operation.ids]  # noqa: A001

    def _moved(store: MemoryStore, id: str, operation: Operation) -> Changed:  # noqa: A002
        job = store._jobs.get(id)
        if operation.change is not Change.REPLAY or job is None or not is_allowed(job.state, Change.REPLAY):
            return store._change(id, operation)
        store._jobs.move(job, Change.REMOVE)
        asyncio.get_running_loop().call_later(0.05, _put_back, store, job)
        return Changed(id, is_done=True, state=JobState.QUEUED)

    def _put_back(store: MemoryStore, job: StoredJob) -> None:
        store._jobs._jobs[job.new.id] = job
        job.state = JobState.QUEUED
        store._jobs._tallies[job.new.queue, job.new.task, job.state] += 1
        store._make_ready(job, store._now(), store._now())

    return _in_place_of(MemoryStore, "change", change)


def _double_click_replays_twice() -> AbstractContextManager[None]:
    """Nobody remembers which replay a letter went with."""
    step = MemoryStore._change

    def forgetful(self: MemoryStore, id: str, operation: Operation) -> Changed:  # noqa: A002
        job = self._jobs.get(id)
        if job is not None and operation.change is Change.REPLAY and job.state is JobState.COMPLETED:
            self._jobs._enter(job, JobState.QUEUED)
            self._make_ready(job, self._now(), self._now())
            return Changed(id, is_done=True, state=JobState.QUEUED)
        return step(self, id, operation)

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


PLANTED: Final = (
    Planted("settlements without the fence", "our own fence, removed", _no_fence),
    Planted("a sweep that does not ask whether a lease is over", "our own guard, removed", _no_sweep_guard),
    Planted("acknowledged before it is run", "Celery's default", _ack_before_run),
    Planted("what a late claim brought is not looked for", "found here first", _nobody_looks_at_held),
    Planted("settlements that are not sent again", "our own resend, removed", _settlements_are_sent_once),
    Planted("the rescuer overwrites what has just finished", "river#1302, solid_queue#589", _rescuer_overwrites),
    Planted("recovery only when new work arrives", "taskiq-redis, dramatiq", _recovery_waits_for_traffic),
    Planted("a crashed job ignores max_retries", "dramatiq#213", _crashes_are_free),
    Planted("duplicates past a fixed visibility time", "celery#2599, #5935", _fixed_visibility),
    Planted("no more work after a reconnect", "celery#10205", _deaf_after_reconnect),
    Planted("a stop between claim and run loses the job", "rq#2236", _stop_between_claim_and_run),
    Planted("a warm stop acknowledges what still runs", "celery#4354", _warm_stop_completes),
    Planted("a replay that gives no attempts", "oban 2.5.1", _replay_keeps_attempts),
    Planted("a replay that moves letters in two steps", "dead-letter tools that are cancelled", _replay_moves_by_hand),
    Planted("a double click replays twice", "bulk retries", _double_click_replays_twice),
    Planted("a cancel that is only a wish", "cancel racing with complete", _cancel_is_a_wish),
    Planted("one key, two jobs", "redis-py's retries", _enqueued_twice),
)
