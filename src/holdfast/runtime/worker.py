"""A worker: claims jobs, runs them, settles them, keeps its lease and looks after the store."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NoReturn, TypeVar

from msgspec import Struct

from holdfast.clock import SystemClock, chance, new_id, new_token
from holdfast.errors import ConfigError, HoldfastError, LeaseLost, StoreAway, StoreError, Unwritable
from holdfast.fingerprint import in_a_line
from holdfast.policy import bounds
from holdfast.ports import (
    Beat,
    Claim,
    Clock,
    Exchange,
    Exchanged,
    RingReport,
    Settlement,
    Source,
    Store,
    Value,
    WorkerRecord,
)
from holdfast.runtime.counts import Batch, Counts
from holdfast.runtime.crawl_origins import GATE as CRAWLS
from holdfast.runtime.crawling import Crawling
from holdfast.runtime.heart import TO_STOP, Heart
from holdfast.runtime.held import Held
from holdfast.runtime.hooks import Hooks
from holdfast.runtime.log_thread import LogThread
from holdfast.runtime.maintenance import Maintenance
from holdfast.runtime.outage import AGAIN, Outage
from holdfast.runtime.replay import PREFIX as REPLAY
from holdfast.runtime.replay import may_send
from holdfast.runtime.ring_letters import GATE as RINGS
from holdfast.runtime.run import UNKNOWN_KEEP_S
from holdfast.runtime.runner import Room, Runner
from holdfast.runtime.schedules import Schedule, Schedules
from holdfast.runtime.shared.guards import SharedGuards
from holdfast.runtime.spec import TaskSpec
from holdfast.runtime.streams.fleet import WorkerStreams
from holdfast.runtime.streams.spec import StreamSpec
from holdfast.runtime.streams.views import StreamLine, line_of
from holdfast.runtime.this_process import process_mark
from holdfast.runtime.threads import OwnThreads
from holdfast.runtime.tracing import find_tracer
from holdfast.types import BreakerChanged, BreakerMode, Change, JobRecord, Rng

_logger = logging.getLogger("holdfast.worker")

T = TypeVar("T")

_BATCH = 500
_AHEAD_S = 0.05
_IDLE_S = 1.0
_GATHERED_S = 0.008
_SOON_S = 0.01
"""Domains that open within so short a time of each other are claimed from together."""
_OVERDUE_S = 1.0
_LAST_WORD_S = 2.0
_CLEAN_UP_S = 5.0
_LAST_LINE_S = 0.1
_PART = "exchange"


class Exit(IntEnum):
    """How a worker ended; the process's exit code."""

    DRAINED = 0
    """Everything it had begun was finished."""
    RELEASED = 3
    """The grace time ran out: what was still running was given back."""
    REPLACE = 4
    """It lost its lease, or a thread hangs: start another in its place."""


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """How a worker works.

    queues: those it takes jobs from; None is all of them.
    streams: those whose messages it handles, by name; None is all of them.
    room: how many jobs it runs at a time.
    lease_s: how long its jobs are left to it without a heartbeat; heartbeat_s and sweep_s follow from it unless given.
    grace_s: how long a stop waits for what is running.
    """

    queues: tuple[str, ...] | None = None
    streams: tuple[str, ...] | None = None
    room: Room = Room()
    lease_s: float = 12.0
    heartbeat_s: float | None = None
    sweep_s: float = 1.0
    grace_s: float = 30.0

    def __post_init__(self) -> None:
        bounds.number("lease_s", self.lease_s, above=0.0, high=bounds.LONGEST_LEASE_S)
        bounds.length("sweep_s", self.sweep_s, above=0.0)
        bounds.length("grace_s", self.grace_s)
        bounds.whole("concurrency", self.room.concurrency, low=1)
        bounds.whole("threads", self.room.threads, low=1)
        bounds.whole("isolates", self.room.isolates, low=1)
        if self.heartbeat_s is not None:
            bounds.length("heartbeat_s", self.heartbeat_s, above=0.0)
            if self.lease_s <= 2 * self.heartbeat_s:
                raise ConfigError(
                    f"lease_s={self.lease_s!r}: must be more than twice heartbeat_s={self.heartbeat_s!r}, "
                    "so that one late heartbeat costs no job"
                )

    @property
    def beat_s(self) -> float:
        """Seconds between heartbeats."""
        return self.lease_s / 5 if self.heartbeat_s is None else self.heartbeat_s


class Report(Struct, frozen=True, kw_only=True):
    """How a worker is doing."""

    worker: str
    pid: int
    why_not_ready: str
    last_exchange_s: float | None
    running: int
    counts: Mapping[str, int]
    """How its attempts ended since it began, by name."""
    streams: tuple[StreamLine, ...] = ()


class _Stopped(Exception):
    """It was told to stop before it had begun."""


