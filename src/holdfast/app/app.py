"""App: the tasks of one program, and the store they share."""

from __future__ import annotations

import inspect
import sys
import threading
import typing
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload

import msgspec
from msgspec.structs import replace

from holdfast.app.alerts import AlertDesk, Callback, watch_of
from holdfast.app.crawls import CrawlDesk
from holdfast.app.handlers import stream_of, values_of
from holdfast.app.job import Job, RunResult
from holdfast.app.operators import BreakerDesk, DeadLetterDesk, JobDesk, QueueDesk, ScheduleDesk
from holdfast.app.rings import RingDesk
from holdfast.app.sending import asend, send
from holdfast.app.stats import AppStats, stats_of
from holdfast.app.streams import StreamDesk, making_progress
from holdfast.app.task import Call, Task, checked_name, checked_priority, checked_queue
from holdfast.clock import SystemClock
from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.policy.breaker import BreakerConfig
from holdfast.policy.budget import BudgetConfig
from holdfast.policy.classify import Classifier
from holdfast.policy.classify import classify as classify_error
from holdfast.policy.limiter import Rate
from holdfast.policy.retry import STREAM_RETRY, RetryPolicy
from holdfast.policy.rules import Rule
from holdfast.policy.schedule import Cron, Every
from holdfast.ports import Clock, Exchange, Source, Store
from holdfast.runtime.alerts import Target
from holdfast.runtime.bridge import Bridge
from holdfast.runtime.checks import checked_check
from holdfast.runtime.context import JobContext
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.guards.budget import RetryBudget
from holdfast.runtime.guards.functions import is_async, refuse_unguardable
from holdfast.runtime.guards.limiter import RateLimiter
from holdfast.runtime.guards.policy import careful
from holdfast.runtime.health import BUILT_IN, Examiner, Health
from holdfast.runtime.hooks import Hooks
from holdfast.runtime.payload import Arguments
from holdfast.runtime.ring_letters import GATE as RING_GATE
from holdfast.runtime.ring_origins import QUEUE as RING_QUEUE
from holdfast.runtime.schedules import Schedule
from holdfast.runtime.spec import Scope, TaskSpec
from holdfast.runtime.streams.carrier import letter_arguments
from holdfast.runtime.streams.spec import Decode, Order, Start, StreamSpec
from holdfast.runtime.task_name import task_name
from holdfast.runtime.worker import Worker, WorkerSettings
from holdfast.types import Failure, FailureContext, JobState, NewJob
from holdfast.wiring import new_broker, new_producer, open_store, open_stream, shown, store_file, url_or_default

if TYPE_CHECKING:
    from holdfast.streams.producer import Producer

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[[], Any])
H = TypeVar("H", bound=Callable[..., Any])
Classify = Callable[[BaseException, FailureContext | None], Failure]

_OWN_NAME: Any = "…"
_DAY_S = 86_400.0
_PRUNED_AT_ONCE = 1_000
_SCOPES: tuple[Scope, ...] = ("task", "tenant", "user", "project")


class TaskDecorator(Protocol):
    """What `app.task(…)` returns: a decorator that keeps the function's signature, less the JobContext."""

    @overload
    def __call__(
        self, fn: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[JobContext, P], R], /) -> Task[P, R, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R, R]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Task[Any, Any, Any]:
        """Register the function as a task."""


