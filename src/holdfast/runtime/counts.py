"""What a worker has counted since its last exchange, by task: minutes, totals and histograms.

How attempts ended goes with the exchange that settles them, in its transaction, and in a batch with a number: so each
is counted once, whatever is lost on the way, and whenever the worker is killed. What the store refused to settle is
taken back with the next one. The rest follows once for each heartbeat.

The names are a closed set: `completed`, `retried`, `failed`, `parked`, `lost`, `dead` and `failed:<failure type>` for
how attempts ended; `processed` and `buried` for messages of a stream; `received` for jobs whose first attempt was
made, and `healed` for those that completed after a retry; `run_us` and `wait_us` for sums in microseconds; `run_le:<i>`
and `wait_le:<i>` for the attempts whose run, or whose wait in the queue, fell into bucket i of `BOUNDS_S`, and not into
a smaller one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from holdfast.ports import Count, Delivery

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The upper bounds of the histograms' buckets; one more bucket has everything beyond."""
RUN_LE: Final = "run_le:"
WAIT_LE: Final = "wait_le:"
FLEET: Final = ""
"""The task of the minutes' histograms, which are over all tasks: so sixty minutes of them stay small."""

_BUCKETS: Final = len(BOUNDS_S) + 1
_MINUTE_S: Final = 60.0
_TOTAL: Final = 0
_LAGGING: Final = frozenset({"received", "healed"})
_COMPLETED: Final[tuple[str, ...]] = ("completed",)
_FIRST: Final[tuple[str, ...]] = ("completed", "received")
_HEALED: Final[tuple[str, ...]] = ("completed", "healed")

_Key = tuple[int, str, str]
_End = tuple[int, str, int, tuple[str, ...]]
"""How an attempt was counted: its minute, its task, its number, and the names."""


class Batch(Struct, frozen=True):
    """What one exchange takes along; it goes again as it is until the exchange is answered."""

    number: int
    counts: Sequence[Count]
    has_slow: bool
    ends: dict[str, _End]
    """How the attempts were counted that the exchange settles, by job."""

    def attempt_of(self, job: str) -> int | None:
        """The number of the attempt that was counted of this job; None where none was."""
        end = self.ends.get(job)
        return None if end is None else end[2]


class _Tally:
    """One task's numbers that are not taken yet."""

    __slots__ = ("completed", "healed", "names", "received", "run_le", "run_s", "wait_le", "wait_s")

    def __init__(self) -> None:
        # Since the last exchange.
        self.completed = 0
        self.names: dict[str, int] = {}
        # Since these were last put together.
        self.received = 0
        self.healed = 0
        self.run_s = 0.0
        self.wait_s = 0.0
        self.run_le = [0] * _BUCKETS
        self.wait_le = [0] * _BUCKETS


