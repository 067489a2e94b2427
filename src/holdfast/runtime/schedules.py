"""Schedules: every tick makes one job, however many workers look and whoever dies on the way.

A tick's job has an id made of the schedule's name and the tick, so that enqueueing it twice makes one job. Only then
the value `schedule:<name>` says that the tick has been fired. Killed in between, the next worker enqueues it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from holdfast.errors import ConfigError
from holdfast.policy.schedule import AHEAD_S, Missed, Timing, due, timing_of
from holdfast.ports import Exchange, Exchanged, Store, Value, ValueChange
from holdfast.runtime.shared.seen import Seen
from holdfast.types import NewJob

PREFIX: Final = "schedule:"
"""The keys of schedules in the store begin so."""
_LONGEST_NAME: Final = 200
_NEVER: Final = float("inf")
_DEPLOY_S: Final = 172_800.0
_MOST_TIMINGS: Final = 4


class Schedule(Struct, frozen=True, kw_only=True):
    """A task to be run at every tick of a timing.

    timing: a cron line, a number of seconds, a timedelta, an Every or a Cron; `timing_of` makes one of the last two of
    it. payload [{}]: the arguments by name. missed ["once"]: after a time in which no worker ran, "once" fires the
    latest tick, and "skip" does so only if it is less than a minute old. The rest is as for any job of the task.
    """

    name: str
    task: str
    timing: Any
    payload: Mapping[str, Any] = {}
    missed: Missed = "once"
    queue: str = "default"
    priority: int = 0
    gates: tuple[str, ...] = ()
    tenant: str = ""
    user: str = ""
    project: str = ""

    def __post_init__(self) -> None:
        is_text = isinstance(self.name, str) and self.name.isprintable()
        if not is_text or not 0 < len(self.name) <= _LONGEST_NAME:
            raise ConfigError(f"name={self.name!r}: must be a text of 1 to {_LONGEST_NAME} characters")
        if self.missed not in ("once", "skip"):
            raise ConfigError(f"missed={self.missed!r}: must be 'once' or 'skip'")
        force_setattr(self, "timing", timing_of(self.timing))
        self.data()

    @property
    def key(self) -> str:
        """The key of its value in the store."""
        return PREFIX + self.name

    def data(self) -> bytes:
        """The arguments as JSON."""
        try:
            return msgspec.json.encode(dict(self.payload))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ConfigError(f"payload={self.payload!r}: cannot be written as JSON: {error}") from error

    def job_at(self, tick: float) -> NewJob:
        """The job of one tick."""
        return NewJob(
            id=tick_id(self.name, tick),
            task=self.task,
            payload=self.data(),
            queue=self.queue,
            priority=self.priority,
            gates=self.gates,
            tenant=self.tenant,
            user=self.user,
            project=self.project,
        )


class Progress(Struct, frozen=True, kw_only=True):
    """How far a schedule is, as the store keeps it."""

    timing: str
    """The timing's text: with another one the schedule starts anew."""
    last: float
    """All up to here is decided."""
    fired_at: float | None = None
    """The last tick that was fired."""
    is_paused: bool = False
    others: Mapping[str, float] = {}
    """How far it was with other timings, lately: while a deploy is under way old and new workers go on side by side."""

    def under(self, timing: str) -> Progress:
        """The same as workers with another timing see it; where that is new, or long ago, nothing changes."""
        last = self.others.get(timing)
        if timing == self.timing or last is None or abs(self.last - last) > _DEPLOY_S:
            return self
        return replace(self, timing=timing, last=last, others=self._others_but(timing))

    def begun(self, timing: str, now: float) -> Progress:
        """The same with a timing that starts now."""
        return replace(self, timing=timing, last=now, others=self._others_but(timing))

    def _others_but(self, timing: str) -> Mapping[str, float]:
        latest = sorted({**self.others, self.timing: self.last}.items(), key=lambda item: item[1])[-_MOST_TIMINGS:]
        return {text: last for text, last in latest if text != timing}


class ScheduleStatus(Struct, frozen=True, kw_only=True):
    """A schedule, as people are shown it; instants are wall time in seconds since 1970."""

    name: str
    task: str
    timing: str
    next_at: float | None
    """None while it is paused."""
    last_at: float | None
    """The last tick that was fired; None where there was none."""
    is_paused: bool


def tick_id(name: str, tick: float) -> str:
    """The id of a tick's job: a UUIDv7 of the tick's own time, the same whoever makes it."""
    chance = int.from_bytes(blake2b(f"{name}\0{tick!r}".encode(), digest_size=16).digest())
    stamp = int(tick * 1000) & 0xFFFF_FFFF_FFFF
    return str(
        UUID(int=stamp << 80 | 7 << 76 | (chance >> 64 & 0xFFF) << 64 | 2 << 62 | chance & 0x3FFF_FFFF_FFFF_FFFF)
    )


