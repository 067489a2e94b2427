"""Every job of a memory store: by id, by idempotency key, counted by state, and until when they are kept."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final

from msgspec import structs

from holdfast.policy import lifecycle
from holdfast.ports import Enqueued, Tally
from holdfast.stores.memory.job import StoredJob
from holdfast.types import Change, JobState, NewJob

KeyScope = tuple[str, str, str]
_QUEUED: Final = JobState.QUEUED


class JobTable:
    """The jobs. A change of state goes through `move`, so that the tallies are always right."""

    def __init__(self, key_window_s: float) -> None:
        self._key_window_s = key_window_s
        self._jobs: dict[str, StoredJob] = {}
        self._keys: dict[KeyScope, StoredJob] = {}
        self._tallies: Counter[tuple[str, str, JobState]] = Counter()
        self._kept: list[tuple[float, int, StoredJob]] = []
        self._order = itertools.count(1)

    def get(self, id: str) -> StoredJob | None:  # noqa: A002
        """The job of this id."""
        return self._jobs.get(id)

    def newest_first(self) -> Iterator[StoredJob]:
        """All of them, by when they were enqueued."""
        return reversed(self._jobs.values())

    def tallies(self) -> list[Tally]:
        """How many there are of each queue, task and state; kinds with none are left out."""
        return [Tally(*kind, n) for kind, n in sorted(self._tallies.items()) if n]

    def add_all(self, jobs: Sequence[NewJob], now: float) -> tuple[list[Enqueued], list[StoredJob]]:
        """Add those that are new, or none of them when an idempotency key is taken by another payload."""
        answers: list[Enqueued] = []
        ids: set[str] = set()
        keys: dict[KeyScope, NewJob] = {}
        for new in jobs:
            answer = self._answer_to(new, ids, keys, now)
            answers.append(answer)
            if answer.is_new:
                ids.add(new.id)
                if new.idempotency_key is not None:
                    keys[new.tenant, new.task, new.idempotency_key] = new
        if any(answer.is_conflict for answer in answers):
            return [structs.replace(one, is_new=False) for one in answers], []
        return answers, [self._add(new, now) for new, answer in zip(jobs, answers, strict=True) if answer.is_new]

    def move(self, job: StoredJob, change: Change) -> None:
        """Change a job's state as the table of its life allows; at the end of that table the record is gone."""
        self._enter(job, lifecycle.after(job.state, change))

    def move_again(self, job: StoredJob, change: Change) -> None:
        """The same for work that is no job, has ended, and ends once more."""
        assert lifecycle.is_allowed(job.state, change, is_again=True)  # noqa: S101 - no other end takes effect
        self._enter(job, lifecycle.LIFECYCLE[change].after)

    def end(self, job: StoredJob, now: float, keep_s: float | None) -> None:
        """A job has reached a terminal state, and is to be kept for so long."""
        job.ended_at = now
        job.kept_until = None
        if keep_s is not None:
            job.kept_until = now + (max(keep_s, self._key_window_s) if self._has_key(job) else keep_s)
            heappush(self._kept, (job.kept_until, job.seq, job))

    def prune(self, limit: int, now: float) -> int:
        """Remove up to so many jobs whose time to be kept is over."""
        n = 0
        while n < limit and self._kept and self._kept[0][0] <= now:
            kept_until, _, job = heappop(self._kept)
            is_current = self._jobs.get(job.new.id) is job and job.kept_until == kept_until
            if is_current:  # not removed, replayed or ended again in the meantime
                self.move(job, Change.REMOVE)
                n += 1
        return n

    def _enter(self, job: StoredJob, state: JobState | None) -> None:
        kind = (job.new.queue, job.new.task)
        self._tallies[*kind, job.state] -= 1
        if state is None:
            self._forget(job)
        else:
            self._tallies[*kind, state] += 1
            job.state = state

    def _answer_to(self, new: NewJob, ids: set[str], keys: dict[KeyScope, NewJob], now: float) -> Enqueued:
        """What becomes of a new job, beside those of its batch that came before it."""
        known = self._jobs.get(new.id)
        if known is not None:
            return Enqueued(new.id, is_new=False, state=known.state)
        if new.id in ids:
            return Enqueued(new.id, is_new=False)
        if new.idempotency_key is None:
            return Enqueued(new.id)
        scope = (new.tenant, new.task, new.idempotency_key)
        holder = keys.get(scope)
        state = _QUEUED
        if holder is None:
            stored = self._keys.get(scope)
            if stored is None or not self._holds_key(stored, now):
                return Enqueued(new.id)
            holder, state = stored.new, stored.state
        return Enqueued(holder.id, is_new=False, is_conflict=holder.payload != new.payload, state=state)

    def _has_key(self, job: StoredJob) -> bool:
        """Whether it has a key that is still its own: that of a job long ended may be another's by now."""
        new = job.new
        return new.idempotency_key is not None and self._keys.get((new.tenant, new.task, new.idempotency_key)) is job

    def _holds_key(self, job: StoredJob, now: float) -> bool:
        return job.ended_at is None or now < job.ended_at + self._key_window_s

    def _add(self, new: NewJob, now: float) -> StoredJob:
        due_at = now + max(0.0, new.delay_s)
        job = StoredJob(seq=next(self._order), new=new, payload=new.payload, created_at=now, due_at=due_at)
        self._jobs[new.id] = job
        if new.idempotency_key is not None:
            self._keys[new.tenant, new.task, new.idempotency_key] = job
        self._tallies[new.queue, new.task, job.state] += 1
        return job

    def _forget(self, job: StoredJob) -> None:
        new = job.new
        del self._jobs[new.id]
        if new.idempotency_key is not None and self._has_key(job):
            del self._keys[new.tenant, new.task, new.idempotency_key]
