"""The one place where users' code runs: it gates, runs and judges deliveries, and gathers their settlements."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import CancelledError
from contextvars import copy_context
from types import CoroutineType
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import CircuitOpenError, LeaseLost, StoreError, TimeLimitExceeded, UnknownTask, WorkerDied
from holdfast.fingerprint import in_a_line
from holdfast.policy.breaker import FAILURE, IGNORED, SUCCESS
from holdfast.policy.classify import classify
from holdfast.policy.judge import (
    COMPLETE,
    UNKNOWN_TASK_RETRY,
    Bury,
    Park,
    Release,
    RetryAt,
    Verdict,
    blames_orphan,
    judge,
    judge_value,
)
from holdfast.ports import Clock, Count, Delivery, Exchange, Exchanged, Note, Settlement, Store
from holdfast.runtime import wire
from holdfast.runtime.context import JobContext
from holdfast.runtime.counts import Counts, completion
from holdfast.runtime.current import RUNNING
from holdfast.runtime.deadlines import Deadlines
from holdfast.runtime.desk import LoopDesk
from holdfast.runtime.guards.functions import refuse_coroutine
from holdfast.runtime.isolates import Isolates, NoProcess
from holdfast.runtime.outage import insist
from holdfast.runtime.run import Run, encoded, settlement_of
from holdfast.runtime.shared.guards import Go, Hold, Request, SharedGuards
from holdfast.runtime.spec import TaskSpec, breaker_of, limit_gates
from holdfast.runtime.this_process import end_if_forked
from holdfast.runtime.threads import Threads
from holdfast.runtime.tracing import Tracer, trace_id_of
from holdfast.types import Attempt, Change, Discard, Failure, FailureType, GiveUp, Rng, Snooze

_logger = logging.getLogger("holdfast.worker")

_COMPLETED: Final = Change.COMPLETE
_FREE: Final = Go()
"""What a task without any guard runs under."""
_ENDS: Final[Mapping[type[Verdict], str]] = {RetryAt: "retried", Park: "parked"}
"""How an attempt that failed is counted, by the verdict on it; with any other one it has failed for good."""
_START_WITHIN_S = 1.0
_UNKNOWN = "unknown task"
_UNKNOWN_STEP = "holdfast:unknown-task"
_RESTOP_S = 1.0
_SLOT_S = 0.005
"""So long at most one task runs jobs that do not wait for anything: then the event loop has its turn."""


class Room(Struct, frozen=True, kw_only=True):
    """How much a worker runs at a time."""

    concurrency: int = 100
    """Async jobs in flight."""
    threads: int = 8
    """Sync jobs in flight."""
    isolates: int = 2
    """Isolated jobs in flight."""


class Runner:
    """Runs deliveries within its room. Used from one event loop; `on_settled` is told when settlements wait.

    `on_values` takes over what a store says of its shared values, which one exchange changes at a time: `asking`.
    """

    def __init__(
        self,
        *,
        store: Store,
        specs: Mapping[str, TaskSpec],
        guards: SharedGuards,
        worker: str,
        room: Room,
        clock: Clock,
        rng: Rng,
        target: str,
        lease_s: float,
        on_settled: Callable[[], None],
        on_values: Callable[[Exchanged], None],
        is_replaceable: bool,
        counts: Counts,
        asking: asyncio.Lock,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._specs = specs
        self._guards = guards
        self.worker = worker
        self._clock = clock
        self._rng = rng
        self._lease_s = lease_s
        self._on_settled = on_settled
        self._on_values = on_values
        self._is_replaceable = is_replaceable
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._outside = copy_context()
        self.room = room
        self.settlements: list[Settlement] = []
        """What the next exchange takes along."""
        self.runs: dict[str, Run] = {}
        """Everything held, begun or not, by job id."""
        self.counts = counts
        self._asking = asking
        self._is_stopping = is_stopping
        self.tracer: Tracer | None = None
        self.must_be_replaced = False
        """A thread hangs in a job beyond its time limit: drain, and end this process."""
        self._waiting: deque[Run] = deque()
        self._running_async = 0
        self._is_opening = False
        self._is_tidy = True
        """Whether the last run has left its context as it was: then a task may run one after the other."""
        self._slots: set[asyncio.Task[None]] = set()
        self._threads: Threads[Run] = Threads(room.threads, self._run_sync, self._collect, clock)
        self._sync_held = 0
        self._failing: dict[str | None, int] = {}
        self._failing_lock = threading.Lock()
        self._isolated_held = 0
        self._isolates = Isolates(room.isolates, target, self._note, clock, lease_s / 4, worker)
        self._can_isolate = bool(target)
        self._deadlines: Deadlines[Run] = Deadlines(clock, self._overdue, self._is_over)
        self._offset_s = 0.0

    # ---- the store's clock, as of its last answer

    def set_now(self, now: float) -> None:
        """The store's clock, just now."""
        self._offset_s = now - self._clock.monotonic()

    def now(self) -> float:
        """The store's clock, as far as this worker knows."""
        return self._offset_s + self._clock.monotonic()

    def _began_at(self, run: Run) -> float:
        """When it began, on the store's clock as it goes now: one that was set meanwhile makes no run longer."""
        return self._offset_s + run.began_s

    # ---- room

    @property
    def can_isolate(self) -> bool:
        """Whether suspects run in processes of their own: not where nobody knows how to import the app."""
        return self._can_isolate

    @property
    def is_on_threads(self) -> bool:
        """Whether a thread runs a job; from any thread."""
        return bool(self._threads.running)

    @property
    def begun(self) -> int:
        """How many jobs are being run."""
        return sum(1 for run in self.runs.values() if run.is_begun)

    def caps(self, wanted: int) -> dict[str, int]:
        """At most so many of these: what would not be started within a moment is left to others."""
        threads = self.room.threads
        sync_room = threads + int(threads * 0.25 / max(self._threads.expected_s, 1e-4)) - self._sync_held
        isolated_room = self.room.isolates - self._isolated_held
        caps: dict[str, int] = {}
        dated = None
        for name, spec in self._specs.items():
            if spec.is_isolated:
                room = isolated_room
            elif spec.rates:
                # A limit's permit is dated at the start of the run, so it has the next place: no more than there are,
                # and one where there is none, or a worker that is never idle would never come to it.
                if dated is None:
                    dated = sum(bool(run.spec.rates) and not run.is_begun for run in self.runs.values())
                running, places = len(self._threads.running), threads
                if spec.is_async:
                    running, places = self._running_async, self.room.concurrency
                room = max(1, places - running) - dated
            else:
                room = wanted if spec.is_async else sync_room
            if spec.in_flight is not None:
                room = min(room, spec.in_flight - sum(run.spec is spec for run in self.runs.values()))
            if room < wanted:
                caps[f"task:{name}"] = max(0, room)
        return caps

    def is_overdue(self, at_s: float) -> bool:
        """Whether an async run was over its time limit at this instant; from any thread."""
        runs = [run for run in list(self.runs.values()) if run.is_begun and run.spec.is_async and not run.stop]
        return any(run.spec.timeout_s is not None and run.began_s + run.spec.timeout_s < at_s for run in runs)

    # ---- from deliveries to runs

    async def start(self, deliveries: Sequence[Delivery]) -> None:
        """Gate these and begin to run them; those held back are settled at once, and those not reached given back."""
        try:
            await self._start(deliveries)
        except Exception:
            settled = {one.id for one in self.settlements}
            self.give_back([one for one in deliveries if one.id not in self.runs and one.id not in settled])
            raise

    async def _start(self, deliveries: Sequence[Delivery]) -> None:
        by_task: dict[tuple[str, str], Go] = {}
        free: list[Run] = []
        asked: list[tuple[Delivery, TaskSpec, Request]] = []
        guards, now = self._guards, self.now()
        for delivery in deliveries:
            name = delivery.task
            spec = self._specs.get(name)
            if spec is None:
                await self._settle_unknown(delivery)
                continue
            alike = name, "" if spec.breaker_scope is None else str(getattr(delivery, spec.breaker_scope))
            go = by_task.get(alike)
            if go is not None and not (spec.budget and delivery.retries):
                free.append(Run(delivery, spec, go))
                continue
            request = self._request(spec, delivery)
            if request is None:
                by_task[alike] = _FREE
                free.append(Run(delivery, spec, _FREE))
                continue
            if not request.limits and request.budget is None:
                calm = guards.calm_go(request.breaker, now, earns=spec.budget)
                if calm is not None:
                    by_task[alike] = calm
                    free.append(Run(delivery, spec, calm))
                    continue
            asked.append((delivery, spec, request))
        if free:
            self._begin(free)
        if asked:
            await self._ask(asked)

    def _request(self, spec: TaskSpec, delivery: Delivery) -> Request | None:
        limits = limit_gates(spec, delivery)
        budget = spec.budget if delivery.retries else None
        breaker = self._breaker_of(spec, delivery)
        if breaker is None and not limits and spec.budget is None:
            return None
        return Request(breaker, limits, budget, spec.budget)

    def _breaker_of(self, spec: TaskSpec, delivery: Delivery) -> str | None:
        breaker = breaker_of(spec, delivery)
        if breaker is not None and spec.breaker_scope is not None:
            self._guards.add_breaker(breaker, spec.breaker_config)
        return breaker

    async def _ask(self, asked: list[tuple[Delivery, TaskSpec, Request]]) -> None:
        """Take permits for these, and begin those that have theirs."""
        answers = await self._permits([request for _, _, request in asked])
        runs = []
        for (delivery, spec, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Hold):
                self._hold(delivery, spec, answer)
            else:
                runs.append(Run(delivery, spec, answer))
        if self._is_stopping():  # told so while it asked, which may take long
            self._give_back(runs)
        else:
            self._begin(runs)

    async def _permits(self, requests: Sequence[Request]) -> Sequence[Go | Hold]:
        """Take permits from what is shared; each round is one compare-and-set in the store."""
        guards = self._guards
        async with self._asking:
            question = guards.ask(requests, self.now())
            while question.changes:
                sent, sent_s = list(question.changes), self._clock.monotonic()
                try:
                    reply = await self._store.exchange(Exchange(changes=sent, seen=guards.seen))
                except BaseException:
                    guards.lost(sent)
                    raise
                self.set_now(reply.now)
                self._on_values(reply)
                took_s = self._clock.monotonic() - sent_s
                if guards.finish(question, reply.changed, reply.now, took_s=took_s):
                    break
        return question.answers

    async def _is_in_time(self, run: Run) -> bool:
        """Whether it may begin now, perhaps with other permits than it had."""
        return not self._guards.is_late(run.go, self.now()) or await self._renew(run)

    async def _renew(self, run: Run) -> bool:
        """Its place came too late for its permits: ask for others while it keeps the place. Whether it may begin."""
        self._guards.release(run.go)
        run.go = _FREE
        request = self._request(run.spec, run.delivery)
        try:
            (answer,) = (_FREE,) if request is None else await self._permits([request])
        except Exception as error:
            _logger.warning("%s job %s is given back: no permits to be had: %s", run.spec.name, run.delivery.id, error)
            self._give_back([run])
            return False
        if isinstance(answer, Hold):
            self._forget(run)
            self._hold(run.delivery, run.spec, answer)
            return False
        run.go = answer
        if self._is_stopping():
            self._give_back([run])
            return False
        return True

    def _hold(self, delivery: Delivery, spec: TaskSpec, hold: Hold) -> None:
        if hold.is_breaker and not spec.waits_for_breaker:
            error = Failure(FailureType.SYSTEM, CircuitOpenError(breaker_of(spec, delivery) or "", hold.delay_s, None))
            self._settle(delivery, spec, Bury(GiveUp.BREAKER_OPEN.value), None, failure=error)
        else:
            self._settle(delivery, spec, Park(hold.delay_s, hold.why), None)
            self.counts.ended_as(self.now(), delivery, "parked", has_run=False)

    def _hold_back(self, run: Run) -> None:
        """Its breaker has opened since it was claimed."""
        self._forget(run)
        breaker = run.go.breaker or ""
        wait_s = self._guards.opens_in_s(breaker, self.now())
        self._guards.release(run.go)
        self._hold(run.delivery, run.spec, Hold(wait_s or 0.0, f"breaker {breaker} is open", is_breaker=True))

    async def _settle_unknown(self, delivery: Delivery) -> None:
        """A task that is not here may be on its way, in a deploy: wait for it, at no cost to its own attempts."""
        failure = classify(UnknownTask(f"no task named {delivery.task!r} is registered in this worker"))
        seen = int(delivery.notes.steps.get(_UNKNOWN_STEP, b"0")) if delivery.notes else 0
        verdict: Verdict = judge(UNKNOWN_TASK_RETRY, failure, seen, 0.0, self._rng)
        verdict = Park(verdict.delay_s, _UNKNOWN) if isinstance(verdict, RetryAt) else Bury(_UNKNOWN)
        waits = seen + 1 if isinstance(verdict, Park) else 0  # once it is replayed, it waits anew
        try:
            if not await self._store.note(
                Note(id=delivery.id, token=delivery.token, step=(_UNKNOWN_STEP, b"%d" % waits))
            ):
                return  # it is somebody else's by now
        except StoreError:
            self.give_back([delivery])
            return
        self._settle(delivery, None, verdict, None, failure=failure)

    def _begin(self, runs: list[Run]) -> None:
        """Hand each to where it runs; what a limit has dated has the next place."""
        to_threads: list[Run] = []
        first: list[Run] = []
        first_to_threads: list[Run] = []
        for run in runs:
            self.runs[run.delivery.id] = run
            spec = run.spec
            if self._is_isolated(run):
                self._isolated_held += 1
                run.task = self._loop.create_task(self._run_isolated(run), context=self._outside.copy())
            elif spec.is_async:
                (first if run.go.limits else self._waiting).append(run)
            else:
                self._sync_held += 1
                (first_to_threads if run.go.limits else to_threads).append(run)
        self._waiting.extendleft(reversed(first))
        if self._waiting and not self._is_opening:
            self._open_slot()
        self._threads.submit(to_threads)
        self._threads.submit(first_to_threads, is_first=True)

    def _is_isolated(self, run: Run) -> bool:
        """Whether it runs in a process of its own. An app that cannot be imported there, as in a test, runs it here."""
        return self._can_isolate and (run.spec.is_isolated or run.delivery.is_suspect)

    # ---- async jobs, on the loop

    def _open_slot(self) -> None:
        """Begin a task that runs what waits, one after the other; once that has to wait itself, there is another."""
        self._is_opening = False
        room = min(len(self._waiting), self.room.concurrency - self._running_async)
        if room <= 0:
            return
        for _ in range(1 if self._is_tidy else room):
            self._running_async += 1
            self._slots.add(self._loop.create_task(self._serve_slot(), context=self._outside.copy()))
        self._is_opening = True
        self._loop.call_soon(self._open_slot)  # after the first step of the new one

    async def _serve_slot(self) -> None:
        """Run what waits, one after the other, while each leaves this task as it was, and for a moment at most."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - it is a task
        waiting, is_tidy = self._waiting, True
        until_s = self._clock.monotonic() + _SLOT_S
        try:
            while waiting and is_tidy:
                run = waiting.popleft()
                if run.stop:
                    self._finish(run, None, asyncio.CancelledError())
                else:
                    run.task = task
                    is_tidy = self._is_tidy = await self._run_async(run) and not task.cancelling()
                    if run.began_s > until_s:
                        break
        finally:
            self._slots.discard(task)
            self._running_async -= 1
            if waiting and not self._is_opening:
                self._open_slot()

    async def _run_async(self, run: Run) -> bool:
        """Whether its task is as it was before: then it may run another one."""
        spec, delivery = run.spec, run.delivery
        run.is_entered = True
        value: Any = None
        error: BaseException | None = None
        if not self._guards.is_good(run.go):
            self._hold_back(run)
            return True
        if run.go.limits:
            try:
                if not await self._is_in_time(run):
                    return True
            except asyncio.CancelledError as caught:
                self._finish(run, None, self._as_failure(run, caught))
                return False
        self._mark_begun(run)
        RUNNING.set((delivery, self.worker))
        if self.tracer is not None:
            run.span = self.tracer.begin(delivery, self.worker)
            self.tracer.enter(run.span)
        before = copy_context()
        try:
            args, kwargs = spec.call_of(delivery)
            if spec.takes_context:
                args = (self._context(run), *args)
            value = await spec.fn(*args, **kwargs)
            end_if_forked(self._pid)
        except BaseException as caught:
            end_if_forked(self._pid, caught)
            error = self._as_failure(run, caught)
        is_tidy = not run.stop and self.tracer is None and copy_context() == before
        self._finish(run, value, error)
        return is_tidy

    def _cancel(self, run: Run) -> None:
        """Stop a run that has a task of its own."""
        if run.task is None or not (run.spec.is_async or self._is_isolated(run)):
            return
        run.task.cancel()
        if not run.is_entered:
            self._isolated_held -= 1
            self._finish(run, None, asyncio.CancelledError())

    def _as_failure(self, run: Run, error: BaseException) -> BaseException:
        """What a raised error means, seeing why the run was being stopped."""
        if isinstance(error, asyncio.CancelledError) and run.stop:
            if run.task is not None:
                run.task.uncancel()
            if run.stop == "overdue" and run.spec.timeout_s is not None:
                return TimeLimitExceeded(run.spec.timeout_s)
        return error

    def _context(self, run: Run) -> JobContext:
        desk = LoopDesk(run, self._store, self._note, self._loop, self._lease_s / 4, self._completed)
        return JobContext(run.delivery, desk)

    async def _note(self, note: Note) -> bool:
        """Remember it, after an outage if need be: a finished step that is not remembered would be run again."""
        return await insist(lambda: self._store.note(note), self._lease_s, self._clock, self._rng)

    def _completed(self, run: Run) -> tuple[Settlement, Sequence[Count]]:
        """For a run that completes itself, and with it what is counted."""
        now = self.now()
        settlement = settlement_of(
            run.delivery, run.spec, COMPLETE, worker=self.worker, began_at=self._began_at(run), ended_at=now
        )
        return settlement, completion(now, run.delivery.task)

    # ---- sync jobs, on threads

    def _run_sync(self, run: Run) -> None:
        spec, delivery = run.spec, run.delivery
        if run.stop or not self._guards.is_good(run.go, self._failing.get(run.go.breaker, 0)):
            return
        if run.go.limits and self._guards.is_late(run.go, self.now()) and not self._is_renewed(run):
            return
        self._mark_begun(run)
        RUNNING.set((delivery, self.worker))  # in the context of this thread, where the next run sets it anew
        left = None
        if self.tracer is not None:
            run.span = self.tracer.begin(delivery, self.worker)
            left = self.tracer.enter(run.span)
        try:
            args, kwargs = spec.call_of(delivery)
            if spec.takes_context:
                args = (self._context(run), *args)
            run.value = value = copy_context().run(spec.fn, *args, **kwargs)
            end_if_forked(self._pid)
            if isinstance(value, CoroutineType):
                refuse_coroutine(value)
        except BaseException as error:
            end_if_forked(self._pid, error)
            run.error = error
            run.failure = failure = spec.classify(error, spec.context)
            if spec.is_counted(failure):
                # The loop may hear of it only after a while; until then the other threads go by this.
                breaker = breaker_of(spec, delivery)
                with self._failing_lock:
                    self._failing[breaker] = self._failing.get(breaker, 0) + 1
        if self.tracer is not None:
            self.tracer.leave(left)

    def _is_renewed(self, run: Run) -> bool:
        """As `_renew`, for a thread, which waits for it."""
        try:
            return asyncio.run_coroutine_threadsafe(self._renew(run), self._loop).result() and not run.stop
        except (CancelledError, RuntimeError):  # the loop has ended, or is about to
            return False

    def _collect(self, runs: list[Run]) -> None:
        again = []
        for run in runs:
            if run.is_begun:
                self._sync_held -= 1
                self._finish(run, run.value, run.error)
                if run.failure is not None and run.spec.is_counted(run.failure):
                    breaker = breaker_of(run.spec, run.delivery)
                    with self._failing_lock:
                        left = self._failing.pop(breaker) - 1
                        if left:
                            self._failing[breaker] = left
            elif self.runs.get(run.delivery.id) is not run:
                self._sync_held -= 1  # it has got no other permits, and is settled
            elif run.stop:
                self._sync_held -= 1
                self._finish(run, None, asyncio.CancelledError())
            elif self._guards.is_good(run.go):
                again.append(run)
            else:
                self._sync_held -= 1
                self._hold_back(run)
        self._threads.submit(again)

    # ---- isolated jobs, in processes of their own

    async def _run_isolated(self, run: Run) -> None:
        spec, delivery = run.spec, run.delivery
        run.is_entered = True
        ended: wire.Ended | None = None
        error: BaseException | None = None
        try:
            module = "" if spec.fn.__module__ == "__main__" else spec.fn.__module__
            RUNNING.set((delivery, self.worker))
            trace = delivery.trace
            if self.tracer is not None:
                run.span = self.tracer.begin(delivery, self.worker)
                trace = self.tracer.trace_of(run.span) or trace
            given = spec.given
            ended = await self._isolates.run(
                delivery if given is None else given.pack(delivery),
                spec.timeout_s,
                lambda: self._mark_begun(run, has_limit=False),
                module,
                trace,
                is_message=given is not None,
                may_begin=lambda: self._is_in_time(run),
            )
            if ended is None:  # it has got no other permits, and is settled
                self._isolated_held -= 1
                return
            if given is not None:
                given.take_outputs(delivery, ended.outputs)
        except NoProcess:
            run.stop = run.stop or "shutdown"  # given back, as when it stops: another worker may have a process for it
            run.is_begun = False
            error = asyncio.CancelledError()
        except BaseException as caught:
            error = self._as_failure(run, caught)
        self._isolated_held -= 1
        if ended is None:
            self._finish(run, None, error)
            return
        run.is_settled = run.is_settled or ended.is_settled
        if ended.failure_type is not None:
            failure = Failure(ended.failure_type, None, ended.severity, ended.retry_after, ended.texts)  # type: ignore[arg-type]
            verdict: Verdict = Bury(ended.reason) if ended.delay_s is None else RetryAt(ended.delay_s)
            self._finish_failed(run, failure, verdict)
        elif ended.snooze_s is not None:
            self._finish(run, Snooze(ended.snooze_s, ended.snooze_why), None)
        elif ended.discard is not None:
            self._finish(run, Discard(ended.discard), None)
        else:
            self._finish_completed(run, ended.result, ended.reason)

    # ---- time limits

    def _mark_begun(self, run: Run, *, has_limit: bool = True) -> None:
        """From here on it runs; called on whatever thread it runs on."""
        began_s = self._clock.monotonic()
        run.is_begun = True
        run.began_s = began_s
        limit_s = run.spec.timeout_s
        if has_limit and limit_s is not None:
            add = self._deadlines.add if run.spec.is_async else self._deadlines.add_threadsafe
            add(run, began_s + limit_s)

    def _is_over(self, run: Run) -> bool:
        return self.runs.get(run.delivery.id) is not run or run.is_settled

    def _overdue(self, run: Run) -> None:
        if self._is_over(run):
            return
        run.stop = run.stop or "overdue"
        if run.task is not None:
            self._cancel(run)
            # Code may swallow a cancellation: insist.
            self._deadlines.add(run, self._clock.monotonic() + _RESTOP_S)
        elif self._is_replaceable and run.delivery.token:
            self.must_be_replaced = True
            _logger.error(
                "%s job %s is still running after its time limit of %g s, on a thread that cannot be stopped; this "
                "process drains and is replaced",
                run.spec.name,
                run.delivery.id,
                run.spec.timeout_s,
                extra=self._about(run.delivery),
            )
            blame = str(TimeLimitExceeded(run.spec.timeout_s or 0.0))
            note = Note(id=run.delivery.id, token=run.delivery.token, blame=blame)
            task = self._loop.create_task(self._blame(note))
            run.task = task  # keeps it alive, and stops us from coming here again
            self._on_settled()
        else:
            failure = run.spec.classify(
                TimeLimitExceeded(run.spec.timeout_s or 0.0, still_running=True), run.spec.context
            )
            self._finish_failed(run, failure, Bury(GiveUp.STILL_RUNNING.value))
            run.stop, run.go = "cancelled", _FREE  # whatever still comes of it, it is judged already
            self.must_be_replaced = self._is_replaceable  # of a message nobody knows when its process is gone

    async def _blame(self, note: Note) -> None:
        try:
            await self._note(note)
        except StoreError as error:
            _logger.warning("job %s cannot be blamed for its worker's end: %s", note.id, error)

    # ---- from runs to settlements

    def _finish(self, run: Run, value: Any, error: BaseException | None) -> None:
        if run.is_settled and (run.stop or isinstance(error, LeaseLost) or isinstance(value, Snooze | Discard)):
            self._finish_completed(run, b"null", "")  # by itself, before that
            return
        if run.stop == "cancelled":  # it is not ours any more
            self._forget(run)
            self._report(run, IGNORED)
            self._on_settled()
            return
        if error is None:
            if value is None or not isinstance(value, Snooze | Discard):
                result, reason = encoded(value)
                self._finish_completed(run, result, reason)
                return
            self._forget(run)
            self._report(run, SUCCESS if run.spec.is_snooze_success else IGNORED)
            began_at = self._began_at(run)
            self._settle(run.delivery, run.spec, judge_value(value), began_at)
            if isinstance(value, Discard):  # its job has ended, and not by a failure
                now = self.now()
                self.counts.ended(now, run.delivery, began_at, is_completed=False)
                self.counts.ended_as(now, run.delivery, "completed", has_run=True)
            return
        is_cancelled = not run.is_begun or run.spec.is_async or self._is_isolated(run)
        if run.stop == "shutdown" and is_cancelled:  # whatever it made of that
            self._forget(run)
            self._report(run, IGNORED)
            self._settle(run.delivery, run.spec, Release(is_suspect=run.delivery.is_suspect), None)
            return
        if isinstance(error, LeaseLost):
            self._forget(run)
            self._report(run, IGNORED)
            self._on_settled()
            _logger.warning(
                "%s job %s was lost to another worker, or cancelled",
                run.spec.name,
                run.delivery.id,
                extra=self._about(run.delivery),
            )
            return
        failure = run.failure or run.spec.classify(error, run.spec.context)
        run_s = self._clock.monotonic() - run.began_s if run.is_begun else 0.0
        delivery = run.delivery
        verdict = judge(run.spec.retry, failure, delivery.retries, delivery.elapsed_s + run_s, self._rng)
        if isinstance(error, WorkerDied) and isinstance(verdict, RetryAt):
            verdict = RetryAt(verdict.delay_s, is_suspect=True)  # it would take the next worker with it
        self._finish_failed(run, failure, verdict)

    def _finish_completed(self, run: Run, result: bytes, reason: str) -> None:
        self._forget(run)
        delivery = run.delivery
        now, began_at = self.now(), self._began_at(run)
        if run.go is not _FREE:
            self._guards.report(run.go, SUCCESS, now, slow_s=now - began_at if run.is_begun else 0.0)
        if reason:
            _logger.warning("%s job %s: %s", delivery.task, delivery.id, reason, extra=self._about(delivery))
        if run.is_settled:
            self.counts.completed_itself(now, delivery, began_at)
        else:
            self.counts.ended(now, delivery, began_at, is_completed=True)
            spec = run.spec
            self.settlements.append(
                Settlement(
                    id=delivery.id,
                    token=delivery.token,
                    change=_COMPLETED,
                    keep_s=spec.result_keep_s,
                    result=result,
                    reason=reason,
                    elapsed_s=delivery.elapsed_s + now - began_at,
                    started_at=began_at,
                )
            )
        self._on_settled()

    def _finish_failed(self, run: Run, failure: Failure, verdict: Verdict) -> None:
        if run.span is not None and self.tracer is not None:
            self.tracer.fail(run.span, failure, "retried" if isinstance(verdict, RetryAt) else "failed")
        self._forget(run)
        delivery, spec = run.delivery, run.spec
        if run.is_settled:
            _logger.error(
                "%s job %s raised after it had completed itself: %s: %s",
                delivery.task,
                delivery.id,
                failure.error_name,
                in_a_line(failure.message),
                extra=self._about(delivery),
            )
            self.counts.completed_itself(self.now(), delivery, self._began_at(run))
            self._report(run, IGNORED)
            self._on_settled()
            return
        outcome = FAILURE if spec.is_counted(failure) else IGNORED
        self._report(run, outcome, f"{failure.error_name}: {failure.message}")
        if run.is_begun:
            self.counts.ended(self.now(), delivery, self._began_at(run), is_completed=False)
        self._settle(delivery, spec, verdict, self._began_at(run) if run.is_begun else None, failure=failure)

    def _report(self, run: Run, outcome: Any, cause: str | None = None) -> None:
        if run.go is _FREE:
            return
        if not run.is_begun and outcome is IGNORED:
            self._guards.release(run.go)
            return
        duration_s = self._clock.monotonic() - run.began_s if run.is_begun else 0.0
        self._guards.report(run.go, outcome, self.now(), slow_s=duration_s, cause=cause)

    def _settle(
        self,
        delivery: Delivery,
        spec: TaskSpec | None,
        verdict: Verdict,
        began_at: float | None,
        failure: Failure | None = None,
    ) -> None:
        now = self.now()
        breaker = ""
        key = None if failure is None or spec is None else self._breaker_of(spec, delivery)
        if key is not None:
            breaker = self._guards.state_of(key, now).value
        settlement = settlement_of(
            delivery,
            spec,
            verdict,
            worker=self.worker,
            began_at=began_at,
            ended_at=now,
            failure=failure,
            breaker=breaker,
        )
        self.settlements.append(settlement)
        if failure is not None:
            self._log_failure(delivery, verdict, failure)
            names = [_ENDS.get(type(verdict), "failed"), f"failed:{failure.type.value}"]
            if settlement.change is Change.BURY:
                names.append("dead")
            self.counts.ended_as(now, delivery, *names, has_run=began_at is not None)
        self._on_settled()

    def _log_failure(self, delivery: Delivery, verdict: Verdict, failure: Failure) -> None:
        what = f"given up: {verdict.reason}" if isinstance(verdict, Bury) else ""
        if isinstance(verdict, RetryAt | Park):
            what = f"again in {verdict.delay_s:.3g} s"
        _logger.warning(
            "%s %s %s attempt %d failed (%s), %s: %s: %s",
            delivery.task,
            "job" if delivery.token else "message",
            delivery.id,
            delivery.attempt,
            failure.type.value,
            what,
            failure.error_name,
            in_a_line(failure.message),
            extra=self._about(delivery),
        )

    def _about(self, delivery: Delivery) -> dict[str, Any]:
        """What a line of the worker's own says of the job it is about."""
        return {
            "task": delivery.task,
            "job": delivery.id,
            "attempt": delivery.attempt,
            "worker": self.worker,
            "tenant": delivery.tenant,
            "trace_id": trace_id_of(delivery.trace),
        }

    def _forget(self, run: Run) -> None:
        if self.runs.get(run.delivery.id) is run:  # its job may run anew by now
            del self.runs[run.delivery.id]
        if run.span is not None and self.tracer is not None:
            self.tracer.end(run.span)
            run.span = None

    # ---- orphans

    def judge_orphans(self, orphans: Sequence[Delivery]) -> None:
        """Settle what a dead worker left: most go back at no cost, as suspects; a job that ran alone has failed."""
        for delivery in orphans:
            spec = self._specs.get(delivery.task)
            if not blames_orphan(is_alone=delivery.is_alone or bool(delivery.blame), orphaned=delivery.orphaned):
                self._settle_lost(delivery, spec)
                continue
            error: Exception = WorkerDied(delivery.blame or f"worker {delivery.worker} died while it ran this job")
            if delivery.blame and spec is not None and spec.timeout_s is not None:
                error = TimeLimitExceeded(spec.timeout_s)
            failure = spec.classify(error, spec.context) if spec else classify(error)
            # Nobody knows when it ended, and the time in which nobody ran it is not its own.
            longest_s = self._lease_s if spec is None or spec.timeout_s is None else spec.timeout_s
            ended_at = self.now()
            began_at = max(delivery.claimed_at, ended_at - longest_s)
            policy = spec.retry if spec else UNKNOWN_TASK_RETRY
            elapsed_s = delivery.elapsed_s + max(0.0, ended_at - began_at)
            verdict = judge(policy, failure, delivery.retries, elapsed_s, self._rng)
            if isinstance(verdict, RetryAt):
                verdict = RetryAt(verdict.delay_s, is_suspect=True)
            if delivery.attempt == 1:
                self.counts.receive(ended_at, delivery.task)
            self._settle(delivery, spec, verdict, began_at, failure=failure)

    def _settle_lost(self, delivery: Delivery, spec: TaskSpec | None) -> None:
        """Back to the queue at no cost, with a word in its history: it may have run."""
        now = self.now()
        lost = Attempt(
            number=delivery.attempt,
            started_at=delivery.claimed_at,
            ended_at=now,
            worker=delivery.worker,
            outcome=Change.RELEASE,
            error_name="WorkerDied",
            message="its worker died while it had the job, which may have run; this attempt is not counted",
        )
        settlement = settlement_of(
            delivery, spec, Release(is_suspect=True), worker=self.worker, began_at=None, ended_at=now
        )
        self.settlements.append(replace(settlement, attempt=lost))
        self.counts.ended_as(now, delivery, "lost", has_run=False)
        self._on_settled()

    # ---- stopping

    def release_late(self) -> None:
        """Give back what has waited here for longer than a moment without being begun."""
        self._release(self.now() - _START_WITHIN_S)

    def release_waiting(self, but: Callable[[set[str]], Container[str]] = lambda waiting: ()) -> None:
        """Give back what has not begun; of the ids of all that wait, `but` says which are kept."""
        self._release(math.inf, but)

    def _release(self, limit: float, but: Callable[[set[str]], Container[str]] = lambda waiting: ()) -> None:
        on_threads = self._threads.take_back()
        apart = [run for run in self.runs.values() if self._is_isolated(run) and not run.is_begun and not run.stop]
        kept = but({run.delivery.id for run in (*self._waiting, *on_threads, *apart)})

        def is_late(run: Run) -> bool:
            return run.delivery.claimed_at <= limit and run.delivery.id not in kept

        if any(map(is_late, self._waiting)):
            waiting = list(self._waiting)
            self._waiting.clear()
            self._waiting.extend(run for run in waiting if run.delivery.id in kept)
            self._give_back([run for run in waiting if run.delivery.id not in kept])
        late = [run for run in on_threads if is_late(run)]
        self._sync_held -= len(late)
        self._give_back(late)
        self._threads.submit([run for run in on_threads if not is_late(run)])
        for run in filter(is_late, apart):
            run.stop = "shutdown"
            self._cancel(run)

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Release what was claimed and not begun."""
        for delivery in deliveries:
            verdict = Release(is_suspect=delivery.is_suspect)
            self._settle(delivery, self._specs.get(delivery.task), verdict, None)

    def _give_back(self, runs: list[Run]) -> None:
        for run in runs:
            self._forget(run)
            self._guards.release(run.go)
            self._settle(run.delivery, run.spec, Release(is_suspect=run.delivery.is_suspect), None)

    def stop(self, ids: Sequence[str] | None, why: str) -> None:
        """Stop these runs, or all of them: async and isolated ones are cancelled, threads are left to their end."""
        for run in [self.runs[one] for one in ids if one in self.runs] if ids is not None else list(self.runs.values()):
            run.stop = why
            self._cancel(run)

    async def close(self) -> None:
        """End the threads and processes."""
        self._threads.close()
        await self._isolates.close()
        self._deadlines.close()
