"""The jobs that can be claimed, by lane, and those that are not due yet."""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush

from msgspec import Struct, field

from holdfast.policy.lifecycle import READY
from holdfast.ports import Claim
from holdfast.stores.memory.job import StoredJob
from holdfast.stores.picking import most_of
from holdfast.types import NewJob

LaneKey = tuple[str, str, tuple[str, ...]]


class Lane(Struct, eq=False):
    """Ready jobs with one queue, one task and the same gates: they are open or closed together."""

    queue: str
    gates: frozenset[str]
    jobs: list[tuple[int, float, int, StoredJob]] = field(default_factory=list)
    """A heap in the order of claims: priority, due time, age."""

    def drop_ended(self) -> None:
        """Take away from the head what was cancelled while it stood in the lane."""
        while self.jobs and self.jobs[0][3].state not in READY:
            heappop(self.jobs)


class ReadyJobs:
    """Every job that is queued, retrying or waiting. One that is cancelled stays until it comes to the head."""

    def __init__(self) -> None:
        self._lanes: dict[LaneKey, Lane] = {}
        self._delayed: list[tuple[float, int, StoredJob]] = []

    def add(self, job: StoredJob, now: float) -> None:
        """Put in a job; it can be taken once it is due."""
        if job.due_at > now:
            heappush(self._delayed, (job.due_at, job.seq, job))
            return
        new = job.new
        key = _key_of(new)
        lane = self._lanes.get(key)
        if lane is None:
            gates = frozenset((f"queue:{new.queue}", f"task:{new.task}", *new.gates))
            lane = self._lanes[key] = Lane(new.queue, gates)
        heappush(lane.jobs, (-new.priority, job.due_at, job.seq, job))

    def remove(self, job: StoredJob) -> None:
        """Take out a job that may come back: it must not stand here twice then."""
        self._delayed = [one for one in self._delayed if one[2] is not job]
        heapify(self._delayed)
        lane = self._lanes.get(_key_of(job.new))
        if lane is not None:
            lane.jobs = [one for one in lane.jobs if one[3] is not job]
            heapify(lane.jobs)

    def take(self, claim: Claim, now: float) -> list[StoredJob]:
        """Take out what this claim may have, in its order."""
        self._promote(now)
        room = dict(claim.caps)
        most = most_of(claim)
        taken_of: Counter[Lane] = Counter()
        heads = [(lane.jobs[0], lane) for lane in self._open_lanes(claim)]
        heapify(heads)
        taken: list[StoredJob] = []
        while heads and len(taken) < claim.limit:
            (_, _, _, job), lane = heappop(heads)
            capped = [gate for gate in lane.gates if gate in room]
            if taken_of[lane] >= most or any(room[gate] <= 0 for gate in capped):
                continue
            for gate in capped:
                room[gate] -= 1
            heappop(lane.jobs)
            taken.append(job)
            taken_of[lane] += 1
            lane.drop_ended()
            if lane.jobs:
                heappush(heads, (lane.jobs[0], lane))
        return taken

    def next_due_s(self, now: float) -> float | None:
        """How long until the next delayed job is due."""
        self._promote(now)
        return self._delayed[0][0] - now if self._delayed else None

    def oldest_due_at(self, now: float) -> dict[str, float]:
        """By queue: the earliest due time of its jobs that could run now."""
        self._promote(now)
        oldest: dict[str, float] = {}
        for lane in self._lanes.values():
            for _, due_at, _, job in lane.jobs:
                if job.state in READY:
                    oldest[lane.queue] = min(due_at, oldest.get(lane.queue, due_at))
        return oldest

    def _promote(self, now: float) -> None:
        """Move to their lanes the delayed jobs whose time has come."""
        self._drop_ended_delayed()
        while self._delayed and self._delayed[0][0] <= now:
            self.add(heappop(self._delayed)[2], now)
            self._drop_ended_delayed()

    def _drop_ended_delayed(self) -> None:
        while self._delayed and self._delayed[0][2].state not in READY:
            heappop(self._delayed)

    def _open_lanes(self, claim: Claim) -> list[Lane]:
        """The lanes that this claim may take from, with a job at their head; empty lanes are forgotten."""
        shut = {gate for gate, room in claim.caps.items() if room <= 0}
        lanes: list[Lane] = []
        for key, lane in list(self._lanes.items()):
            lane.drop_ended()
            if not lane.jobs:
                del self._lanes[key]
            elif (claim.queues is None or lane.queue in claim.queues) and shut.isdisjoint(lane.gates):
                lanes.append(lane)
        return lanes


def _key_of(new: NewJob) -> LaneKey:
    gates = new.gates
    return new.queue, new.task, gates if len(gates) < 2 else tuple(sorted(set(gates)))