class Worker:
    """One worker on one event loop. `run` ends when `stop` was called, or when the worker has to be replaced.

    A store that is away is waited for: at the start for as long as it takes; later, what is running goes on while its
    lease holds, and is stopped when it is over. What was finished by then is still sent when the store is back, which
    refuses it where somebody has taken the job over.
    """

    def __init__(
        self,
        store: Store,
        specs: Mapping[str, TaskSpec],
        *,
        settings: WorkerSettings | None = None,
        schedules: Sequence[Schedule] = (),
        hooks: Hooks | None = None,
        target: str = "",
        clock: Clock | None = None,
        rng: Rng = chance,
        is_replaceable: bool = False,
        streams: Sequence[StreamSpec] = (),
        open_source: Callable[[StreamSpec], Source] | None = None,
        rings: Callable[[], tuple[RingReport, ...]] | None = None,
        crawl: Crawling | None = None,
    ) -> None:
        """rings: how those of this process are doing, from any thread; without it no ring's letters are claimed.

        crawl: whose pages it claims; without it none are.
        """
        self.id = new_id()
        self._store = store
        self._settings = settings or WorkerSettings()
        self._clock: Clock = clock or SystemClock()
        self.streams = WorkerStreams(
            streams, self._settings.streams, open_source, store=store, clock=self._clock, rng=rng
        )
        self._specs = {**specs, **self.streams.carriers} if self.streams.carriers else specs
        self._rings = rings
        self._crawl = crawl
        self._shut = ({RINGS: 0} if rings is None else {}) | ({CRAWLS: 0} if crawl is None else {})
        self._schedules = schedules
        self._hooks = hooks or Hooks()
        self._target = target
        self._rng = rng
        self._is_replaceable = is_replaceable
        self.guards = shared_guards({**specs, **{one.name: one.task for one in streams}})
        self._replays: dict[str, Value] = {}
        room = self._settings.room
        self._runs_alone = room.concurrency == room.threads == 1
        queues = self._settings.queues
        self._queues = None if queues is None else (*queues, *self.streams.queues)
        self._started_at = 0.0
        self._grace_s = self._settings.grace_s
        self._is_stopping = False
        self._is_lost = False
        self._rate = 0.0  # completions a second, lately
        self._rated_at = 0.0
        self._next_due_s: float | None = None
        self._is_idle = False
        self._wake = asyncio.Event()
        self._stopped = asyncio.Event()
        self._outage = Outage(self._clock, rng)
        self._log = LogThread(_logger)
        self._waits_failed = 0
        self._odd_failures = 0
        self._pumping: asyncio.Task[None] | None = None
        self._unanswered: Claim | None = None
        self._resent = 0
        """How many of the settlements went with the counts that are not answered yet: the same go with them again."""
        self._held = Held()
        self._totals_due_s = 0.0
        self._is_leaving = False
        self._asking_since_s: float | None = None
        """Since when an exchange has not been answered, in however many tries."""
        self._answered_s: float | None = None
        self._asking = asyncio.Lock()
        """Held by the one exchange that changes shared values."""

    # ---- from outside

    def stop(self, *, grace_s: float | None = None) -> None:
        """Stop claiming, finish what is running within the grace time, then leave. From the worker's own loop.

        grace_s: instead of the one of its settings; a shorter one may be given later.
        """
        if grace_s is not None:
            self._grace_s = min(self._grace_s, grace_s)
        self._is_stopping = True
        self._stopped.set()
        self._wake.set()

    def has_lease(self) -> bool:
        """Whether its jobs are its own for certain: not in a process that was stopped for longer than its lease."""
        return not self._is_lost and self._clock.monotonic() < self._heart.renewed_s + self._settings.lease_s

    def wake(self) -> None:
        """Look for jobs now: what may be claimed has changed. From the worker's own loop."""
        self._wake.set()

    def is_replaying(self, task: str) -> bool:
        """Whether letters of this task may still be sent back by a replay. From the worker's own loop."""
        return may_send(self._replays.values(), task)

    @property
    def last_exchange_s(self) -> float | None:
        """How many seconds ago the store last answered an exchange; None before the first. From any thread."""
        return None if self._answered_s is None else self._clock.monotonic() - self._answered_s

    def is_ready(self) -> bool:
        """Whether it can claim: it has begun, is not about to end, and the store answers. From any thread."""
        return not self.why_not_ready()

    def why_not_ready(self) -> str:
        """Why it cannot claim, in words; empty when it can. From any thread."""
        if self._is_lost:
            return "it has lost its lease"
        if self._is_stopping or self._is_leaving:
            return "it is draining"
        if self._started_at == 0.0:
            return "the store does not answer" if self._outage.is_on else "it has not begun"
        if self._must_be_replaced:
            return "a job hangs: it drains and is replaced"
        asked_s = self._asking_since_s
        if asked_s is not None and self._clock.monotonic() - asked_s > self._settings.lease_s / 2:
            return "the store does not answer"
        return ""

    def report(self) -> Report:
        """How it is doing, for whoever asks its process. From the worker's own loop."""
        has_begun = self._started_at > 0.0
        return Report(
            worker=self.id,
            pid=os.getpid(),
            why_not_ready=self.why_not_ready(),
            last_exchange_s=self.last_exchange_s,
            running=len(self.runner.runs) if has_begun else 0,
            counts=self.runner.counts.totals if has_begun else {},
            streams=tuple(map(line_of, self.streams.reports())) if has_begun else (),
        )

    async def run(self) -> Exit:
        """Work until stopped."""
        try:
            await self._open(is_patient=True)
        except _Stopped:
            return Exit.DRAINED
        except LeaseLost as error:  # the answer to its first heartbeat came later than its lease was over, or never
            _logger.error("worker %s does not begin: %s", self.id, error)
            return Exit.REPLACE
        try:
            self._pumping = asyncio.create_task(self._pump())
            upkeep = asyncio.create_task(self._maintenance.run())
            try:
                await self._pumping
            except asyncio.CancelledError:
                if not self._is_lost or _is_cancelled():
                    raise
            finally:
                upkeep.cancel()
                await asyncio.gather(upkeep, return_exceptions=True)
            messages = asyncio.create_task(self.streams.drain(self._grace_s))
            code = await self._drain()
            is_all = await messages
            return code if is_all or code != Exit.DRAINED else Exit.RELEASED
        finally:
            await self._close()

    async def run_until_idle(self, skip: bool) -> None:
        """Work until no job is ready, and none will be (with skip, the store's clock is moved on to delayed ones)."""
        await self._open(is_patient=False)
        try:
            await self._pump_until_idle(skip)
        finally:
            self.runner.stop(None, "shutdown")
            await self.streams.drain(0.0)
            await self._close()

    # ---- beginning and end

    async def _open(self, *, is_patient: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._own_threads = OwnThreads()
        if self._is_replaceable:  # then the loop is ours
            self._loop.set_default_executor(self._own_threads)
        self._ping = threading.Event()
        self._stalled_s = 0.0
        self._store_wait: asyncio.Task[None] | None = None
        first = await self._insist(lambda: self._store.exchange(Exchange()), is_patient)
        self.runner = Runner(
            store=self._store,
            specs=self._specs,
            guards=self.guards,
            worker=self.id,
            room=self._settings.room,
            clock=self._clock,
            rng=self._rng,
            target=self._target,
            lease_s=self._settings.lease_s,
            on_settled=self._wake.set,
            on_values=self._absorb,
            is_replaceable=self._is_replaceable,
            counts=Counts(self.streams.carriers),
            asking=self._asking,
            is_stopping=lambda: self._is_stopping,
        )
        self._maintenance = Maintenance(
            self._store,
            self.runner,
            Schedules(self._store, self._schedules),
            worker=self.id,
            values=self._replays,
            every_s=self._settings.sweep_s,
            clock=self._clock,
            outage=self._outage,
            on_work=self._wake.set,
            on_doubt=self._doubt,
            rng=self._rng,
        )
        self._heart = Heart(
            self._store,
            self._describe,
            every_s=self._settings.beat_s,
            clock=self._clock,
            outage=self._outage,
            on_beat=self._on_beat,
            on_lost=self._on_lost,
            say=self._log.log,
        )
        self.streams.open(self._stream_runner, self.guards, self._wake.set)
        self._take_over(first)
        self._started_at = first.now
        self._totals_due_s = self._clock.monotonic() + self._settings.beat_s
        try:
            await self._insist(self._heart.start, is_patient)
            await self._hooks.start()
            self.runner.tracer = find_tracer()  # a hook may have set it up
            self.streams.start(self.runner.tracer)
        except BaseException:
            self._heart.stop()
            await self.streams.close()
            await self.runner.close()
            await self._take_leave()
            raise

    def _stream_runner(self, spec: StreamSpec, on_settled: Callable[[], None]) -> Runner:
        """A runner for the messages of one stream, with guards and counts of this worker."""
        room = self._settings.room
        return Runner(
            store=self._store,
            specs={spec.name: spec.task},
            guards=self.guards,
            worker=self.id,
            room=Room(concurrency=spec.in_flight, threads=room.threads, isolates=room.isolates),
            clock=self._clock,
            rng=self._rng,
            target=self._target,
            lease_s=self._settings.lease_s,
            on_settled=on_settled,
            on_values=self._absorb,
            is_replaceable=self._is_replaceable,
            counts=self.runner.counts,
            asking=self._asking,
        )

    async def _insist(self, call: Callable[[], Awaitable[T]], is_patient: bool) -> T:
        """The store's answer; while it is away it is asked again, until the worker is told to stop."""
        while not self._is_stopping:
            try:
                answer = await call()
            except StoreAway as error:
                if not is_patient:
                    raise
                await self._rest(self._outage.fails(_PART, error))
            else:
                self._outage.works(_PART)
                return answer
        raise _Stopped

    async def _rest(self, seconds: float) -> None:
        """Sleep, unless the worker is told to stop."""
        sleeps = [
            asyncio.ensure_future(self._clock.asleep(seconds)),
            asyncio.ensure_future(self._stopped.wait()),
        ]
        try:
            await asyncio.wait(sleeps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in sleeps:
                one.cancel()
            await asyncio.gather(*sleeps, return_exceptions=True)

    async def _close(self) -> None:
        await self.streams.close()
        if self._store_wait is not None:
            self._store_wait.cancel()
            await asyncio.gather(self._store_wait, return_exceptions=True)
        await self.runner.close()
        if not await self._leave():
            self._seeing_out = asyncio.create_task(self._see_out())
        await self._hooks.stop()

    async def _leave(self) -> bool:
        """Say what is left to say and take leave; False while a thread still runs a job: then the heart beats on."""
        self._is_leaving = True
        is_last = not self.runner.runs or self._is_lost
        if is_last:
            self._heart.stop()
        if not self._is_lost:
            if await self._flush(self._clock.monotonic()):
                await self._send_totals()
            if is_last:
                await self._take_leave()
        return is_last

    async def _send_totals(self) -> None:
        """The last of what was counted; nobody waits for it while the store is away."""
        try:
            async with self._clock.timeout(_LAST_WORD_S):
                while self.runner.counts.unanswered is not None or self.runner.counts.has_slow:
                    await self._exchange(0)
        except (HoldfastError, TimeoutError) as error:
            _logger.warning("the counts of the last seconds are lost: %s", error or "no answer in time")

    async def _take_leave(self) -> None:
        try:
            async with self._clock.timeout(_LAST_WORD_S):
                await self._store.heartbeat(WorkerRecord(id=self.id, lease_s=0.0))
        except (HoldfastError, TimeoutError) as error:
            _logger.warning("could not take leave of the store: %s", error or "no answer in time")

    async def _see_out(self) -> None:
        """Threads keep their jobs beyond the end of `run`, until the last has ended and is settled."""
        while self.runner.runs:
            self._wake.clear()
            if self._has_news() and not self._is_lost:
                await self._flush(self._clock.monotonic() + self._settings.lease_s)
            else:
                await self._wake.wait()
        await self._leave()

    def _describe(self) -> WorkerRecord:
        return WorkerRecord(
            id=self.id,
            lease_s=self._settings.lease_s,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self._settings.queues or (),
            running=len(self.runner.runs),
            started_at=self._started_at,
            counts=dict(self.runner.counts.taken),
            streams=self.streams.reports(),
            rings=() if self._rings is None else self._rings(),
            crawls=() if self._crawl is None else self._crawl.reports(),
            process=process_mark(),
        )

    # ---- the heart's thread

    def _on_beat(self, beat: Beat) -> None:
        if self._loop.is_closed():
            if not self.runner.is_on_threads:
                self._heart.stop()  # the last thread has ended, and nobody is left to settle its job
            return
        if beat.cancelled:
            self._tell(self.runner.stop, beat.cancelled, "cancelled")
        if beat.held:
            self._tell(self._hear_of_held, beat.held)
        self._look_at_loop()

    def _look_at_loop(self) -> None:
        """Find out that a job blocks the event loop, so that no time limit can be kept on it."""
        if not self._ping.is_set():
            self._stalled_s = 0.0
            self._ping.set()
            self._tell(self._ping.clear)
            return
        self._stalled_s += self._settings.beat_s
        frame = sys._current_frames().get(self._loop_thread)
        where = "".join(traceback.format_stack(frame)[-3:]) if frame else ""
        said = "the event loop is blocked for %g s now; async jobs must not block:\n%s"
        self._log.log(logging.ERROR, said, self._stalled_s, where)
        if self._is_replaceable and self.runner.is_overdue(self._clock.monotonic() - _OVERDUE_S):
            # All that is held comes back as suspects, each to be run by itself: the one to blame is found there.
            self._end("a job that cannot be stopped blocks this process, which is replaced")

    def _on_lost(self, why: str) -> None:
        if self._is_replaceable:
            threading.Thread(target=self._end_with_lease, name="holdfast-end", daemon=True).start()
        self._tell(self._lose, why)

    def _end_with_lease(self) -> None:
        """What cannot be stopped, on a thread or on the loop, must not go on beside the one who runs it next."""
        self._clock.sleep(self._settings.lease_s * TO_STOP)
        if self.runner.runs or self._is_on_threads():
            self._end("the lease is over, and a job that cannot be stopped runs on: this process is replaced")

    def _end(self, why: str) -> NoReturn:
        self._log.log(logging.CRITICAL, why)
        self._log.wait(_LAST_LINE_S)
        os._exit(Exit.REPLACE)

    def _is_on_threads(self) -> bool:
        """Whether a thread may run a job, or what one has left behind; from any thread."""
        return self.runner.is_on_threads or bool(self._own_threads.running)

    def _tell(self, what: Callable[..., object], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is gone, and with it everybody who cared
            self._loop.call_soon_threadsafe(what, *args)

    def _hear_of_held(self, held: Mapping[bytes, int]) -> None:
        self._held.hear(held)
        if not {run.delivery.token for run in self.runner.runs.values()}.issuperset(held):
            self._wake.set()

    def _lose(self, why: str) -> None:
        _logger.error("worker %s stops its work: %s", self.id, why)
        self._is_lost = True
        if self._heart.is_given_up:
            self.runner.stop(None, "cancelled")
        else:  # nobody may have them yet: if so when the store is back, they go on at once, and are no suspects
            self._give_all_back()
        if self._pumping is not None:
            self._pumping.cancel()  # it may be waiting for an answer that does not come

    # ---- the pump

    async def _pump(self) -> None:
        """Settle and claim, over and over: while one exchange is under way, the next settlements gather."""
        while not (self._is_stopping or self._is_lost or self._must_be_replaced):
            if self._crawl is not None:
                await self._gather()
            if not await self._turn():
                await self._pause()

    async def _gather(self) -> None:
        """While few pages are done and others in flight, wait a moment for more: an exchange costs more than a page."""
        runner = self.runner
        if runner.runs and len(runner.settlements) < self._settings.room.concurrency // 2:
            await self._clock.asleep(_GATHERED_S)

    @property
    def _must_be_replaced(self) -> bool:
        return self.runner.must_be_replaced or self.streams.must_be_replaced

    async def _turn(self) -> bool:
        """One exchange, if there is anything to say or to ask; whether it is worth another at once."""
        self._wake.clear()
        try:
            if self._held.is_news:
                await self._look_at_held()
            wanted = self._wanted()
            is_worthwhile = wanted > 0 or self._has_news() or self._has_totals_due()
            if not is_worthwhile:
                return False
            reply = await self._exchange(wanted)
            if self._is_stopping:  # told so while it asked
                self.runner.give_back(reply.deliveries)
                return True
            if self._crawl is not None:
                self._crawl.claimed(reply.deliveries)
            await self.runner.start(reply.deliveries)
        except Exception as error:
            await self._rest(await self._bear(error))
            return True
        self._next_due_s = reply.next_due_s
        if reply.deliveries or self._has_news():
            return True
        if self._crawl is not None and not self.runner.runs:
            self._crawl.idle()
        return False

    async def _look_at_held(self) -> None:
        """Give back what is this worker's in the store and not here."""
        runner = self.runner
        known = Counter(run.delivery.token for run in runner.runs.values())
        known.update(one.token for one in runner.settlements)
        asked = {self._unanswered.token if self._unanswered else b""}
        if not self._is_leaving:  # a reclaim that the end has cut off is not answered any more
            asked.add(self._maintenance.token)
        for token in self._held.odd(known, asked):
            ours = {*runner.runs, *(one.id for one in runner.settlements)}
            claim = Claim(worker=self.id, token=token, limit=0)
            reply = await self._store.exchange(Exchange(claim=claim, seen=self.guards.seen))
            ours |= {*runner.runs, *(one.id for one in runner.settlements)}
            unknown = [one for one in reply.deliveries if one.id not in ours]
            if unknown:
                _logger.error("%d jobs are this worker's in the store, and not here: given back", len(unknown))
                runner.judge_orphans([one for one in unknown if one.worker])
                runner.give_back([one for one in unknown if not one.worker])

    def _has_news(self) -> bool:
        return bool(self.runner.settlements) or self.guards.is_urgent or self.runner.counts.has_ends

    def _has_totals_due(self) -> bool:
        """Sums go with one exchange for each heartbeat; a worker without a reason for an exchange makes one of it."""
        return self._clock.monotonic() >= self._totals_due_s and self.runner.counts.has_slow

    def _wanted(self) -> int:
        """How many more jobs can be begun soon: the free places, and what a moment's work will free."""
        held = len(self.runner.runs)
        if self._runs_alone:
            return 1 - held
        if self._crawl is not None:  # what is fetched and not settled is fetched again after a kill: no more than that
            return max(0, self._settings.room.concurrency - held)
        ahead = min(2 * _BATCH, int(self._rate * _AHEAD_S))
        wanted = self._settings.room.concurrency + ahead - held
        return min(_BATCH, wanted) if wanted >= max(1, ahead // 4) or held == 0 else 0

    async def _exchange(self, wanted: int) -> Exchanged:
        async with self._asking:
            return await self._exchange_alone(wanted)

    async def _exchange_alone(self, wanted: int) -> Exchanged:
        runner, guards = self.runner, self.guards
        settlements, later = runner.settlements, []
        is_again = runner.counts.unanswered is not None
        if is_again:
            settlements, later = settlements[: self._resent], settlements[self._resent :]
        runner.settlements = later
        is_with_totals = self._is_leaving or self._clock.monotonic() >= self._totals_due_s
        batch = runner.counts.take(with_slow=is_with_totals)
        now = runner.now()
        changes = guards.changes(now)
        claim = self._unanswered  # its answer was lost: the same token brings what it brought
        if claim is None and wanted > 0:
            caps = self._shut | guards.caps(now) | runner.caps(wanted)
            if self._crawl is not None:
                caps.update(self._crawl.caps())
            claim = Claim(
                worker=self.id,
                token=new_token(),
                limit=wanted,
                queues=self._queues,
                caps=caps,
                is_alone=self._runs_alone,
                per_lane=None if self._crawl is None else self._crawl.per_lane,
            )
        if self._asking_since_s is None:
            self._asking_since_s = self._clock.monotonic()
        try:
            reply = await self._store.exchange(
                Exchange(
                    settlements=settlements,
                    changes=changes,
                    counts=batch.counts,
                    counted=(self.id, batch.number) if batch.counts else None,
                    claim=claim,
                    seen=guards.seen,
                )
            )
            refused = () if all(reply.settled) else await self._refused(settlements, reply.settled, batch, is_again)
        except BaseException:
            # Safe to send again: a settlement that did take effect says so a second time, and what has its number is
            # counted once.
            runner.settlements = settlements + runner.settlements
            self._resent = len(settlements)
            guards.lost(changes)
            self._unanswered = claim
            raise
        self._unanswered = None
        self._asking_since_s, self._answered_s = None, self._clock.monotonic()
        if batch.has_slow:
            self._totals_due_s = self._answered_s + self._settings.beat_s
        self._outage.works(_PART)
        self._odd_failures = 0
        self._take_over(reply)
        guards.confirm(changes, reply.changed, reply.now)
        self._note_rate(len(settlements))
        if refused:
            self._take_back(refused)
        if self._crawl is not None:
            self._crawl.settled([one for one in settlements if one.id not in refused])
        if self.streams.carried:
            self.streams.carried.difference_update(one.id for one in settlements)
        runner.counts.answered()
        return reply

    async def _refused(
        self, settlements: Sequence[Settlement], settled: Sequence[bool], batch: Batch, is_again: bool
    ) -> list[str]:
        """The jobs whose settlements have not taken effect.

        One that is sent again may be refused for having taken effect the first time, where its job has been settled
        anew by another since; then the job's history knows.
        """
        refused = [one for one, is_done in zip(settlements, settled, strict=True) if not is_done]
        if is_again:
            records = await self._store.get([one.id for one in refused])
            pairs = zip(refused, records, strict=True)
            refused = [one for one, record in pairs if not self._has_had(record, one, batch.attempt_of(one.id))]
        return [one.id for one in refused]

    def _has_had(self, record: JobRecord | None, settlement: Settlement, number: int | None) -> bool:
        """Whether the job's history has this attempt of ours, with this end."""
        attempts = record.attempts if record is not None else ()
        ours = (number, self.id, settlement.change)
        return any((one.number, one.worker, one.outcome) == ours for one in attempts)

    def _take_over(self, reply: Exchanged) -> None:
        self.runner.set_now(reply.now)
        self.streams.set_now(reply.now)
        self._absorb(reply)

    def _absorb(self, reply: Exchanged) -> None:
        if self.guards.seen == 0:  # all were asked for: what is not among them is gone
            self._replays.clear()
        for value in reply.values:
            if value.key.startswith(REPLAY):
                self._replays[value.key] = value
        if self._crawl is not None:
            self._crawl.absorb(reply.values)
        for change in self.guards.absorb(reply):
            log_breaker(change, is_news=self._started_at > 0.0)

    async def _doubt(self) -> None:
        """The store does not have what it has said: all is read anew, but for what is on its way."""
        async with self._asking:
            self.guards.doubt()

    def _note_rate(self, settled: int) -> None:
        now_s = self._clock.monotonic()
        passed_s = now_s - self._rated_at
        self._rated_at = now_s
        if passed_s > 0.0:
            weight = min(1.0, passed_s / 0.2)
            self._rate += weight * (settled / passed_s - self._rate)

    def _take_back(self, refused: Sequence[str]) -> None:
        """These settlements have not taken effect, so that is not how their attempts ended."""
        counts = self.runner.counts
        # A letter that was carried to its stream may be handled, and have ended, before we say that it was sent.
        late = [job for job in refused if job not in self.streams.carried]
        for job in refused:
            counts.correct(job)
        if not late:
            return
        counts.add(self.runner.now(), "", "lost", len(late))
        _logger.warning("%d settlements came too late, their leases were lost: %s", len(late), ", ".join(late[:5]))

    async def _flush(self, deadline_s: float) -> bool:
        """Send what there is to say, until then; what a lost answer brought is given back. Whether all was said."""
        while self._has_last_words():
            try:
                async with self._clock.timeout(max(_LAST_WORD_S, deadline_s - self._clock.monotonic())):
                    self.runner.give_back((await self._exchange(0)).deliveries)
            except Exception as error:
                again_s = await self._bear(error)
                left_s = deadline_s - self._clock.monotonic()
                if left_s <= 0.0 or (self._is_lost and self._is_on_threads()):
                    if unsent := len(self.runner.settlements):
                        _logger.error("%d settlements could not be sent: their jobs are run again", unsent)
                    return False
                await self._clock.asleep(min(again_s, left_s))
        return True

    def _has_last_words(self) -> bool:
        """What it has finished; and unless the lease is over, what is shared, and what a lost answer has brought."""
        if self._is_lost:
            self._unanswered = None  # what it brought, if anything, is an orphan already
            return bool(self.runner.settlements) or self.runner.counts.has_ends
        return self._has_news() or self._unanswered is not None

    async def _bear(self, error: Exception) -> float:
        """An exchange failed: after how long to send it again, unless it is one settlement that cannot be sent."""
        if isinstance(error, StoreError | TimeoutError) and not isinstance(error, Unwritable):
            return self._outage.fails(_PART, error)
        why = "one cannot be written" if isinstance(error, Unwritable) else "it failed in a way that nobody thought of"
        _logger.error("an exchange failed and its settlements go one by one: %s", why, exc_info=error)
        await self._settle_one_by_one()
        self._odd_failures += 1
        return AGAIN.delay(self._odd_failures, rng=self._rng)

    async def _settle_one_by_one(self) -> None:
        """One settlement that cannot be written must not keep the others: it is buried instead."""
        counts = self.runner.counts
        n = self._resent if counts.unanswered is not None else len(self.runner.settlements)
        settlements, later = self.runner.settlements[:n], self.runner.settlements[n:]
        self.runner.settlements = later
        self._resent = 0
        for place, one in enumerate(settlements):
            reason = "its settlement cannot be written"
            bury = Settlement(id=one.id, token=one.token, change=Change.BURY, reason=reason, keep_s=UNKNOWN_KEEP_S)
            for attempt in (one, bury):
                try:
                    reply = await self._store.exchange(Exchange(settlements=[attempt], seen=self.guards.seen))
                    if not all(reply.settled):
                        self._take_back([one.id])
                        break
                    if attempt is bury:
                        counts.correct(one.id, "failed", "dead")
                    if self._crawl is not None:
                        self._crawl.settled([attempt])
                    break
                except Exception as error:
                    if isinstance(error, StoreError) and not isinstance(error, Unwritable):
                        self._put_back(settlements[place:])
                        return
                    _logger.exception("job %s cannot be settled as %s", attempt.id, attempt.change.value)
                except BaseException:  # cancelled, as when the lease is lost
                    self._put_back(settlements[place:])
                    raise
            else:
                counts.correct(one.id)

    def _put_back(self, settlements: list[Settlement]) -> None:
        """Of those that were to be sent, these go again."""
        self.runner.settlements = settlements + self.runner.settlements
        self._resent = len(settlements)

    async def _pause(self) -> None:
        """Wait for a settlement, for news from the store, or until something is due."""
        if self._store_wait is None or self._store_wait.done():
            limits = [self._next_due_s, self.guards.next_opening_s(self.runner.now()), _IDLE_S]
            wait_s = max(0.001, min(limit for limit in limits if limit is not None))
            self._store_wait = asyncio.ensure_future(self._wait_for_store(wait_s))
            self._store_wait.add_done_callback(lambda _: self._wake.set())
        opens_in_s = None if self._crawl is None else self._crawl.opens_in_s()
        if opens_in_s is None:
            await self._wake.wait()
            return
        with suppress(TimeoutError):
            async with self._clock.timeout(max(_SOON_S, opens_in_s)):
                await self._wake.wait()

    async def _wait_for_store(self, wait_s: float) -> None:
        try:
            await self._store.wait(wait_s)
            self._waits_failed = 0
        except Exception as error:  # whatever it is, the next exchange finds out; but not at once, over and over
            self._waits_failed += 1
            if self._waits_failed == 1 and not self._outage.is_on:
                _logger.warning("the store cannot tell of news, and is looked at now and then instead: %s", error)
            await self._clock.asleep(AGAIN.delay(self._waits_failed, rng=self._rng))

    async def _pump_until_idle(self, skip: bool) -> None:
        is_last_look = False
        self.streams.watch(self._wake.set)
        while not self._is_stopping:
            await self._maintenance.once()
            if self.streams.pumps:
                await self._clock.asleep(0.0)  # they have a turn: what was just sent may be for one of them
            if await self._turn():
                is_last_look = False
                continue
            if self.runner.runs:
                await self._wake.wait()
                continue
            if self.runner.settlements:
                continue
            if not self.streams.is_idle and self.streams.next_due_s is None:
                await self._wake.wait()
                continue
            limits = [self._next_due_s, self.guards.next_opening_s(self.runner.now()), self.streams.next_due_s]
            waits = [limit for limit in limits if limit is not None]
            if not waits:
                if is_last_look:
                    return
                is_last_look = True  # the last jobs may have been canaries of a replay
                continue
            if skip:
                skipped_s = max(0.001, min(waits))
                self._store.clock_offset_s += skipped_s  # type: ignore[attr-defined]
                self.runner.set_now(self.runner.now() + skipped_s)  # or what has opened by now looks closed
                self.streams.set_now(self.runner.now())
                await self._clock.asleep(0.0)  # the streams have a turn
            else:
                await self._clock.asleep(max(0.001, min(waits)))

    # ---- the end

    async def _drain(self) -> Exit:
        """Finish what is running within the grace time; give back what has not begun at once."""
        runner = self.runner
        self._is_leaving = True
        if self._is_lost:
            await self._send_late()
            return Exit.REPLACE
        runner.release_waiting()
        began_s = self._clock.monotonic()
        while runner.runs and not self._is_lost:
            deadline_s = began_s + self._grace_s
            if self._held.is_news:
                try:
                    async with self._clock.timeout(_LAST_WORD_S):
                        await self._look_at_held()
                except Exception as error:
                    await self._bear(error)
            await self._flush(deadline_s)
            hanging = [run for run in runner.runs.values() if run.stop == "overdue"]
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0 or len(hanging) == len(runner.runs):
                break
            await self._wait_for_news(min(left_s, 0.5))
        begun = [run for run in runner.runs.values() if not run.is_settled]
        self._give_all_back()
        await self._let_clean_up()
        is_said = await self._flush(max(began_s + self._grace_s, self._clock.monotonic() + _LAST_WORD_S))
        if self._must_be_replaced or self._is_lost:
            return Exit.REPLACE
        return Exit.RELEASED if begun or not is_said else Exit.DRAINED

    def _give_all_back(self) -> None:
        """Stop all that runs, and release it; threads are left to their end."""
        self.runner.release_waiting()
        self.runner.stop(None, "shutdown")

    async def _let_clean_up(self) -> None:
        """Cancelled code may take a moment."""
        tasks = [run.task for run in self.runner.runs.values() if run.task is not None]
        if tasks:
            with suppress(TimeoutError):
                async with self._clock.timeout(_CLEAN_UP_S):
                    await asyncio.wait(tasks)

    async def _send_late(self) -> None:
        """What was finished before the lease was over still counts, unless somebody has taken the job over by now.

        So it is kept until the store is back, and so is what was stopped, to be released; but not while a thread runs a
        job that is not ours any more.
        """
        await self._let_clean_up()
        self._outage.only(_PART)
        while self._has_last_words() and not self._is_on_threads() and not self._is_stopping:
            try:
                async with self._clock.timeout(self._settings.lease_s):
                    await self._exchange(0)
            except (StoreAway, TimeoutError) as error:
                await self._rest(self._outage.fails(_PART, error))
            except Exception as error:
                may_be_one = isinstance(error, Unwritable) or not isinstance(error, StoreError)
                if not (may_be_one and self.runner.settlements):
                    _logger.error("%d settlements could not be sent: %s", len(self.runner.settlements), error)
                    return
                await self._rest(await self._bear(error))

    async def _wait_for_news(self, limit_s: float) -> None:
        self._wake.clear()
        if self._has_news() or not self.runner.runs:
            return
        try:
            async with self._clock.timeout(limit_s):
                await self._wake.wait()
        except TimeoutError:
            return


def _is_cancelled() -> bool:
    """Whether somebody cancels the task we are in."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def shared_guards(specs: Mapping[str, TaskSpec]) -> SharedGuards:
    """The guards that these tasks name."""
    guards = SharedGuards()
    for spec in specs.values():
        if spec.breaker is not None and spec.breaker_scope is None:
            guards.add_breaker(spec.breaker, spec.breaker_config)
        for scope, rate in spec.rates.items():
            guards.add_limit(spec.name if scope == "task" else f"{spec.name}:{scope}", rate)
        if spec.budget is not None:
            guards.add_budget(spec.budget, spec.budget_config)
    return guards


def log_breaker(change: BreakerChanged, *, is_news: bool = True) -> None:
    """One line for each change of a shared breaker, and for each that was not closed when the worker came."""
    why = f": {in_a_line(change.cause)}" if change.cause and change.after is BreakerMode.OPEN else ""
    if not is_news:
        _logger.info("circuit %s is %s already%s", change.name, change.after.value, why)
        return
    level = logging.INFO if change.after is BreakerMode.CLOSED else logging.WARNING
    _logger.log(level, "circuit %s: %s -> %s%s", change.name, change.before.value, change.after.value, why)