class Schedules:
    """The schedules of an app on a store; each worker has one and calls `fire` about every second.

    `wall_now` is wall time, as cron lines mean it. A clock that jumps never fires a tick twice: one that went back
    waits until it has caught up, and starts anew if it was ahead by more than a day.
    """

    def __init__(self, store: Store, schedules: Iterable[Schedule]) -> None:
        self._store = store
        self._schedules: dict[str, Schedule] = {}
        for schedule in schedules:
            if schedule.name in self._schedules:
                raise ConfigError(f"name={schedule.name!r}: two schedules have this name")
            self._schedules[schedule.name] = schedule
        self._values: dict[str, Value] = {}
        self._seen = Seen()
        self._next: dict[str, tuple[str, float, float]] = {}

    async def fire(self, wall_now: float) -> list[str]:
        """Fire what is due, and answer with the ids of the jobs that were made; asks the store only when needed.

        A schedule that is seen for the first time, or with a new timing, starts now: nothing is made up for.
        """
        if not any(self._needs_look(schedule, wall_now) for schedule in self._schedules.values()):
            return []
        await self._exchange()
        jobs: list[NewJob] = []
        changes: list[ValueChange] = []
        for schedule in self._schedules.values():
            progress, tick = _decide(schedule, self._progress(schedule), wall_now)
            if progress is not None:
                changes.append(self._change(schedule, progress))
            if tick is not None:
                jobs.append(schedule.job_at(tick))
        answers = await self._store.enqueue(jobs) if jobs else []
        if changes:
            await self._exchange(changes)  # one that is lost was made by another worker, for the same tick
        return [answer.id for answer in answers if answer.is_new]

    async def pause(self, name: str, wall_now: float) -> None:
        """Fire no more ticks of this schedule until it is resumed, by no worker."""
        await self._steer(name, wall_now, lambda progress: replace(progress, is_paused=True))

    async def resume(self, name: str, wall_now: float) -> None:
        """Fire again, from the next tick on."""
        await self._steer(
            name,
            wall_now,
            lambda one: replace(one, is_paused=False, last=max(one.last, wall_now)) if one.is_paused else one,
        )

    async def list(self, wall_now: float) -> list[ScheduleStatus]:
        """Every schedule by name, with its last tick and its next one."""
        await self._exchange()
        return [self._status(schedule, wall_now) for _, schedule in sorted(self._schedules.items())]

    def _status(self, schedule: Schedule, wall_now: float) -> ScheduleStatus:
        timing: Timing = schedule.timing
        progress = self._progress(schedule) or Progress(timing=timing.text, last=wall_now)
        start = max(progress.last, wall_now) if progress.timing == timing.text else wall_now
        return ScheduleStatus(
            name=schedule.name,
            task=schedule.task,
            timing=timing.text,
            next_at=None if progress.is_paused else timing.next_after(start),
            last_at=progress.fired_at,
            is_paused=progress.is_paused,
        )

    def _needs_look(self, schedule: Schedule, wall_now: float) -> bool:
        """Whether something may be due, by what was known last; a paused one may have been resumed."""
        progress = self._progress(schedule)
        timing: Timing = schedule.timing
        if progress is None or progress.timing != timing.text or progress.last > wall_now + AHEAD_S:
            return True
        known = self._next.get(schedule.name)
        if known is None or known[:2] != (progress.timing, progress.last):
            next_at = timing.next_after(progress.last)
            known = self._next[schedule.name] = (progress.timing, progress.last, _NEVER if next_at is None else next_at)
        return wall_now >= known[2]

    async def _steer(self, name: str, wall_now: float, change: Callable[[Progress], Progress]) -> None:
        schedule = self._schedules.get(name)
        if schedule is None:
            names = ", ".join(sorted(self._schedules)) or "none"
            raise ConfigError(f"name={name!r}: no such schedule; there are: {names}")
        await self._exchange()
        while True:
            progress = self._progress(schedule) or Progress(timing=schedule.timing.text, last=wall_now)
            (is_done,) = await self._exchange([self._change(schedule, change(progress))])
            if is_done:
                return

    def _progress(self, schedule: Schedule) -> Progress | None:
        value = self._values.get(schedule.key)
        if value is None or value.data is None:
            return None
        return msgspec.json.decode(value.data, type=Progress).under(schedule.timing.text)

    def _change(self, schedule: Schedule, progress: Progress) -> ValueChange:
        return ValueChange(schedule.key, self._expected(schedule.key), msgspec.json.encode(progress))

    def _expected(self, key: str) -> int:
        value = self._values.get(key)
        return 0 if value is None or value.data is None else value.version

    async def _exchange(self, changes: Sequence[ValueChange] = ()) -> Sequence[bool]:
        """Compare and set these, and learn what has changed since the last look; all of it if that may be wrong."""
        reply, is_certain = await self._ask(changes)
        for change, is_done in zip(changes, reply.changed, strict=True):
            if not is_done and self._expected(change.key) == change.expected:
                is_certain = False  # refused although nothing newer came: the store was set back
        if not is_certain:
            self._seen.doubt()
            await self._ask(())
        return reply.changed

    async def _ask(self, changes: Sequence[ValueChange]) -> tuple[Exchanged, bool]:
        """The reply, and whether what is known goes with it."""
        asked = self._seen.version
        reply = await self._store.exchange(Exchange(changes=changes, seen=asked))
        is_whole = self._seen.hear(asked, reply)
        if is_whole:
            self._values.clear()
        self._values.update({value.key: value for value in reply.values if value.key.startswith(PREFIX)})
        return reply, is_whole or self._seen.version > 0


def _decide(schedule: Schedule, progress: Progress | None, wall_now: float) -> tuple[Progress | None, float | None]:
    """How far the schedule is now, if that changes, and the tick to fire, if any."""
    timing: Timing = schedule.timing
    if progress is None:
        return Progress(timing=timing.text, last=wall_now), None
    if progress.timing != timing.text:
        return progress.begun(timing.text, wall_now), None
    found = None if progress.is_paused else due(timing, progress.last, wall_now, schedule.missed)
    if found is None:
        return None, None
    fired_at = progress.fired_at if found.tick is None else found.tick
    return replace(progress, last=found.last, fired_at=fired_at), found.tick