class Counts:
    """Counts that travel with the next exchange; sums and histograms with one now and then.

    Used from one event loop; `taken` may be read from any thread.
    """

    def __init__(self, uncounted: Collection[str] = ()) -> None:
        """uncounted: tasks whose jobs are no work of the user's, such as letters that are carried to their stream."""
        self._uncounted = frozenset(uncounted)
        self._tallies: dict[str, _Tally] = {}
        self._minute = 0
        self._minute_ends_at = 0.0
        self._quick: dict[_Key, int] = {}
        """For the next exchange: what has ended, by minute and in all."""
        self._slow: dict[_Key, int] = {}
        """For one of the next exchanges: sums, and the histograms."""
        self._ends: dict[str, _End] = {}
        self._number = 0
        self.unanswered: Batch | None = None
        """What was taken along by an exchange that is not answered yet."""
        self.taken: dict[str, int] = {}
        """Since the worker started, by name, as of the last exchange."""

    # ---- counting

    def ended(self, now: float, delivery: Delivery, began_at: float, *, is_completed: bool) -> None:
        """An attempt that had begun is over; this is done for every job, and nothing else is."""
        if delivery.token and delivery.task in self._uncounted:
            return
        if now >= self._minute_ends_at or now < self._minute_ends_at - _MINUTE_S:
            self._turn(now)
        tally = self._tallies.get(delivery.task) or self._new(delivery.task)
        run_s = now - began_at
        tally.run_s += run_s
        tally.run_le[bisect_left(BOUNDS_S, run_s)] += 1
        wait_s = began_at - delivery.due_at
        if wait_s > 0.0:
            tally.wait_s += wait_s
            tally.wait_le[bisect_left(BOUNDS_S, wait_s)] += 1
        else:  # a clock that was set back
            tally.wait_le[0] += 1
        names = _COMPLETED
        if delivery.attempt == 1:
            tally.received += 1
            names = _FIRST
        if is_completed:
            tally.completed += 1
            if delivery.retries:
                tally.healed += 1
                names = _HEALED
            if delivery.token:  # what has no lease is not settled by an exchange, and not refused by one
                self._ends[delivery.id] = (self._minute, delivery.task, delivery.attempt, names)

    def ended_as(self, now: float, delivery: Delivery, *names: str, has_run: bool) -> None:
        """How an attempt ended that has not simply completed its job, or why none was made of it."""
        if delivery.token and delivery.task in self._uncounted:
            return
        for name in names:
            self.add(now, delivery.task, name)
        if has_run and delivery.attempt == 1:
            names = (*names, "received")
        if delivery.token:
            self._ends[delivery.id] = (self._minute, delivery.task, delivery.attempt, names)

    def completed_itself(self, now: float, delivery: Delivery, began_at: float) -> None:
        """An attempt is over that its own transaction has completed, and counted: see `completion`."""
        self.ended(now, delivery, began_at, is_completed=False)
        if delivery.retries:
            self._tallies[delivery.task].healed += 1
        self.taken["completed"] = self.taken.get("completed", 0) + 1

    def add(self, now: float, task: str, name: str, n: int = 1) -> None:
        """So many more of one name."""
        if now >= self._minute_ends_at or now < self._minute_ends_at - _MINUTE_S:
            self._turn(now)
        names = (self._tallies.get(task) or self._new(task)).names
        names[name] = names.get(name, 0) + n

    def receive(self, now: float, task: str) -> None:
        """A first attempt was made whose times nobody knows."""
        if now >= self._minute_ends_at or now < self._minute_ends_at - _MINUTE_S:
            self._turn(now)
        (self._tallies.get(task) or self._new(task)).received += 1

    def correct(self, job: str, *names: str) -> None:
        """What was said of this job has not taken effect: take back how it was counted, and count these instead."""
        end = None if self.unanswered is None else self.unanswered.ends.pop(job, None)
        end = end or self._ends.pop(job, None)
        if end is None:
            return
        self._gather_quick()
        minute, task, _, wrong = end
        for name in wrong:
            if name in _LAGGING:
                _add(self._slow, (_TOTAL, task, name), -1)
            else:
                self._count_quick(minute, task, name, -1)
        for name in names:
            self._count_quick(minute, task, name, 1)

    @property
    def totals(self) -> dict[str, int]:
        """Since the worker started, by name."""
        sums = dict(self.taken)
        for tally in self._tallies.values():
            for name, n in (*tally.names.items(), ("completed", tally.completed)):
                if n:
                    sums[name] = sums.get(name, 0) + n
        return sums

    # ---- taking

    @property
    def has_ends(self) -> bool:
        """Whether there is something to be said of attempts whose settlements were sent already."""
        return bool(self._quick) or (self.unanswered is not None and bool(self.unanswered.ends))

    @property
    def has_slow(self) -> bool:
        """Whether there are sums to be sent."""
        return bool(self._slow) or any(any(tally.run_le) or tally.received for tally in self._tallies.values())

    def take(self, *, with_slow: bool) -> Batch:
        """What has ended since the last exchange, and all that is gathered besides, where that is asked for.

        The same again, for as long as it is not answered.
        """
        if self.unanswered is not None:
            return self.unanswered
        self._gather_quick()
        counts = [Count(*key, n) for key, n in self._quick.items() if n]
        self._quick.clear()
        if with_slow:
            self._gather_slow()
            counts += [Count(*key, n) for key, n in self._slow.items() if n]
            self._slow.clear()
        self._number += 1
        batch = Batch(self._number, counts, with_slow, self._ends)
        self._ends = {}
        if counts or batch.ends:
            self.unanswered = batch
        return batch

    def answered(self) -> None:
        """What was taken along is counted."""
        self.unanswered = None

    def _new(self, task: str) -> _Tally:
        self._tallies[task] = tally = _Tally()
        return tally

    def _turn(self, now: float) -> None:
        """Another minute has begun; what was counted belongs to the one before."""
        self._gather_quick()
        self._gather_slow()
        self._minute = int(now // _MINUTE_S)
        self._minute_ends_at = (self._minute + 1) * _MINUTE_S

    def _gather_quick(self) -> None:
        for task, tally in self._tallies.items():
            if tally.completed:
                self._count_quick(self._minute, task, "completed", tally.completed)
                tally.completed = 0
            if tally.names:
                for name, n in tally.names.items():
                    self._count_quick(self._minute, task, name, n)
                tally.names = {}

    def _count_quick(self, minute: int, task: str, name: str, n: int) -> None:
        _add(self._quick, (minute, task, name), n)
        _add(self._quick, (_TOTAL, task, name), n)
        self.taken[name] = self.taken.get(name, 0) + n

    def _gather_slow(self) -> None:
        minute, slow = self._minute, self._slow
        for task, tally in self._tallies.items():
            if not (tally.received or any(tally.run_le)):
                continue
            sums = (
                ("received", tally.received),
                ("healed", tally.healed),
                ("run_us", round(tally.run_s * 1e6)),
                ("wait_us", round(tally.wait_s * 1e6)),
            )
            for name, n in sums:
                if n:
                    _add(slow, (_TOTAL, task, name), n)
            for prefix, buckets in ((RUN_LE, tally.run_le), (WAIT_LE, tally.wait_le)):
                for place, n in enumerate(buckets):
                    if n:
                        _add(slow, (_TOTAL, task, f"{prefix}{place}"), n)
                        _add(slow, (minute, FLEET, f"{prefix}{place}"), n)
        self._tallies.clear()


def completion(now: float, task: str) -> tuple[Count, Count]:
    """The counts of an attempt that completes its job in a transaction of its own, which they go with."""
    return Count(int(now // _MINUTE_S), task, "completed", 1), Count(_TOTAL, task, "completed", 1)


def _add(sums: dict[_Key, int], key: _Key, n: int) -> None:
    sums[key] = sums.get(key, 0) + n


# ---------------------------------------------------------------- reading


def buckets_of(counts: Iterable[Count], prefix: str) -> list[int]:
    """The sums of a histogram's buckets, `RUN_LE` or `WAIT_LE`, over these counts."""
    buckets = [0] * _BUCKETS
    for count in counts:
        if count.name.startswith(prefix):
            place = count.name[len(prefix) :]
            if place.isdecimal() and int(place) < _BUCKETS:  # another version of this may have counted there, too
                buckets[int(place)] += count.n
    return buckets


def percentile(buckets: Sequence[int], share: float) -> float | None:
    """The length in seconds that this share of a histogram stays below, by a straight line through its bucket.

    None without any; the last bound where it falls beyond that.
    """
    wanted = share * sum(buckets)
    if wanted <= 0.0:
        return None
    below = 0
    for place, bound_s in enumerate(BOUNDS_S):
        if below + buckets[place] >= wanted:
            low_s = BOUNDS_S[place - 1] if place else 0.0
            return low_s + (bound_s - low_s) * (wanted - below) / buckets[place]
        below += buckets[place]
    return BOUNDS_S[-1]
