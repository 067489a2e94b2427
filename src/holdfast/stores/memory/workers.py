"""The workers of a memory store: their leases, what they hold, and the orphans of those that are gone."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field, structs

from holdfast.ports import Beat, WorkerRecord
from holdfast.stores.memory.job import StoredJob


class StoredWorker(Struct, eq=False):
    """A worker with a lease."""

    record: WorkerRecord
    lease_until: float
    held: dict[bytes, dict[str, StoredJob]] = field(default_factory=dict)
    """By the token they are held under, then by id, in the order in which they were handed out."""
    latest: dict[bytes, bytes] = field(default_factory=dict)
    """The latest tokens that brought a job, by their first byte: a claim that comes again must not claim again."""
    cancelled: list[str] = field(default_factory=list)

    def has_used(self, token: bytes) -> bool:
        """Whether something was handed out under this token already, or under a later one."""
        return token in self.held or token <= self.latest.get(token[:1], b"")

    def held_under(self, token: bytes) -> list[StoredJob]:
        """What still runs under this token."""
        return list(self.held.get(token, {}).values())

    def hold(self, token: bytes, jobs: Iterable[StoredJob]) -> None:
        """These are its own from now on."""
        for job in jobs:
            job.token = token
            job.holder = self.record.id
            self.held.setdefault(token, {})[job.new.id] = job
            self.latest[token[:1]] = token


class WorkerTable:
    """Every worker, and every running job whose worker is gone."""

    def __init__(self) -> None:
        self._workers: dict[str, StoredWorker] = {}
        self._gone: set[str] = set()
        self._orphans: dict[str, StoredJob] = {}

    def get(self, id: str) -> StoredWorker | None:  # noqa: A002
        """The worker of this id, unless it was given up."""
        return self._workers.get(id)

    def records(self) -> list[WorkerRecord]:
        """All that were not given up."""
        return [worker.record for worker in self._workers.values()]

    def beat(self, record: WorkerRecord, now: float) -> Beat:
        """Register a worker or renew its lease, or take its leave."""
        if record.id in self._gone:
            return Beat(is_alive=False)
        if record.lease_s <= 0:
            self._give_up(record.id)
            return Beat(is_alive=False)
        record = structs.replace(record, seen_at=now)
        worker = self._workers.setdefault(record.id, StoredWorker(record, now))
        worker.record = record
        worker.lease_until = now + record.lease_s
        cancelled, worker.cancelled = worker.cancelled, []
        held = {token: len(jobs) for token, jobs in worker.held.items()}
        return Beat(is_alive=True, cancelled=tuple(cancelled), held=held)

    def let_go(self, job: StoredJob) -> StoredWorker | None:
        """Nobody holds this job any more; return who did, if it is not gone."""
        self._orphans.pop(job.new.id, None)
        worker = self._workers.get(job.holder)
        if worker is not None:
            del worker.held[job.token][job.new.id]
            if not worker.held[job.token]:
                del worker.held[job.token]
        job.token = b""
        job.holder = ""
        return worker

    def give_up_late(self, now: float, by: StoredWorker) -> None:
        """Give up all workers whose lease is over; none if that of the one who asks is."""
        if by.lease_until <= now:
            return
        late = [worker for worker in self._workers.values() if worker.lease_until <= now]
        for worker in late:
            self._give_up(worker.record.id)

    def take_orphans(self, limit: int) -> list[StoredJob]:
        """Take out up to so many jobs whose worker is gone, each with the facts of its first death."""
        jobs = [self._orphans.pop(id) for id in list(self._orphans)[:limit]]  # noqa: A001
        for job in jobs:
            if not job.orphan_of:  # otherwise it was the worker that was to judge it which died
                job.orphan_of = job.worker
                job.orphaned += 1
        return jobs

    def _give_up(self, id: str) -> None:  # noqa: A002
        self._gone.add(id)
        worker = self._workers.pop(id, None)
        if worker is not None:
            for jobs in worker.held.values():
                self._orphans.update(jobs)