class App:
    """The tasks of one program, and the store that their jobs live in.

    url: sqlite:///shop.db (a path relative to the current folder; four slashes for an absolute one),
        postgresql://user@host/db, redis://host, or memory://. Without it the environment variable HOLDFAST_URL is used,
        then sqlite:///holdfast.db.
    result_ttl: seconds for which completed and cancelled jobs are kept, with their results [a day].
    enqueue_wait: seconds for which enqueueing waits for a store that is away, trying again with the same ids, before
        StoreAway is raised [0: after the first try, which takes as long as the store is given to answer].

    Nothing is opened or created before the first use.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        result_ttl: float = _DAY_S,
        enqueue_wait: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self.url = url_or_default(url)
        self.clock: Clock = clock or SystemClock()
        self._store: Store | None = open_store(self.url, self.clock)
        self.keep_s = bounds.length("result_ttl", result_ttl)
        self.enqueue_wait = bounds.length("enqueue_wait", enqueue_wait)
        self.bridge = Bridge()
        self.hooks = Hooks()
        self.specs: dict[str, TaskSpec] = {}
        self.tasks: dict[str, Task[Any, Any, Any]] = {}
        self.stream_specs: dict[str, StreamSpec] = {}
        self.scheduled: dict[str, Schedule] = {}
        self._broker: Any = None
        self._producers: list[Producer] = []
        self._explicit_breakers: dict[str, BreakerConfig] = {}
        self._breakers: dict[str, CircuitBreaker] = {}
        self._budgets: dict[RetryBudget, str] = {}
        self._lock = threading.Lock()
        self.dead_letters = DeadLetterDesk(self)
        self.breakers = BreakerDesk(self)
        self.queues = QueueDesk(self)
        self.schedules = ScheduleDesk(self)
        self.jobs = JobDesk(self)
        self.streams = StreamDesk(self)
        self.rings = RingDesk(self)
        self.crawls = CrawlDesk(self)
        self.alerts = AlertDesk(self)
        self._examiner = Examiner(self.clock)

    @property
    def store(self) -> Store:
        """Where the jobs live."""
        if self._store is None:
            self._store = open_store(self.url, self.clock)
        return self._store

    # ---- tasks

    @overload
    def task(
        self, fn: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[JobContext, P], R], /) -> Task[P, R, R]: ...
    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: RetryPolicy | None = None,
        breaker: str | CircuitBreaker | None = _OWN_NAME,
        when_open: Literal["wait", "bury"] = "wait",
        rate: str | Rate | Mapping[Scope, str | Rate] | None = None,
        budget: str | RetryBudget | None = None,
        timeout: float | None = None,
        isolate: Literal["process"] | None = None,
        enable_dlq: bool = True,
        dlq_retention_days: float = 7,
        result_ttl: float | None = None,
        classify: Classify | None = None,
    ) -> TaskDecorator: ...
    def task(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: RetryPolicy | None = None,
        breaker: str | CircuitBreaker | None = _OWN_NAME,
        when_open: Literal["wait", "bury"] = "wait",
        rate: str | Rate | Mapping[Scope, str | Rate] | None = None,
        budget: str | RetryBudget | None = None,
        timeout: float | None = None,
        isolate: Literal["process"] | None = None,
        enable_dlq: bool = True,
        dlq_retention_days: float = 7,
        result_ttl: float | None = None,
        classify: Classify | None = None,
    ) -> Any:
        """Make a task of a function, sync or async: `@app.task`, or `@app.task(…)` with options.

        name: what its jobs are stored under [module and function].
        queue, priority: for its jobs, unless they say otherwise; a higher priority runs first.
        retry: when a failed attempt is followed by another [RetryPolicy()].
        breaker: a breaker key shared with other tasks, a CircuitBreaker with settings, or None [the task's own name].
        when_open: while the breaker is open its jobs "wait" [default], or "bury": go to the dead letters at once.
        rate: "100/minute" over all workers; or one for each scope: {"user": "10/minute", "project": "100/minute"}, out
            of "task", "tenant", "user", "project".
        budget: a RetryBudget, or the key of one shared with other tasks; when it is empty, retries wait.
        timeout: seconds an attempt may take. Async code is cancelled; an isolated process is killed; a thread cannot be
            stopped, so its process is drained and replaced.
        isolate: "process" runs it in a process of its own, for code that may crash or hang.
        enable_dlq: whether a job that is given up becomes a dead letter, or is just failed.
        dlq_retention_days: how long its dead letters are kept.
        result_ttl: seconds for which its completed jobs are kept [the app's].
        classify: a Classifier, or a function from (error, context) to a Failure.
        """

        def register(fn: Callable[..., Any]) -> Task[Any, Any, Any]:
            refuse_unguardable(fn)
            own_name = checked_name("name", name) if name is not None else task_name(fn)
            takes_context = _takes_context(fn)
            key, config = self._breaker_of(breaker, own_name)
            budget_key, budget_config = self._budget_of(budget, own_name)
            spec = TaskSpec(
                name=own_name,
                fn=fn,
                is_async=is_async(fn),
                takes_context=takes_context,
                arguments=Arguments(fn, skip_first=takes_context),
                queue=checked_queue(queue),
                priority=checked_priority(priority),
                retry=_checked("retry", retry, RetryPolicy) or RetryPolicy(),
                breaker=key,
                breaker_config=config,
                rates=_rates(rate),
                budget=budget_key,
                budget_config=budget_config,
                timeout_s=_shorter(timeout, retry.attempt_timeout if retry else None),
                is_isolated=_one_of("isolate", isolate, (None, "process")) == "process",
                waits_for_breaker=_one_of("when_open", when_open, ("wait", "bury")) == "wait",
                has_dead_letters=enable_dlq,
                dead_letter_keep_s=bounds.length("dlq_retention_days", dlq_retention_days, above=0.0) * _DAY_S,
                result_keep_s=self.keep_s if result_ttl is None else bounds.length("result_ttl", result_ttl),
                classify=self._classifier(classify),
                context=FailureContext(own_name, key),
            )
            return self._register(spec)

        return register if fn is None else register(fn)

    def _register(self, spec: TaskSpec) -> Task[Any, Any, Any]:
        known = self.specs.get(spec.name)
        if spec.name in self.stream_specs:
            raise ConfigError(f"a task and a stream are named {spec.name!r}: give one of them another name=")
        if known is not None and _home(known.fn) != _home(spec.fn):
            raise ConfigError(f"two tasks are named {spec.name!r}: give one of them another name=")
        self.specs[spec.name] = spec
        task: Task[Any, Any, Any] = Task(self, spec)
        self.tasks[spec.name] = task
        return task

    def _breaker_of(self, breaker: str | CircuitBreaker | None, own_name: str) -> tuple[str | None, BreakerConfig]:
        if breaker is None:
            return None, BreakerConfig()
        if isinstance(breaker, CircuitBreaker):
            key = checked_name("breaker", breaker.name or own_name)
            known = self._explicit_breakers.setdefault(key, breaker.config)
            if known != breaker.config:
                raise ConfigError(f"breaker {key!r} has two different configurations; share one CircuitBreaker")
            for name, spec in self.specs.items():  # those that asked for it by name alone
                if spec.breaker == key:
                    self.specs[name] = replace(spec, breaker_config=breaker.config)
            for name, stream in self.stream_specs.items():
                if stream.task.breaker == key:
                    task = replace(stream.task, breaker_config=breaker.config)
                    self.stream_specs[name] = replace(stream, task=task)
            return key, breaker.config
        key = own_name if breaker is _OWN_NAME else checked_name("breaker", breaker)
        return key, self._explicit_breakers.get(key, BreakerConfig())

    def _budget_of(self, budget: str | RetryBudget | None, own_name: str) -> tuple[str | None, BudgetConfig]:
        if budget is None:
            return None, BudgetConfig()
        if isinstance(budget, RetryBudget):
            return self._budgets.setdefault(budget, own_name), budget.config  # shared goes by its first task
        return checked_name("budget", budget), BudgetConfig()

    def _classifier(self, classify: Classify | None) -> Classify:
        if classify is None:
            return classify_error
        if isinstance(classify, Classifier):
            classify = classify.timed_by(self.clock.now)
        if not callable(classify):
            raise ConfigError(f"classify={classify!r}: must be a Classifier or a function")
        return careful(classify, classify_error)

    def local_breaker(self, spec: TaskSpec) -> CircuitBreaker | None:
        """The breaker of direct calls: one a key in this process."""
        if spec.breaker is None:
            return None
        with self._lock:
            if spec.breaker not in self._breakers:
                self._breakers[spec.breaker] = CircuitBreaker.of(spec.breaker_config, spec.breaker, clock=self.clock)
            return self._breakers[spec.breaker]

    def local_limiter(self, spec: TaskSpec) -> RateLimiter | None:
        """The limiter of direct calls."""
        rate = spec.rates.get("task")
        return None if rate is None else RateLimiter.of(rate, clock=self.clock)

    # ---- streams

    def stream(
        self,
        url: str,
        /,
        *,
        group: str,
        name: str | None = None,
        in_flight: int | None = None,
        batch: int | None = None,
        order: Order = "key",
        blocking: bool = True,
        bisect: bool = False,
        transactional: bool = False,
        max_gap: int = 10_000,
        start: Start = "earliest",
        decode: Decode | None = None,
        retry: RetryPolicy | None = None,
        breaker: str | CircuitBreaker | None = _OWN_NAME,
        when_open: Literal["wait", "bury"] = "wait",
        rate: str | Rate | None = None,
        timeout: float | None = None,
        enable_dlq: bool = True,
        dlq_retention_days: float = 7,
        classify: Classify | None = None,
    ) -> Callable[[H], H]:
        """Have a function handle the messages of a topic, sync or async; the function stays what it is.

        It takes the value, decoded and checked against its annotation (bytes and str as they are, anything else as
        JSON); and a `Message` or `Outputs` where it asks for them by annotation.

        url: kafka://host:9092/topic, redis://host/stream, or memory://topic for tests.
        group: the consumer group; every message is handled by one of its members.
        name: what its dead letters, breaker and counts are found under [module and function].
        in_flight: messages that are begun and not finished in one worker [100, or two batches]; then it reads no more.
        batch: hand over lists of up to so many messages of one partition, as many as are there.
        order: "key" runs the messages of one key one after the other [default]; "none" all side by side.
        blocking: retry in place, and keep the order [default]; with False through the topics
            `<topic>.<group>.retry.<n>`, so that later messages pass.
        bisect: the handler may see messages again: halve a batch that keeps failing until those to blame are found.
        transactional: commit what a batch sends to its `Outputs` and its offsets by one transaction (Kafka).
        max_gap: a partition stops when so many messages lie behind its first unfinished one.
        start: where a group begins that has never committed: "earliest" [default] or "latest".
        decode: a function of the Message instead of JSON; what it raises is a VALIDATION failure.
        retry: [1, 2, 4 s, each plus up to half of it].
        breaker, when_open, rate, timeout, classify: as for tasks.
        enable_dlq: whether a message that is given up goes to the inbox and to `<topic>.dlq`; without, it is only
            logged and counted.
        dlq_retention_days: how long the inbox keeps it.
        """

        def register(fn: H) -> H:
            refuse_unguardable(fn)
            own_name = checked_name("name", name) if name is not None else task_name(fn)
            key, config = self._breaker_of(breaker, own_name)
            task = TaskSpec(
                name=own_name,
                fn=fn,
                is_async=is_async(fn),
                takes_context=False,
                arguments=letter_arguments(),
                queue=f"stream:{own_name}",
                priority=0,
                retry=_checked("retry", retry, RetryPolicy) or STREAM_RETRY,
                breaker=key,
                breaker_config=config,
                rates=_rates(rate),
                budget=None,
                budget_config=BudgetConfig(),
                timeout_s=_shorter(timeout, retry.attempt_timeout if retry else None),
                is_isolated=False,
                waits_for_breaker=_one_of("when_open", when_open, ("wait", "bury")) == "wait",
                has_dead_letters=enable_dlq,
                dead_letter_keep_s=bounds.length("dlq_retention_days", dlq_retention_days, above=0.0) * _DAY_S,
                result_keep_s=self.keep_s,
                classify=self._classifier(classify),
                context=FailureContext(own_name, key),
                given=values_of(fn, decode, batch),
            )
            spec = stream_of(
                task,
                url=url,
                group=group,
                in_flight=in_flight,
                batch=batch,
                order=order,
                blocking=blocking,
                bisect=bisect,
                transactional=transactional,
                max_gap=max_gap,
                start=start,
            )
            self._register_stream(spec)
            return fn

        return register

    def _register_stream(self, spec: StreamSpec) -> None:
        known = self.specs.get(spec.name) or (
            self.stream_specs[spec.name].task if spec.name in self.stream_specs else None
        )
        if known is not None and _home(known.fn) != _home(spec.task.fn):
            raise ConfigError(f"two tasks or streams are named {spec.name!r}: give one of them another name=")
        twins = [one.name for one in self.stream_specs.values() if one.twin_key == spec.twin_key]
        if twins and spec.name not in twins:
            raise ConfigError(
                f"streams {twins[0]!r} and {spec.name!r} read {spec.topic!r} as one group, {spec.group!r}: each would "
                "get a part of it; give one of them another group="
            )
        self.stream_specs[spec.name] = spec

    def producer(
        self,
        url: str,
        *,
        buffer: int = 10_000,
        when_full: Literal["wait", "error"] = "wait",
        full_wait: float | None = None,
        batch: int = 100,
        timeout: float = 120.0,
    ) -> Producer:
        """A `holdfast.streams.Producer` that is flushed when a worker of this app stops, and closed with the app.

        One of memory:// writes where the memory:// streams of this app read.
        """
        new = new_producer(
            url,
            buffer=buffer,
            when_full=when_full,
            full_wait=full_wait,
            batch=batch,
            timeout=timeout,
            clock=self.clock,
            broker=self._shared_broker() if url.startswith("memory:") else None,
        )
        self._producers.append(new)
        self.hooks.on_shutdown.append(new.aflush)
        return new

    def _shared_broker(self) -> Any:
        if self._broker is None:
            self._broker = new_broker()
        return self._broker

    def open_source(self, spec: StreamSpec) -> Source:
        """A source of a stream of this app, not yet opened."""
        broker = self._shared_broker() if spec.url.startswith("memory:") else None
        return open_stream(spec.url, spec.group, self.clock, start=spec.start, broker=broker)

    # ---- enqueueing

    def enqueue_many(self, calls: Sequence[Call[R]]) -> list[Job[R]]:
        """Make a job of each bound call, of whichever tasks, all or none; durable on return.

        Calls bound with a connection are written inside of its transaction; then all must be bound with the same one.
        """
        calls = _checked_calls(calls)
        connection = _connection_of(calls)
        answers = send(self, [call.job for call in calls], connection) if calls else []
        return [call.task.job_of(call.job, answer, connection) for call, answer in zip(calls, answers, strict=True)]

    async def aenqueue_many(self, calls: Sequence[Call[R]]) -> list[Job[R]]:
        """The same for async code."""
        calls = _checked_calls(calls)
        connection = _connection_of(calls)
        answers = await asend(self, [call.job for call in calls], connection) if calls else []
        return [call.task.job_of(call.job, answer, connection) for call, answer in zip(calls, answers, strict=True)]

    def schedule(
        self,
        call: Call[Any],
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        tz: str = "UTC",
        name: str | None = None,
        missed: Literal["once", "skip"] = "once",
    ) -> None:
        """Enqueue this call again and again: at a cron line's ticks in a time zone, or every so many seconds.

        However many workers run, a tick fires once. missed: what of ticks that passed while every worker was down: the
        latest fires "once" [default], or they are left out ("skip").
        """
        _checked_calls([call])
        if (cron is None) == (every is None):
            raise ConfigError(f"cron={cron!r}, every={every!r}: give one of them")
        timing = Every(every) if every is not None else Cron(str(cron), tz=tz)
        own = checked_name("name", name) if name is not None else call.job.task
        if own in self.scheduled:
            raise ConfigError(f"two schedules are named {own!r}: give one of them another name=")
        job = call.job
        if job.delay_s or job.idempotency_key is not None or call.connection is not None:
            raise ConfigError(
                f"schedule {own!r}: its ticks have their own times and keys, and are enqueued by workers; leave out "
                "delay, at, idempotency_key and connection"
            )
        self.scheduled[own] = Schedule(
            name=own,
            task=job.task,
            timing=timing,
            payload=msgspec.json.decode(job.payload),
            missed=missed,
            queue=job.queue,
            priority=job.priority,
            gates=job.gates,
            tenant=job.tenant,
            user=job.user,
            project=job.project,
        )

    def gates_of(self, job: NewJob) -> tuple[str, ...]:
        """The gates of a job of a task by this app's settings; its own where the task is not known here."""
        if job.queue.startswith(RING_QUEUE):
            return (RING_GATE,)
        task = self.tasks.get(job.task)
        return job.gates if task is None else task.gates_of(job)

    # ---- hooks

    def on_startup(self, hook: F) -> F:
        """Run this when a worker starts, in its event loop; sync or async. A decorator."""
        self.hooks.on_startup.append(hook)
        return hook

    def on_shutdown(self, hook: F) -> F:
        """Run this when a worker stops; sync or async. A decorator."""
        self.hooks.on_shutdown.append(hook)
        return hook

    # ---- health

    @overload
    def health_check(self, name: str, check: F, *, timeout: float = 5.0, critical: bool = False) -> F: ...
    @overload
    def health_check(self, name: str, *, timeout: float = 5.0, critical: bool = False) -> Callable[[F], F]: ...
    def health_check(self, name: str, check: Any = None, *, timeout: float = 5.0, critical: bool = False) -> Any:
        """Add a health check, sync or async: a decorator, or with the check itself. It fails by raising or with False.

        timeout: seconds until it is reported as "timeout"; checks run side by side.
        critical: whether the app is unhealthy when this one fails, or only less well.
        """

        def register(check: F) -> F:
            new = checked_check(name, check, timeout=timeout, critical=critical)
            known = self._examiner.checks.get(name)
            if name in BUILT_IN or (known is not None and _home(known.look) != _home(check)):
                raise ConfigError(f"two health checks are named {name!r}: give one of them another name")
            self._examiner.checks[name] = new
            return check

        return register if check is None else register(check)

    def health(self) -> Health:
        """How the app is: every check, a score from 0 to 1 and what it is made of. Raises nothing when all is ill."""
        return self.bridge.run(self.ahealth())

    async def ahealth(self) -> Health:
        """The same for async code."""
        path = store_file(self.url)
        tasks = (*self.specs.values(), *(stream.task for stream in self.stream_specs.values()))
        breakers = {task.breaker for task in tasks if task.breaker is not None}
        streams = making_progress(self) if self.stream_specs else None
        return await self._examiner.examine(self.store, path, breakers, streams)

    def alert(
        self,
        name: str,
        *,
        when: Rule,
        for_s: float = 0.0,
        clear: float | None = None,
        repeat_s: float | None = None,
        to: Sequence[Callback | Target] = (),
    ) -> None:
        """Tell somebody when a rule of `holdfast.alerts` holds, and when it is over; `holdfast serve` looks at it.

        when: the rule, such as ErrorRate(over=0.1).
        for_s: seconds for which it must hold before it fires [0].
        clear: the value at which it is over [80 % of the limit], so that one close to the limit does not flap.
        repeat_s: while it is firing, tell again every so many seconds [only once].
        to: functions of the Notice, sync or async, and Webhooks. Each gets every notice at least once: one that comes
            again has the same id. The log gets them always.
        """
        watch = watch_of(name, when, for_s=for_s, clear=clear, repeat_s=repeat_s, to=to)
        known = self.alerts.watches.get(name)
        if known is not None and known.alert != watch.alert:
            raise ConfigError(f"two alerts are named {name!r}: give one of them another name")
        self.alerts.watches[name] = watch

    # ---- running

    def worker(
        self, settings: WorkerSettings | None = None, *, is_replaceable: bool = False, target: str | None = None
    ) -> Worker:
        """A worker for these tasks, to be run on an event loop. target: where isolated processes find this app."""
        return Worker(
            self.store,
            dict(self.specs),  # what is registered from now on has no guards in this worker
            settings=settings,
            schedules=tuple(self.scheduled.values()),
            hooks=self.hooks,
            target=self.target if target is None else target,
            clock=self.clock,
            is_replaceable=is_replaceable,
            streams=tuple(self.stream_specs.values()),
            open_source=self.open_source,
        )

    def run_until_idle(self) -> None:
        """Run jobs and messages here until none is left that could run; for tests of your own.

        On memory:// nothing is waited for: the store's clock is moved on to delayed jobs and retries.
        """
        self.bridge.run(self.arun_until_idle())

    async def arun_until_idle(self) -> None:
        """The same for async code."""
        await self.worker().run_until_idle(skip=not self.store.capabilities.is_shared)

    async def run_inline(self, spec: TaskSpec, job: NewJob) -> RunResult[Any]:
        """One job in a store of its own, run to its end."""
        store = open_store("memory://", self.clock)
        caught = _Caught(spec)
        await store.enqueue([job])
        worker = Worker(store, {spec.name: caught.spec}, target=self.target, clock=self.clock)
        await worker.run_until_idle(skip=False)
        (record,) = await store.get([job.id])
        if record is None:
            raise AssertionError(f"job {job.id} is gone from its own store")
        is_done = record.state is JobState.COMPLETED
        return RunResult(
            success=is_done,
            value=self.tasks[spec.name].value_of(record) if is_done else None,
            error=None if is_done else caught.error,
            attempts=record.attempts,
            state=record.state,
            reason=record.reason,
        )

    @property
    def target(self) -> str:
        """Where another process finds this app: `module:name`, or `file.py:name`; empty when it cannot."""
        for name, module in list(sys.modules.items()):
            for attribute, value in list(vars(module).items()) if hasattr(module, "__dict__") else ():
                if value is self:
                    if name != "__main__":
                        return f"{name}:{attribute}"
                    file = getattr(module, "__file__", None)
                    return f"{Path(file).resolve()}:{attribute}" if file else ""
        return ""

    # ---- looking

    def stats(self, minutes: int = 60) -> AppStats:
        """What there is and what has been done: jobs by state, attempts, dead letters, breakers, workers."""
        return self.bridge.run(self.astats(minutes))

    async def astats(self, minutes: int = 60) -> AppStats:
        """The same for async code."""
        reply = await self.store.exchange(Exchange())
        since = int(reply.now // 60) - minutes
        return stats_of(await self.store.stats(since), reply.values, self.store.capabilities)

    def prune(self) -> int:
        """Delete the records whose time to be kept is over, and say how many; workers do it by themselves."""
        return self.bridge.run(self.aprune())

    async def aprune(self) -> int:
        """The same for async code."""
        total = 0
        while (pruned := await self.store.prune(_PRUNED_AT_ONCE)) > 0:
            total += pruned
        return total

    def close(self) -> None:
        """Give everything back; the app can be used again."""
        while self._producers:
            self._producers.pop().close()
        if self._store is not None:
            self.bridge.run(self._store.close())
        self.bridge.close()
        self._store = None

    async def aclose(self) -> None:
        """The same for async code."""
        while self._producers:
            await self._producers.pop().aclose()
        if self._store is not None:
            await self._store.close()
        self.bridge.close()
        self._store = None

    def __repr__(self) -> str:
        return f"<App {shown(self.url)} {len(self.specs)} tasks>"


def _checked_calls(calls: Sequence[Call[R]]) -> list[Call[R]]:
    calls = list(calls)  # a generator would be used up by the look at it
    for call in calls:
        if not isinstance(call, Call):
            raise ConfigError(f"call={call!r}: must be a bound call, such as task.bind(…)")
    return calls


def _connection_of(calls: Sequence[Call[Any]]) -> object | None:
    """The one connection that all of them are bound with; None where they have none."""
    first = calls[0].connection if calls else None
    if any(call.connection is not first for call in calls):
        raise ConfigError("connection: bind all calls of one enqueue_many with the same one, or none of them")
    return first


class _Caught:
    """A task that remembers the last error it raised."""

    def __init__(self, spec: TaskSpec) -> None:
        self.error: BaseException | None = None
        inner = spec.classify

        def classify(error: BaseException, context: FailureContext | None) -> Failure:
            self.error = error
            return inner(error, context)

        self.spec = replace(spec, classify=classify)


def _takes_context(fn: Callable[..., Any]) -> bool:
    """Whether the first parameter is annotated JobContext."""
    parameters = list(inspect.signature(fn).parameters.values())
    if not parameters:
        return False
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        try:
            annotation = typing.get_type_hints(fn).get(parameters[0].name)
        except NameError:
            return str(parameters[0].annotation).rpartition(".")[2] == "JobContext"
    return annotation is JobContext


def _home(fn: Callable[..., Any]) -> tuple[str, str]:
    """Where a function is written: the same place again is a module that was imported twice, or reloaded."""
    code = getattr(fn, "__code__", None)
    return (code.co_filename if code else "", getattr(fn, "__qualname__", repr(fn)))


def _rates(rate: str | Rate | Mapping[Scope, str | Rate] | None) -> dict[Scope, Rate]:
    if rate is None:
        return {}
    if not isinstance(rate, Mapping):
        rate = {"task": rate}
    found: dict[Scope, Rate] = {}
    for scope, one in rate.items():
        if scope not in _SCOPES:
            raise ConfigError(f"rate={rate!r}: a scope must be one of {', '.join(_SCOPES)}")
        found[scope] = one if isinstance(one, Rate) else Rate.parse(one, "rate")
    return found


def _shorter(*limits: float | None) -> float | None:
    given = [bounds.length("timeout", limit, above=0.0) for limit in limits if limit is not None]
    return min(given, default=None)


def _one_of(field: str, value: R, allowed: tuple[R, ...]) -> R:
    if value in allowed:
        return value
    raise ConfigError(f"{field}={value!r}: must be one of {', '.join(repr(one) for one in allowed)}")


def _checked(field: str, value: R, kind: type) -> R:
    if value is None or isinstance(value, kind):
        return value
    raise ConfigError(f"{field}={value!r}: must be a {kind.__name__}")
